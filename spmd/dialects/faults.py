"""Faults of an op by its declaration, for the verifier and the builder."""

from __future__ import annotations

from collections.abc import Iterator

from spmd.dialects.checks import compatible_types, listed
from spmd.dialects.core import InferenceError, OpDef, OperandDef
from spmd.dialects.structs import StructAttribute
from spmd.dialects.type_rules import value_fault
from spmd.ir import Op
from spmd.types import TensorType, Type

#: The specification's label of the violated constraint ("" if none), and the message.
Fault = tuple[str, str]


def faults(op: Op, definition: OpDef) -> Iterator[Fault]:
    """Yield all faults of `op`; each is meaningful only if there is none before it."""
    yield from _count_faults(op, definition)
    yield from attribute_faults(op, definition)
    yield from _type_faults(op, definition)
    yield from _region_faults(op, definition)
    yield from constraint_faults(op, definition, on_results=False)
    yield from constraint_faults(op, definition, on_results=True)
    if definition.rule is not None and not definition.rule_is_advisory:
        yield from inference_faults(op, definition)


def run_time_faults(op: Op, definition: OpDef) -> Iterator[Fault]:
    """Yield all faults of `op` with the operand types at run time, including `meaningless` ones.

    Results whose sizes do not follow from operand types are not checked, as they are not yet known.
    """
    if all(type.is_static for type in op.result_types if isinstance(type, TensorType)):
        yield from faults(op, definition)
    else:
        yield from constraint_faults(op, definition, on_results=False)
    for constraint in definition.constraints:
        if constraint.meaningless and (broken := constraint.fault(op)) is not None:
            yield constraint.label, broken


def attribute_faults(op: Op, definition: OpDef) -> Iterator[Fault]:
    """Yield faults of attributes: missing ones, and those that are invalid by themselves."""
    for name in definition.required_attributes:
        if name not in op.attributes:
            yield "", f"attribute {name} is required"
    for value in op.attributes.values():
        if isinstance(value, StructAttribute) and (broken := value.fault()) is not None:
            yield broken


def constraint_faults(op: Op, definition: OpDef, *, on_results: bool, advisory: bool = False) -> Iterator[Fault]:
    """Yield violated constraints, either those on results or the others.

    `advisory` includes advisory constraints, except `customary` ones.
    """
    for constraint in definition.constraints:
        if constraint.on_results is on_results and (not constraint.advisory or (advisory and not constraint.customary)):
            broken = constraint.fault(op)
            if broken is not None:
                yield constraint.label, broken


def _count_faults(op: Op, definition: OpDef) -> Iterator[Fault]:
    for kind, declared, values, segments in (
        ("operand", definition.operands, op.operands, op.attributes.get("operandSegmentSizes")),
        ("result", definition.results, op.results, op.attributes.get("resultSegmentSizes")),
    ):
        loose = [entry for entry in declared if entry.variadic]
        fixed = len(declared) - len(loose)
        spare = len(values) - fixed
        if segments is not None:
            if len(segments) != len(declared) or min(segments, default=0) < 0 or sum(segments) != len(values):
                yield "", f"{kind}SegmentSizes deals out the {len(values)} {kind}s, got {listed(segments)}"
        elif spare < 0 or (spare and not loose):
            expected = f"at least {fixed}" if loose else str(fixed)
            yield "", f"expected {expected} {kind}{'' if fixed == 1 else 's'}, got {len(values)}"
        elif len(loose) > 1 and all(entry.variadic for entry in loose) and spare % len(loose):
            names = listed(entry.name for entry in loose)
            yield "", f"there are as many of each of {names}, got {spare} in all"
    expected_regions = len(definition.regions)
    variadic = any(region.variadic for region in definition.regions)
    if len(op.regions) != expected_regions and not variadic:
        yield "", f"expected {expected_regions} region{'' if expected_regions == 1 else 's'}, got {len(op.regions)}"


def mistyped(op: Op, definition: OpDef, kind: str) -> Iterator[tuple[int, OperandDef, Type]]:
    """Yield the operands or results (`kind`) of a wrong type: number from 1, declaration, and type."""
    values, declared = (op.operands, definition.operands) if kind == "operand" else (op.results, definition.results)
    slices = definition.slices(op, kind)
    for position, entry in enumerate(declared, start=1):
        for value in values[slices[entry.name]]:
            if not entry.types.admits(value.type):
                yield position, entry, value.type


def _type_faults(op: Op, definition: OpDef) -> Iterator[Fault]:
    for value in (*op.operands, *op.results):
        broken = value_fault(value.type)
        if broken is not None:
            yield broken
    for kind in ("operand", "result"):
        for position, entry, type in mistyped(op, definition, kind):
            labelled = kind == "operand" and definition.dialect == "stablehlo"
            label = (entry.label or f"I{position}") if labelled else entry.label
            name = kind if entry.name == kind else f"{kind} {entry.name}"
            yield label, f"{name} is a {entry.types.text}, got {type}"


#: The terminator of regions by dialect.
_TERMINATORS = {"stablehlo": "stablehlo.return", "chlo": "stablehlo.return", "sdy": "sdy.return"}


def _region_faults(op: Op, definition: OpDef) -> Iterator[Fault]:
    terminator = _TERMINATORS.get(definition.dialect)
    if terminator is None:
        return
    for index, region in enumerate(op.regions):
        declared = definition.regions[min(index, len(definition.regions) - 1)]
        if declared.free:
            continue
        name = f"{declared.name}[{index}]" if declared.variadic else declared.name
        if len(region.blocks) != 1:
            yield "", f"region {name} has one block, got {len(region.blocks)}"
        ops = region.block.ops
        if not ops or ops[-1].name != terminator:
            yield "", f"region {name} ends with {terminator}, got {ops[-1].name if ops else 'nothing'}"
        for argument in region.block.arguments:
            broken = value_fault(argument.type)
            if broken is not None:
                yield broken


def inference_faults(op: Op, definition: OpDef) -> Iterator[Fault]:
    assert definition.rule is not None
    try:
        inferred = definition.rule(op)
    except InferenceError as error:
        yield error.label, str(error)
        return
    declared = op.result_types
    if len(inferred) != len(declared):
        yield definition.rule_label, f"{definition.rule_text}, got {len(declared)} results instead of {len(inferred)}"
        return
    for declared_type, expected in zip(declared, inferred, strict=True):
        if not compatible_types(declared_type, expected):
            yield definition.rule_label, f"{definition.rule_text}, got {declared_type} instead of {expected}"
