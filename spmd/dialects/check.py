"""The ops of conformance files: checks of results, and programs run as a grid of processes.

Source: StableHLO's check and interpreter dialects.
"""

from __future__ import annotations

from spmd.dialects import kinds
from spmd.dialects.core import attribute, define, operand, result

_SYMBOLS = kinds.array_of(kinds.SYMBOL)
_ULPS = kinds.either(kinds.I64, kinds.I32, kinds.UI64)

EXPECT_EQ = define(
    "check.expect_eq",
    operands=[operand("lhs", kinds.TENSOR_OR_PER_AXIS), operand("rhs", kinds.TENSOR_OR_PER_AXIS)],
    assembly="$lhs `,` $rhs attr-dict `:` type($lhs)",
)

EXPECT_EQ_CONST = define(
    "check.expect_eq_const",
    operands=[operand("lhs", kinds.TENSOR_OR_PER_AXIS)],
    attributes=[attribute("value", kinds.ELEMENTS)],
    assembly="$lhs `,` $value attr-dict",
)

EXPECT_ALMOST_EQ = define(
    "check.expect_almost_eq",
    operands=[operand("lhs", kinds.TENSOR_OR_PER_AXIS), operand("rhs", kinds.TENSOR_OR_PER_AXIS)],
    attributes=[attribute("tolerance", kinds.F64, default=0.001)],
    assembly="$lhs `,` $rhs attr-dict `:` type($lhs)",
)

EXPECT_ALMOST_EQ_CONST = define(
    "check.expect_almost_eq_const",
    operands=[operand("lhs", kinds.TENSOR_OR_PER_AXIS)],
    attributes=[attribute("value", kinds.ELEMENTS), attribute("tolerance", kinds.F64, default=0.001)],
    assembly="$lhs `,` $value attr-dict",
)

EXPECT_CLOSE = define(
    "check.expect_close",
    operands=[operand("actual", kinds.TENSOR_OR_PER_AXIS), operand("expected", kinds.TENSOR_OR_PER_AXIS)],
    attributes=[
        attribute("max_ulp_difference", _ULPS, default=3),
        attribute("min_ulp_difference", _ULPS, default=0),
    ],
    assembly="$actual `,` $expected (`,` `max_ulp_difference` `=` $max_ulp_difference^)? "
    "(`,` `min_ulp_difference` `=` $min_ulp_difference^)? attr-dict `:` type($actual) `,` type($expected)",
)

EXPECT_SERIALIZED_EQ = define(
    "check.expect_serialized_eq",
    operands=[operand("expected", kinds.TENSOR_OR_PER_AXIS)],
    attributes=[
        attribute("probe_id", kinds.STRING),
        attribute("iteration", kinds.either(kinds.UI32, kinds.I32, kinds.I64)),
    ],
    assembly="$expected `,` `probe_id` `=` $probe_id `,` `iteration` `=` $iteration attr-dict `:` type($expected)",
)

RUN_PARALLEL = define(
    "interpreter.run_parallel",
    operands=[operand("inputs", kinds.TENSOR_OR_TOKEN, variadic=True)],
    attributes=[
        attribute("infeed", _SYMBOLS, optional=True),
        attribute("programs", kinds.array_of(_SYMBOLS)),
    ],
    results=[result("results", kinds.TENSOR_OR_TOKEN, variadic=True)],
)

PRINT = define(
    "interpreter.print",
    operands=[operand("operand")],
    assembly="$operand attr-dict `:` type($operand)",
)

PROBE = define(
    "interpreter.probe",
    operands=[operand("operand")],
    attributes=[attribute("probe_id", kinds.STRING)],
    results=[result("result")],
    assembly="$operand `,` `probe_id` `=` $probe_id attr-dict `:` type($result)",
    traits=["same_type"],
)
