"""Ops of conformance files: checks of results, and programs run on a grid of processes.

Source: StableHLO's check and interpreter dialects.
"""

from __future__ import annotations

from collections.abc import Sequence

from spmd.dialects import kinds, type_sets
from spmd.dialects.checks import dims, equal, listed, same_types
from spmd.dialects.core import Lookup, Trait, attribute, define, operand, result
from spmd.ir import Function, Op
from spmd.types import QuantizedType, TensorType

_SYMBOLS = kinds.array_of(kinds.SYMBOL)
_ULPS = kinds.either(kinds.I64, kinds.I32, kinds.UI64)

EXPECT_EQ = define(
    "check.expect_eq",
    operands=[operand("lhs", type_sets.TENSOR_OR_PER_AXIS), operand("rhs", type_sets.TENSOR_OR_PER_AXIS)],
    assembly="$lhs `,` $rhs attr-dict `:` type($lhs)",
)

EXPECT_EQ_CONST = define(
    "check.expect_eq_const",
    operands=[operand("lhs", type_sets.TENSOR_OR_PER_AXIS)],
    attributes=[attribute("value", kinds.ELEMENTS)],
    assembly="$lhs `,` $value attr-dict",
)

EXPECT_ALMOST_EQ = define(
    "check.expect_almost_eq",
    operands=[operand("lhs", type_sets.TENSOR_OR_PER_AXIS), operand("rhs", type_sets.TENSOR_OR_PER_AXIS)],
    attributes=[attribute("tolerance", kinds.F64, default=0.001)],
    assembly="$lhs `,` $rhs (`,` `tolerance` `=` $tolerance^)? attr-dict `:` type($lhs)",
)

EXPECT_ALMOST_EQ_CONST = define(
    "check.expect_almost_eq_const",
    operands=[operand("lhs", type_sets.TENSOR_OR_PER_AXIS)],
    attributes=[attribute("value", kinds.ELEMENTS), attribute("tolerance", kinds.F64, default=0.001)],
    assembly="$lhs `,` $value (`,` `tolerance` `=` $tolerance^)? attr-dict",
)

EXPECT_CLOSE = define(
    "check.expect_close",
    operands=[operand("actual", type_sets.TENSOR_OR_PER_AXIS), operand("expected", type_sets.TENSOR_OR_PER_AXIS)],
    attributes=[
        attribute("max_ulp_difference", _ULPS, default=3),
        attribute("min_ulp_difference", _ULPS, default=0),
    ],
    assembly="$actual `,` $expected (`,` `max_ulp_difference` `=` $max_ulp_difference^)? "
    "(`,` `min_ulp_difference` `=` $min_ulp_difference^)? attr-dict `:` type($actual) `,` type($expected)",
)

EXPECT_SERIALIZED_EQ = define(
    "check.expect_serialized_eq",
    operands=[operand("expected", type_sets.TENSOR_OR_PER_AXIS)],
    attributes=[
        attribute("probe_id", kinds.STRING),
        attribute("iteration", kinds.either(kinds.UI32, kinds.I32, kinds.I64), default=0),
    ],
    assembly="$expected `,` `probe_id` `=` $probe_id (`,` `iter` `=` $iteration^)? attr-dict `:` type($expected)",
)

for _pair in (EXPECT_EQ, EXPECT_ALMOST_EQ, EXPECT_CLOSE):
    _pair.constraint("", "both operands must have one type")(lambda op: same_types(*op.operand_types))


def _stored(type: TensorType) -> TensorType:
    element = type.element_type
    return type.with_element_type(element.storage) if isinstance(element, QuantizedType) else type


for _const in (EXPECT_EQ_CONST, EXPECT_ALMOST_EQ_CONST):

    @_const.constraint("", "the operand must have the type of the constant")
    def _(op: Op) -> str | None:
        operand, value = op.operands[0].tensor, op["value"].type
        return same_types(operand, value) and same_types(_stored(operand), value)


RUN_PARALLEL = define(
    "interpreter.run_parallel",
    operands=[operand("inputs", type_sets.TENSOR_OR_TOKEN, variadic=True)],
    attributes=[
        attribute("infeed", _SYMBOLS, optional=True),
        attribute("programs", kinds.array_of(_SYMBOLS)),
    ],
    results=[result("results", type_sets.TENSOR_OR_TOKEN, variadic=True)],
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
    traits=[Trait.SAME_TYPE],
)

PROBE.infer(lambda op: [op.operands[0].type])


@RUN_PARALLEL.constraint("", "programs must be a grid with a row for each replica")
def _(op: Op) -> str | None:
    lengths = [len(row) for row in op["programs"]]
    return None if len(set(lengths)) == 1 and lengths[0] else dims(lengths)


@RUN_PARALLEL.constraint("", "infeed must be absent rather than empty")
def _(op: Op) -> str | None:
    return "[]" if op["infeed"] == () else None


def _functions(names: Sequence[str], lookup: Lookup) -> list[Function]:
    return [function for name in names if isinstance(function := lookup(name), Function)]


def _programs(op: Op) -> list[str]:
    return [name for row in op["programs"] for name in row]


@RUN_PARALLEL.symbol_constraint("", "programs and infeed must be functions of the module")
def _(op: Op, lookup: Lookup) -> str | None:
    names = [*_programs(op), *(op["infeed"] or ())]
    missing = [f"@{name}" for name in names if not isinstance(lookup(name), Function)]
    return f"no function {listed(missing)}" if missing else None


@RUN_PARALLEL.symbol_constraint("", "the numbers of inputs and results must match those of the programs")
def _(op: Op, lookup: Lookup) -> str | None:
    functions = _functions(_programs(op), lookup)
    taken = equal(len(op.operands), sum(len(function.type.inputs) for function in functions))
    return taken or equal(len(op.results), sum(len(function.type.results) for function in functions))


@RUN_PARALLEL.symbol_constraint("", "each function of infeed must return one tensor")
def _(op: Op, lookup: Lookup) -> str | None:
    for function in _functions(op["infeed"] or (), lookup):
        results = function.type.results
        if len(results) != 1 or not isinstance(results[0], TensorType):
            return f"({listed(results)}) from @{function.symbol}"
    return None
