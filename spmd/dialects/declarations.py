"""Declarations shared by several dialects."""

from __future__ import annotations

from collections.abc import Collection

from spmd.dialects import kinds, type_sets
from spmd.dialects.core import AttributeDef, OpDef, Trait, attribute, define, operand, result
from spmd.dialects.kinds import AttributeKind
from spmd.dialects.type_sets import TypeSet
from spmd.ir.attributes import Attribute


def define_constant(
    name: str,
    *,
    value: AttributeKind[Attribute] = kinds.ELEMENTS,
    output: str = "output",
    types: TypeSet = type_sets.STATIC_TENSOR,
    assembly: str = "custom<Constant>",
) -> OpDef:
    """Declare op `name`, whose result `output`, of `types`, is the value of its attribute `value`."""
    return define(
        name,
        attributes=[attribute("value", value)],
        results=[result(output, types)],
        assembly=assembly,
        traits=[Trait.PURE],
    )


def define_unary(
    name: str,
    assembly: str,
    *attributes: AttributeDef,
    types: TypeSet = type_sets.TENSOR,
    results: TypeSet | None = None,
    traits: Collection[Trait] = (),
) -> OpDef:
    """Declare pure op `name` with one `operand`, of `types`, and one `result`, of `results` or else of `types`."""
    return define(
        name,
        operands=[operand("operand", types)],
        attributes=attributes,
        results=[result("result", results or types)],
        assembly=assembly,
        traits=[Trait.PURE, *traits],
    )


def comparison_attributes(dialect: str) -> list[AttributeDef]:
    """Return the attributes `comparison_direction` and `compare_type`, enumerations of `dialect`."""
    directions = kinds.enum(dialect, "comparison_direction", "EQ", "NE", "GE", "GT", "LE", "LT")
    types = kinds.enum(dialect, "comparison_type", "NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED")
    return [attribute("comparison_direction", directions), attribute("compare_type", types, optional=True)]
