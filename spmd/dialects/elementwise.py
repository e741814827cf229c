"""Elementwise ops. Source: StableHLO specification, the op of each name."""

from __future__ import annotations

from spmd.dialects import kinds, type_sets
from spmd.dialects.checks import (
    at_least,
    bits_of,
    compatible_dims,
    element_of,
    is_quantized,
    listed,
    per_axis,
    same_elements,
    same_shape,
    same_types,
)
from spmd.dialects.core import OpDef, Trait, attribute, define, operand, result
from spmd.dialects.declarations import comparison_attributes, define_unary
from spmd.dialects.forms import TYPED, one_type
from spmd.dialects.shapes import most_specific, with_element
from spmd.dialects.structs import ResultAccuracyAttr
from spmd.dialects.type_sets import TypeSet, tensor_of_kinds, tensor_of_types
from spmd.ir import Op
from spmd.types import F32, F64, I1, ElementType, QuantizedType, Type

_ELEMENTWISE = (Trait.PURE, Trait.ELEMENTWISE)
_SIGNED_NUMBER = tensor_of_kinds("signed", "float", "complex", "quantized")
_NUMBER = tensor_of_kinds("signed", "unsigned", "float", "complex", "quantized")


_SAME_BASELINE = "baseline_type(operand) = baseline_type(result)"
_SAME_TYPE = "type(operand) = type(result)"
_ALL_SAME_BASELINE = "baseline_type(lhs) = baseline_type(rhs) = baseline_type(result)"
_ALL_SAME_TYPE = "type(lhs) = type(rhs) = type(result)"


def _unary(
    name: str, types: TypeSet, results: TypeSet | None = None, *, accuracy: bool = False, result_label: str = ""
) -> OpDef:
    """Declare a unary elementwise op; `accuracy` for those with `result_accuracy`.

    `result_label` is the label of the constraint on the result's element type.
    """
    op_def = define(
        f"stablehlo.{name}",
        operands=[operand("operand", types)],
        attributes=[attribute("result_accuracy", kinds.struct(ResultAccuracyAttr), default=ResultAccuracyAttr())]
        if accuracy
        else [],
        results=[result("result", results or types, label=result_label)],
        assembly="$operand " + one_type("operand", "result"),
        traits=(*_ELEMENTWISE, *(() if results else (Trait.SAME_TYPE,))),
    )
    return op_def


def _same_unary(name: str, types: TypeSet, text: str = _SAME_BASELINE, *, accuracy: bool = False) -> None:
    """Declare a unary elementwise op whose result has the operand's type."""
    _unary(name, types, accuracy=accuracy).infers("C1", text)(lambda op: [op.operands[0].type])


def _binary(
    name: str, types: TypeSet = type_sets.TENSOR, text: str = _ALL_SAME_BASELINE, *, commutative: bool = False
) -> OpDef:
    """Declare a binary elementwise op whose operands and result have one type."""
    op_def = define(
        f"stablehlo.{name}",
        operands=[operand("lhs", types), operand("rhs", types)],
        results=[result("result", types)],
        assembly="$lhs `,` $rhs " + one_type("lhs", "rhs", "result"),
        traits=(*_ELEMENTWISE, Trait.SAME_TYPE, *((Trait.COMMUTATIVE,) if commutative else ())),
    )
    if name != "add":
        op_def.constraint("C1", text)(lambda op: same_types(*op.operand_types))
        op_def.infers("C1", text)(lambda op: [most_specific(op.operand_types)])
    return op_def


def _real(type: Type) -> Type:
    element = element_of(type)
    return with_element(type, element.real if isinstance(element, ElementType) else element)


def _as_boolean(op: Op) -> list[Type]:
    return [with_element(op.operands[0].type, I1)]


ABS = _unary("abs", _SIGNED_NUMBER, tensor_of_kinds("signed", "float", "quantized"), result_label="C2")
ABS.infers("C1, C2", "the result must have the operand's shape and the real part of its element type")(
    lambda op: [_real(op.operands[0].type)]
)

CONVERT = _unary("convert", type_sets.NON_QUANTIZED, type_sets.NON_QUANTIZED)
CONVERT.constraint("C1", "shape(operand) = shape(result)", on_results=True)(
    lambda op: same_shape(op.operands[0].type, op.results[0].type)
)

IMAG = _unary("imag", type_sets.FLOAT_OR_COMPLEX, type_sets.FLOAT, result_label="C2")
REAL = _unary("real", type_sets.FLOAT_OR_COMPLEX, type_sets.FLOAT, result_label="C2")
for _part in (IMAG, REAL):
    _part.infers("C1, C2", "the result must have the operand's shape and the real part of its element type")(
        lambda op: [_real(op.operands[0].type)]
    )

for _name in (
    "cbrt", "cosine", "exponential", "exponential_minus_one", "log", "log_plus_one", "logistic", "rsqrt", "sine",
    "sqrt", "tan", "tanh",
):  # fmt: skip
    _same_unary(_name, type_sets.FLOAT_COMPLEX_OR_QUANTIZED, accuracy=True)
for _name in ("ceil", "floor", "round_nearest_afz", "round_nearest_even"):
    _same_unary(_name, type_sets.FLOAT_OR_QUANTIZED)
for _name in ("count_leading_zeros", "popcnt"):
    _same_unary(_name, type_sets.INTEGER, _SAME_TYPE)
_same_unary("not", type_sets.PREDICATE_OR_INTEGER, _SAME_TYPE)
_same_unary("negate", _NUMBER)
_same_unary("sign", _SIGNED_NUMBER)

for _name in ("maximum", "minimum", "multiply"):
    _binary(_name, commutative=True)
for _name in ("and", "or", "xor"):
    _binary(_name, type_sets.PREDICATE_OR_INTEGER, _ALL_SAME_TYPE, commutative=True)
for _name in ("divide", "power", "remainder", "subtract"):
    _binary(_name, _NUMBER)
for _name in ("shift_left", "shift_right_arithmetic", "shift_right_logical"):
    _binary(_name, type_sets.INTEGER, _ALL_SAME_TYPE)
_binary("atan2", type_sets.FLOAT_COMPLEX_OR_QUANTIZED)

ADD = _binary("add", type_sets.TENSOR_OR_PER_AXIS, commutative=True)


def _types(op: Op) -> list[Type]:
    return [*op.operand_types, *op.result_types]


@ADD.constraint("C1", "type(lhs) = type(rhs) = type(result)")
def _(op: Op) -> str | None:
    types = _types(op)
    quantized = any(map(is_quantized, types))  # checked by the next constraints
    return same_types(*(with_element(type, I1) for type in types)) if quantized else same_types(*types)


@ADD.constraint("C2", "all of lhs, rhs and result must be quantized, or none")
def _(op: Op) -> str | None:
    types = _types(op)
    return None if len(set(map(is_quantized, types))) == 1 else listed(map(element_of, types))


def _agreeing(op: Op, part: str) -> str | None:
    elements = [element_of(type) for type in _types(op)]
    parts = [getattr(element, part) for element in elements if isinstance(element, QuantizedType)]
    return None if len(set(parts)) <= 1 else listed(parts)


ADD.constraint("C3", "storage_type(lhs) = storage_type(rhs) = storage_type(result)")(
    lambda op: _agreeing(op, "storage")
)
ADD.constraint("C4", "expressed_type(lhs) = expressed_type(rhs) = expressed_type(result)")(
    lambda op: _agreeing(op, "expressed")
)


@ADD.constraint("C5", "the result must be per-axis quantized if and only if an operand is", on_results=True)
def _(op: Op) -> str | None:
    of_operands = any(per_axis(type) for type in op.operand_types)
    return None if of_operands == bool(per_axis(op.result.type)) else listed(map(element_of, _types(op)))


def _same_axis(op: Op, index: int) -> str | None:
    result_axis, operand_axis = per_axis(op.operands[index].type), per_axis(op.result.type)
    if (
        result_axis is None
        or operand_axis is None
        or result_axis.quantization_dimension == operand_axis.quantization_dimension
    ):
        return None
    return listed((result_axis.quantization_dimension, operand_axis.quantization_dimension))


ADD.constraint("C6", "quantization_dimension(lhs) = quantization_dimension(result)", on_results=True)(
    lambda op: _same_axis(op, 0)
)
ADD.constraint("C7", "quantization_dimension(rhs) = quantization_dimension(result)", on_results=True)(
    lambda op: _same_axis(op, 1)
)


@ADD.infer
def _(op: Op) -> list[Type]:
    lhs, rhs = op.operand_types
    if per_axis(rhs) and not per_axis(lhs):
        return [rhs]
    if op.results and is_quantized(op.results[0].type):
        return [op.results[0].type]  # scales may differ, and C5 checks granularity
    return [most_specific([lhs, rhs]) if not is_quantized(lhs) else lhs]


IS_FINITE = define(
    "stablehlo.is_finite",
    operands=[operand("x", type_sets.FLOAT_OR_QUANTIZED)],
    results=[result("y", type_sets.PREDICATE)],
    assembly="operands " + TYPED,
    traits=_ELEMENTWISE,
)

IS_FINITE.infers("C1", "shape(x) = shape(y)")(_as_boolean)

COMPLEX = define(
    "stablehlo.complex",
    operands=[operand("lhs", tensor_of_types(F32, F64)), operand("rhs", tensor_of_types(F32, F64))],
    results=[result("result", tensor_of_kinds("complex"))],
    assembly="operands attr-dict `:` custom<ComplexOpType>(type($lhs), type($rhs), type($result))",
    traits=_ELEMENTWISE,
)

COMPLEX.constraint("C1", "type(lhs) = type(rhs)")(lambda op: same_types(*op.operand_types))


@COMPLEX.infers("C2, C3", "the result has shape(lhs) and complex elements of element_type(lhs)")
def _(op: Op) -> list[Type]:
    joined = most_specific(op.operand_types)
    element = element_of(joined)
    assert isinstance(element, ElementType)
    return [with_element(joined, element.complex)]


COMPARE = define(
    "stablehlo.compare",
    operands=[operand("lhs"), operand("rhs")],
    attributes=comparison_attributes("stablehlo"),
    results=[result("result", type_sets.PREDICATE)],
    assembly="$comparison_direction `,` $lhs `,` $rhs (`,` $compare_type^)? " + TYPED,
    traits=_ELEMENTWISE,
)

COMPARE.constraint("C1", "baseline_element_type(lhs) = baseline_element_type(rhs)")(
    lambda op: same_elements(*op.operand_types)
)
COMPARE.constraint("C2", "shape(lhs) = shape(rhs) = shape(result)")(lambda op: same_shape(*op.operand_types))
_COMPARE_TYPES = {
    "signed": ("SIGNED",),
    "unsigned": ("UNSIGNED",),
    "i1": ("UNSIGNED",),
    "float": ("FLOAT", "TOTALORDER"),
    "complex": ("FLOAT",),
}


@COMPARE.constraint("C3", "compare_type must match the element type", advisory=True)
def _(op: Op) -> str | None:
    compare_type, element = op["compare_type"], element_of(op.operands[0].type)
    allowed = _COMPARE_TYPES.get(type_sets.element_kind(element))
    if compare_type in (None, "NOTYPE") or allowed is None or compare_type in allowed:
        return None
    return f"{compare_type} for {element}"


@COMPARE.infers("C2", "shape(lhs) = shape(rhs) = shape(result)")
def _(op: Op) -> list[Type]:
    lhs, rhs = op.operand_types
    return [most_specific([with_element(lhs, I1), with_element(rhs, I1)])]


SELECT = define(
    "stablehlo.select",
    operands=[operand("pred", type_sets.PREDICATE), operand("on_true"), operand("on_false")],
    results=[result("result")],
    assembly="operands attr-dict `:` custom<SelectOpType>(type($pred), type($on_true), type($on_false), type($result))",
    traits=_ELEMENTWISE,
)

SELECT.constraint("C2", "baseline_type(on_true) = baseline_type(on_false) = baseline_type(result)")(
    lambda op: same_types(op.operands[1].type, op.operands[2].type)
)
SELECT.constraint("C1", "rank(pred) = 0 or shape(pred) = shape(on_true)")(
    lambda op: same_shape(*op.operand_types) if op.operands[0].tensor.rank else None
)
SELECT.infers("C2", "baseline_type(on_true) = baseline_type(on_false) = baseline_type(result)")(
    lambda op: [most_specific(op.operand_types[1:])]
)

CLAMP = define(
    "stablehlo.clamp",
    operands=[operand("min"), operand("operand"), operand("max")],
    results=[result("result")],
    assembly="$min `,` $operand `,` $max " + one_type("min", "operand", "max", "result"),
    traits=_ELEMENTWISE,
)

for _label, _index, _name in (("C1", 0, "min"), ("C2", 2, "max")):

    def _limit_shape(op: Op, index: int = _index) -> str | None:
        limit = op.operands[index].tensor
        return same_shape(limit, op.operands[1].type) if limit.rank else None

    CLAMP.constraint(_label, f"rank({_name}) = 0 or shape({_name}) = shape(operand)")(_limit_shape)
CLAMP.constraint("C3", "min, operand and max must have one baseline_element_type")(
    lambda op: same_elements(*op.operand_types)
)
CLAMP.infers("C4", "baseline_type(operand) = baseline_type(result)")(lambda op: [op.operands[1].type])

REDUCE_PRECISION = define(
    "stablehlo.reduce_precision",
    operands=[operand("operand", type_sets.FLOAT_OR_QUANTIZED)],
    attributes=[attribute("exponent_bits", kinds.I32), attribute("mantissa_bits", kinds.I32)],
    results=[result("output", type_sets.FLOAT_OR_QUANTIZED)],
    assembly="$operand `,` `format` `=` custom<ExponentMantissa>($exponent_bits, $mantissa_bits) "
    + one_type("operand", "output"),
    traits=(*_ELEMENTWISE, Trait.SAME_TYPE),
)

REDUCE_PRECISION.constraint("C2", "1 <= exponent_bits")(lambda op: at_least(op["exponent_bits"], 1))
REDUCE_PRECISION.constraint("C3", "0 <= mantissa_bits")(lambda op: at_least(op["mantissa_bits"], 0))
REDUCE_PRECISION.infers("C1", "baseline_type(operand) = baseline_type(output)")(lambda op: [op.operands[0].type])

BITCAST_CONVERT = define_unary(
    "stablehlo.bitcast_convert",
    "operands " + TYPED,
    types=type_sets.TENSOR_OR_PER_AXIS,
)


@BITCAST_CONVERT.constraint("C2", "operand and result must both be complex, or neither", on_results=True)
def _(op: Op) -> str | None:
    elements = element_of(op.operands[0].type), element_of(op.result.type)
    complex_ones = [isinstance(element, ElementType) and element.is_complex for element in elements]
    return None if complex_ones[0] == complex_ones[1] else listed(elements)


@BITCAST_CONVERT.constraint(
    "C1", "shapes agree but for a last dimension that splits the wider elements into the narrower", on_results=True
)
def _(op: Op) -> str | None:
    wide, narrow = sorted(
        (op.operands[0].tensor, op.result.tensor), key=lambda type: bits_of(type.element_type), reverse=True
    )
    wide_bits, narrow_bits = bits_of(wide.element_type), bits_of(narrow.element_type)
    shape = narrow.shape
    if wide_bits != narrow_bits:
        last = shape[-1] if shape else None
        if not shape or (last is not None and last * narrow_bits != wide_bits):
            return listed((op.operands[0].type, op.result.type))
        shape = shape[:-1]
    if len(shape) == wide.rank and all(map(compatible_dims, shape, wide.shape)):
        return None
    return listed((op.operands[0].type, op.result.type))
