"""The client dialect: ops with implicit broadcasting, special functions, and structured ops that JAX lowers to.

Source: StableHLO's CHLO dialect (docs/generated/chlo.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spmd.dialects import kinds, type_sets
from spmd.dialects.checks import (
    compatible_dims,
    dims,
    element_of,
    equal_elements,
    in_range,
    listed,
    same_elements,
    same_types,
    unique,
)
from spmd.dialects.core import InferenceError, OpDef, Trait, attribute, define, operand, operands_of, result
from spmd.dialects.declarations import comparison_attributes, define_constant
from spmd.dialects.shapes import Size, bounds_of, most_specific, tensor, with_element
from spmd.dialects.type_sets import TypeSet, tensor_of_kinds
from spmd.ir import Op
from spmd.ir.attributes import FloatAttr, IntegerAttr
from spmd.types import I1, ElementType, TensorType, Type, UnrankedTensorType

_FLOAT = tensor_of_kinds("float", unranked=True)
_FLOAT_OR_COMPLEX = tensor_of_kinds("float", "complex", unranked=True)
_COMPLEX = tensor_of_kinds("complex", unranked=True)
_PREDICATE = tensor_of_kinds("i1", unranked=True)
_PREDICATE_OR_INTEGER = tensor_of_kinds("i1", "signed", "unsigned", unranked=True)
_BROADCAST_DIMENSIONS = attribute("broadcast_dimensions", kinds.I64_ARRAY, optional=True)
_BROADCAST_FORM = "$lhs `,` $rhs attr-dict `:` `(` type($lhs) `,` type($rhs) `)` `->` type(results)"


def _joined_size(dimension: int, left: Size, right: Size) -> Size:
    """Return the (size, bound) of a dimension after broadcasting."""
    sizes = left[0], right[0]
    if sizes[0] == 1 or sizes[1] == 1:
        return right if sizes[0] == 1 else left
    if not compatible_dims(*sizes):
        raise InferenceError(f"sizes of dimension {dimension} must match or one of them be 1, got {listed(sizes)}")
    if sizes[0] is not None or sizes[1] is not None:
        return (sizes[0] if sizes[0] is not None else sizes[1]), None
    bounds = [bound for bound in (left[1], right[1]) if bound is not None]
    return None, max(bounds) if len(bounds) == 2 else None


def broadcast_type(types: Sequence[Type], element: Type, mapping: Sequence[int] | None = None) -> Type:
    """Return the type that `types` are broadcast to; `mapping` maps the dimensions of the smaller of two."""
    if not all(isinstance(type, TensorType) for type in types):
        return UnrankedTensorType(element)
    ranked = sorted((type for type in types if isinstance(type, TensorType)), key=lambda type: -type.rank)
    large = ranked[0]
    sizes: list[Size] = list(zip(large.shape, bounds_of(large), strict=True))
    for small in ranked[1:]:
        places = range(large.rank - small.rank, large.rank) if mapping is None else mapping
        if len(places) != small.rank or in_range(places, large.rank) is not None:
            raise InferenceError(
                f"broadcast_dimensions must map the dimensions of {small} to those of {large}, got {dims(places)}"
            )
        for place, size in zip(places, zip(small.shape, bounds_of(small), strict=True), strict=True):
            sizes[place] = _joined_size(place, sizes[place], size)
    return tensor([size for size, _ in sizes], element, [bound for _, bound in sizes])


def _broadcast(
    name: str,
    types: TypeSet = type_sets.ANY_TENSOR,
    results: TypeSet | None = None,
    *,
    commutative: bool = False,
    baseline: bool = False,
    element: Callable[[Type], Type] = lambda element: element,
) -> OpDef:
    """Declare a binary op with implicit broadcasting; `element` maps operand to result element type.

    With `baseline`, quantized operands and results may have different quantization parameters.
    """
    op_def = define(
        f"chlo.broadcast_{name}",
        operands=[operand("lhs", types), operand("rhs", types)],
        attributes=[_BROADCAST_DIMENSIONS],
        results=[result("result", results or types)],
        assembly=_BROADCAST_FORM,
        traits=[Trait.PURE, Trait.BROADCASTING, *([Trait.COMMUTATIVE] if commutative else [])],
    )
    _infer_broadcast(op_def, element)
    if not baseline and results is None:
        op_def.constraint("", "element_type(lhs) = element_type(rhs) = element_type(result)")(
            lambda op: equal_elements(*op.operand_types, *op.result_types)
        )
    return op_def


def _infer_broadcast(declared: OpDef, element: Callable[[Type], Type]) -> None:
    declared.constraint("", "lhs and rhs must have one baseline_element_type")(
        lambda op: same_elements(*op.operand_types)
    )
    declared.constraint("", "broadcast_dimensions must be unique")(lambda op: unique(op["broadcast_dimensions"] or ()))
    declared.infers("", "the result has the shape that both operands are broadcast to")(
        lambda op: [
            broadcast_type(op.operand_types, element(element_of(op.operands[0].type)), op["broadcast_dimensions"])
        ]
    )


def _complex_of(element: Type) -> Type:
    if not isinstance(element, ElementType) or element.bits not in (32, 64):
        raise InferenceError(f"the elements must be f32 or f64, got {element}")
    return element.complex


def _unary(name: str, types: TypeSet, results: TypeSet | None = None) -> OpDef:
    """Declare a unary elementwise op: of booleans if `results` differ, else of the operand's type."""
    op_def = define(
        f"chlo.{name}",
        operands=[operand("operand", types)],
        results=[result("result", results or types)],
        assembly="$operand attr-dict `:` type($operand) `->` type($result)",
        traits=[Trait.PURE, Trait.ELEMENTWISE, *([] if results else [Trait.SAME_TYPE])],
    )
    op_def.infers("", "the result must have the operand's shape")(
        lambda op: [with_element(op.operands[0].type, I1) if results else op.operands[0].type]
    )

    @op_def.constraint("", "operand and result are both ranked, or both unranked", on_results=True)
    def _(op: Op) -> str | None:
        types = [*op.operand_types, *op.result_types]
        return None if len({isinstance(type, UnrankedTensorType) for type in types}) == 1 else listed(types)

    return op_def


def _binary(name: str, first: str, second: str, types: TypeSet, *, commutative: bool = False) -> OpDef:
    op_def = define(
        f"chlo.{name}",
        operands=[operand(first, types), operand(second, types)],
        results=[result("result", types)],
        assembly=f"${first} `,` ${second} attr-dict `:` type(${first}) `,` type(${second}) `->` type($result)",
        traits=[Trait.PURE, Trait.ELEMENTWISE, Trait.SAME_TYPE, *([Trait.COMMUTATIVE] if commutative else [])],
    )
    op_def.constraint("", f"{first}, {second} and the result have one type")(lambda op: same_types(*op.operand_types))
    op_def.infers("", f"{first}, {second} and the result have one type")(lambda op: [most_specific(op.operand_types)])
    return op_def


for _name in ("add", "maximum", "minimum"):
    _broadcast(_name, commutative=True, baseline=True)
_broadcast("multiply", commutative=True)
for _name in (
    "atan2", "divide", "next_after", "polygamma", "power", "remainder", "shift_left", "shift_right_arithmetic",
    "shift_right_logical", "subtract",
):  # fmt: skip
    _broadcast(_name)
_broadcast("zeta", _FLOAT)
for _name in ("and", "or", "xor"):
    _broadcast(_name, _PREDICATE_OR_INTEGER, commutative=True)
BROADCAST_COMPLEX = _broadcast("complex", _FLOAT, _COMPLEX, element=_complex_of)

_unary("_asin_acos_kernel", _COMPLEX)
for _name in (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "bessel_i1e", "conj", "cosh", "sinh", "square", "tan",
):  # fmt: skip
    _unary(_name, _FLOAT_OR_COMPLEX)
for _name in ("digamma", "erf", "erf_inv", "erfc", "lgamma"):
    _unary(_name, _FLOAT)
for _name in ("is_inf", "is_neg_inf", "is_pos_inf"):
    _unary(_name, _FLOAT, _PREDICATE)

_binary("next_after", "x", "y", _FLOAT)
_binary("polygamma", "n", "x", _FLOAT)
_binary("zeta", "x", "q", _FLOAT)
_binary("mulhi", "lhs", "rhs", type_sets.INTEGER, commutative=True)

BROADCAST_COMPARE = define(
    "chlo.broadcast_compare",
    operands=[operand("lhs", type_sets.ANY_TENSOR), operand("rhs", type_sets.ANY_TENSOR)],
    attributes=[_BROADCAST_DIMENSIONS, *comparison_attributes("chlo")],
    results=[result("result", _PREDICATE)],
    assembly=_BROADCAST_FORM,
    traits=[Trait.PURE, Trait.BROADCASTING],
)

_infer_broadcast(BROADCAST_COMPARE, lambda element: I1)

BROADCAST_SELECT = define(
    "chlo.broadcast_select",
    operands=[operand("pred", type_sets.PREDICATE), *operands_of(type_sets.ANY_TENSOR, "on_true", "on_false")],
    results=[result("result", type_sets.ANY_TENSOR)],
    assembly="$pred `,` $on_true `,` $on_false attr-dict `:` "
    "`(` type($pred) `,` type($on_true) `,` type($on_false) `)` `->` type(results)",
    traits=[Trait.PURE, Trait.BROADCASTING],
)

BROADCAST_SELECT.constraint("", "element_type(on_true) = element_type(on_false)")(
    lambda op: equal_elements(*op.operand_types[1:])
)
BROADCAST_SELECT.infers("", "the result has the shape that all operands are broadcast to")(
    lambda op: [broadcast_type(op.operand_types, element_of(op.operands[1].type))]
)

CONSTANT = define_constant("chlo.constant", assembly="attr-dict $value")

CONSTANT.infers("", "the result has the type of value")(lambda op: [op["value"].type])

CONSTANT_LIKE = define(
    "chlo.constant_like",
    operands=[operand("operand", type_sets.ANY_TENSOR)],
    attributes=[attribute("value", kinds.ANY)],
    results=[result("result", type_sets.ANY_TENSOR)],
    traits=[Trait.PURE],
)


@CONSTANT_LIKE.constraint("", "value is a number of the result's element type")
def _(op: Op) -> str | None:
    value = op["value"]
    value_type = value.type if isinstance(value, (IntegerAttr, FloatAttr)) else None
    sound = value_type is not None and (not op.results or element_of(op.results[0].type) is value_type)
    return None if sound else f"{value_type or value} and {listed(map(element_of, op.result_types))}"


CONSTANT_LIKE.infers("", "the result must have the operand's shape and the type of value")(
    lambda op: [with_element(op.operands[0].type, op["value"].type)]
)
