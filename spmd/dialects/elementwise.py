"""Ops that work element by element. Source: StableHLO specification, the op of each name."""

from __future__ import annotations

from collections.abc import Iterable

from spmd.dialects import kinds
from spmd.dialects.core import OpDef, attribute, define, operand, result
from spmd.dialects.forms import TYPED, same_types
from spmd.dialects.kinds import TypeSet, tensor_of_kinds, tensor_of_types
from spmd.dialects.structs import ResultAccuracy
from spmd.types import F32, F64

_ELEMENTWISE = ("pure", "elementwise")
_SIGNED_NUMBER = tensor_of_kinds("signed", "float", "complex", "quantized")
_NUMBER = tensor_of_kinds("signed", "unsigned", "float", "complex", "quantized")


def unary(
    name: str, types: TypeSet, results: TypeSet | None = None, *, accuracy: bool = False, traits: Iterable[str] = ()
) -> OpDef:
    """A unary elementwise op; `accuracy` for those that take `result_accuracy`."""
    return define(
        f"stablehlo.{name}",
        operands=[operand("operand", types)],
        attributes=[attribute("result_accuracy", kinds.struct(ResultAccuracy), default=ResultAccuracy())]
        if accuracy
        else [],
        results=[result("result", results or types)],
        assembly="$operand " + same_types("operand", "result"),
        traits=(*_ELEMENTWISE, *traits),
    )


def binary(name: str, types: TypeSet = kinds.TENSOR, *, commutative: bool = False) -> OpDef:
    """A binary elementwise op on two operands and a result of one type set."""
    return define(
        f"stablehlo.{name}",
        operands=[operand("lhs", types), operand("rhs", types)],
        results=[result("result", types)],
        assembly="$lhs `,` $rhs " + same_types("lhs", "rhs", "result"),
        traits=(*_ELEMENTWISE, "same_type", *(("commutative",) if commutative else ())),
    )


ABS = unary("abs", _SIGNED_NUMBER, tensor_of_kinds("signed", "float", "quantized"))
CONVERT = unary("convert", kinds.NON_QUANTIZED)
IMAG = unary("imag", kinds.FLOAT_OR_COMPLEX, kinds.FLOAT)
REAL = unary("real", kinds.FLOAT_OR_COMPLEX, kinds.FLOAT)

for _name in (
    "cbrt", "cosine", "exponential", "exponential_minus_one", "log", "log_plus_one", "logistic", "rsqrt", "sine",
    "sqrt", "tan", "tanh",
):  # fmt: skip
    unary(_name, kinds.FLOAT_COMPLEX_OR_QUANTIZED, accuracy=True, traits=["same_type"])
for _name in ("ceil", "floor", "round_nearest_afz", "round_nearest_even"):
    unary(_name, kinds.FLOAT_OR_QUANTIZED, traits=["same_type"])
for _name in ("count_leading_zeros", "popcnt"):
    unary(_name, kinds.INTEGER, traits=["same_type"])
unary("not", kinds.PREDICATE_OR_INTEGER, traits=["same_type"])
unary("negate", _NUMBER, traits=["same_type"])
unary("sign", _SIGNED_NUMBER, traits=["same_type"])

for _name in ("maximum", "minimum", "multiply"):
    binary(_name, commutative=True)
ADD = binary("add", kinds.TENSOR_OR_PER_AXIS, commutative=True)
for _name in ("and", "or", "xor"):
    binary(_name, kinds.PREDICATE_OR_INTEGER, commutative=True)
for _name in ("divide", "power", "remainder", "subtract"):
    binary(_name, _NUMBER)
for _name in ("shift_left", "shift_right_arithmetic", "shift_right_logical"):
    binary(_name, kinds.INTEGER)
binary("atan2", kinds.FLOAT_COMPLEX_OR_QUANTIZED)

IS_FINITE = define(
    "stablehlo.is_finite",
    operands=[operand("x", kinds.FLOAT_OR_QUANTIZED)],
    results=[result("y", kinds.PREDICATE)],
    assembly="operands " + TYPED,
    traits=_ELEMENTWISE,
)

COMPLEX = define(
    "stablehlo.complex",
    operands=[operand("lhs", tensor_of_types(F32, F64)), operand("rhs", tensor_of_types(F32, F64))],
    results=[result("result", tensor_of_kinds("complex"))],
    assembly="operands attr-dict `:` custom<ComplexOpType>(type($lhs), type($rhs), type($result))",
    traits=_ELEMENTWISE,
)

COMPARE = define(
    "stablehlo.compare",
    operands=[operand("lhs"), operand("rhs")],
    attributes=[
        attribute(
            "comparison_direction", kinds.enum("stablehlo", "comparison_direction", "EQ", "NE", "GE", "GT", "LE", "LT")
        ),
        attribute(
            "compare_type",
            kinds.enum("stablehlo", "comparison_type", "NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"),
            optional=True,
        ),
    ],
    results=[result("result", kinds.PREDICATE)],
    assembly="$comparison_direction `,` $lhs `,` $rhs (`,` $compare_type^)? " + TYPED,
    traits=_ELEMENTWISE,
)

SELECT = define(
    "stablehlo.select",
    operands=[operand("pred", kinds.PREDICATE), operand("on_true"), operand("on_false")],
    results=[result("result")],
    assembly="operands attr-dict `:` custom<SelectOpType>(type($pred), type($on_true), type($on_false), type($result))",
    traits=_ELEMENTWISE,
)

CLAMP = define(
    "stablehlo.clamp",
    operands=[operand("min"), operand("operand"), operand("max")],
    results=[result("result")],
    assembly="$min `,` $operand `,` $max " + same_types("min", "operand", "max", "result"),
    traits=_ELEMENTWISE,
)

REDUCE_PRECISION = define(
    "stablehlo.reduce_precision",
    operands=[operand("operand", kinds.FLOAT_OR_QUANTIZED)],
    attributes=[attribute("exponent_bits", kinds.I32), attribute("mantissa_bits", kinds.I32)],
    results=[result("output", kinds.FLOAT_OR_QUANTIZED)],
    assembly="$operand `,` `format` `=` custom<ExponentMantissa>($exponent_bits, $mantissa_bits) "
    + same_types("operand", "output"),
    traits=(*_ELEMENTWISE, "same_type"),
)

BITCAST_CONVERT = define(
    "stablehlo.bitcast_convert",
    operands=[operand("operand", kinds.TENSOR_OR_PER_AXIS)],
    results=[result("result", kinds.TENSOR_OR_PER_AXIS)],
    assembly="operands " + TYPED,
    traits=["pure"],
)
