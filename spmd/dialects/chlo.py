"""The client dialect: ops with implicit broadcasting, special functions, and what JAX lowers as one op.

Source: StableHLO's CHLO dialect (docs/generated/chlo.md).
"""

from __future__ import annotations

from spmd.dialects import kinds
from spmd.dialects.core import OpDef, attribute, define, operand, region, result
from spmd.dialects.kinds import TypeSet, tensor_of_kinds
from spmd.dialects.structs import RaggedDotDimensionNumbers

_FLOAT = tensor_of_kinds("float", unranked=True)
_FLOAT_OR_COMPLEX = tensor_of_kinds("float", "complex", unranked=True)
_COMPLEX = tensor_of_kinds("complex", unranked=True)
_PREDICATE = tensor_of_kinds("i1", unranked=True)
_PREDICATE_OR_INTEGER = tensor_of_kinds("i1", "signed", "unsigned", unranked=True)
_BROADCAST_DIMENSIONS = attribute("broadcast_dimensions", kinds.I64_ARRAY, optional=True)
_BROADCAST_FORM = "$lhs `,` $rhs attr-dict `:` `(` type($lhs) `,` type($rhs) `)` `->` type(results)"
_PRECISION_CONFIG = kinds.array_of(kinds.enum("chlo", "precision", "DEFAULT", "HIGH", "HIGHEST"))


def _broadcast(
    name: str, types: TypeSet = kinds.ANY_TENSOR, results: TypeSet | None = None, *, commutative: bool = False
) -> OpDef:
    return define(
        f"chlo.broadcast_{name}",
        operands=[operand("lhs", types), operand("rhs", types)],
        attributes=[_BROADCAST_DIMENSIONS],
        results=[result("result", results or types)],
        assembly=_BROADCAST_FORM,
        traits=["pure", *(["commutative"] if commutative else [])],
    )


def _unary(name: str, types: TypeSet, results: TypeSet | None = None) -> OpDef:
    return define(
        f"chlo.{name}",
        operands=[operand("operand", types)],
        results=[result("result", results or types)],
        assembly="$operand attr-dict `:` type($operand) `->` type($result)",
        traits=["pure", "elementwise", *([] if results else ["same_type"])],
    )


def _binary(name: str, first: str, second: str, types: TypeSet, *, commutative: bool = False) -> OpDef:
    return define(
        f"chlo.{name}",
        operands=[operand(first, types), operand(second, types)],
        results=[result("result", types)],
        assembly=f"${first} `,` ${second} attr-dict `:` type(${first}) `,` type(${second}) `->` type($result)",
        traits=["pure", "elementwise", "same_type", *(["commutative"] if commutative else [])],
    )


for _name in ("add", "maximum", "minimum", "multiply"):
    _broadcast(_name, commutative=True)
for _name in (
    "atan2", "divide", "next_after", "polygamma", "power", "remainder", "shift_left", "shift_right_arithmetic",
    "shift_right_logical", "subtract",
):  # fmt: skip
    _broadcast(_name)
_broadcast("zeta", _FLOAT)
for _name in ("and", "or", "xor"):
    _broadcast(_name, _PREDICATE_OR_INTEGER, commutative=True)
BROADCAST_COMPLEX = _broadcast("complex", _FLOAT, _COMPLEX)

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
_binary("mulhi", "lhs", "rhs", kinds.INTEGER, commutative=True)

BROADCAST_COMPARE = define(
    "chlo.broadcast_compare",
    operands=[operand("lhs", kinds.ANY_TENSOR), operand("rhs", kinds.ANY_TENSOR)],
    attributes=[
        _BROADCAST_DIMENSIONS,
        attribute(
            "comparison_direction", kinds.enum("chlo", "comparison_direction", "EQ", "NE", "GE", "GT", "LE", "LT")
        ),
        attribute(
            "compare_type",
            kinds.enum("chlo", "comparison_type", "NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"),
            optional=True,
        ),
    ],
    results=[result("result", _PREDICATE)],
    assembly=_BROADCAST_FORM,
    traits=["pure"],
)

BROADCAST_SELECT = define(
    "chlo.broadcast_select",
    operands=[
        operand("pred", kinds.PREDICATE),
        operand("on_true", kinds.ANY_TENSOR),
        operand("on_false", kinds.ANY_TENSOR),
    ],
    results=[result("result", kinds.ANY_TENSOR)],
    assembly="$pred `,` $on_true `,` $on_false attr-dict `:` "
    "`(` type($pred) `,` type($on_true) `,` type($on_false) `)` `->` type(results)",
    traits=["pure"],
)

CONSTANT = define(
    "chlo.constant",
    attributes=[attribute("value", kinds.ELEMENTS)],
    results=[result("output", kinds.STATIC_TENSOR)],
    assembly="attr-dict $value",
    traits=["pure"],
)

CONSTANT_LIKE = define(
    "chlo.constant_like",
    operands=[operand("operand", kinds.ANY_TENSOR)],
    attributes=[attribute("value", kinds.ANY)],
    results=[result("result", kinds.ANY_TENSOR)],
    traits=["pure"],
)

RAGGED_DOT = define(
    "chlo.ragged_dot",
    operands=[
        operand("lhs", kinds.ANY_TENSOR),
        operand("rhs", kinds.ANY_TENSOR),
        operand("group_sizes", kinds.INTEGER),
    ],
    attributes=[
        attribute("ragged_dot_dimension_numbers", kinds.struct(RaggedDotDimensionNumbers)),
        attribute("precision_config", _PRECISION_CONFIG, optional=True),
    ],
    results=[result("result", kinds.ANY_TENSOR)],
    traits=["pure"],
)

TOP_K = define(
    "chlo.top_k",
    operands=[operand("operand", kinds.ANY_TENSOR)],
    attributes=[attribute("k", kinds.I64), attribute("is_stable", kinds.BOOL, default=True)],
    results=[result("values", kinds.ANY_TENSOR), result("indices", kinds.ANY_TENSOR)],
    assembly="`(` $operand `,` `k` `=` $k (`,` `is_stable` `=` $is_stable^)? `)` attr-dict `:` "
    "type($operand) `->` `(` type($values) `,` type($indices) `)`",
    traits=["pure"],
)

SCAN = define(
    "chlo.scan",
    operands=[operand("inputs", kinds.ANY_TENSOR, variadic=True), operand("inits", kinds.ANY_TENSOR, variadic=True)],
    attributes=[
        attribute("dimension", kinds.I64),
        attribute("scan_dim_size", kinds.I64, optional=True),
        attribute("is_reverse", kinds.BOOL, default=False),
        attribute("is_associative", kinds.BOOL, optional=True),
        attribute("operandSegmentSizes", kinds.I32_ARRAY),
        attribute("resultSegmentSizes", kinds.I32_ARRAY),
    ],
    results=[result("outputs", kinds.ANY_TENSOR, variadic=True), result("carries", kinds.ANY_TENSOR, variadic=True)],
    regions=[region("body")],
    assembly="custom<Scan>",
    traits=["isolated", "recursive"],
)
