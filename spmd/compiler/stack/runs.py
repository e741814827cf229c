"""Grids of processes that a program itself runs (`interpreter.run_parallel`), stacked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from collectives.grid import ProcessGrid
from spmd.compiler.pipeline.options import Options
from spmd.compiler.stack.program import stack
from spmd.compiler.stack.several import StackedPrograms, stack_several
from spmd.dialects.make import make_op
from spmd.dialects.op_builder import OpBuilder
from spmd.errors import SpmdError
from spmd.ir import AttributeValue, Function, Module, Op, Value
from spmd.types import TensorType, Type

RUN = "interpreter.run_parallel"
#: The call of a stacked function whose processes read one infeed: its function, then those of the infeed.
FED = "spmd.run_fed"


def stack_runs(module: Module, options: Options) -> tuple[Module, list[SpmdError]]:
    """Return `module` with each grid run as one stacked function, and the errors for those that cannot be."""
    refused: list[SpmdError] = []
    ops: list[Op] = []
    for op in module.body.ops:
        ops.append(_rewritten(module, options, op, ops, refused) if isinstance(op, Function) else op)
    return module.with_ops(ops), refused


def _rewritten(
    module: Module, options: Options, function: Function, added: list[Op], refused: list[SpmdError]
) -> Function:
    if function.is_declaration or not any(op.name == RUN for op in function.body.ops):
        return function
    writer, replaced, kept = OpBuilder(), dict[Value, Value](), set(module.body.ops)
    for op in function.body.ops:
        op.replace_operands(replaced)
        if op.name != RUN:
            writer.ops.append(op)
            continue
        try:
            stacked = _stacked(module, options, op, f"{function.symbol}.each.{len(added)}.")
        except SpmdError as error:
            refused.append(error)
            writer.ops.append(op)
            continue
        symbol = f"{stacked.function.symbol}.stacked.{len(added)}"
        stacked.function.attributes = {**stacked.function.attributes, "sym_name": symbol, "sym_visibility": "private"}
        added += [op for op in stacked.module.body.ops if op is stacked.function or op not in kept]
        replaced.update(zip(op.results, _called(writer, module, op, stacked, symbol), strict=True))
    function.body.ops = writer.ops
    return function


def _stacked(module: Module, options: Options, op: Op, prefix: str) -> StackedPrograms:
    table = op["programs"]
    symbols = [str(getattr(symbol, "root", symbol)) for row in table for symbol in row]
    of_grid = replace(options, grid=ProcessGrid(len(table), len(table[0])))
    different = list(dict.fromkeys(symbols))
    if len(different) > 1:
        program_of = [different.index(symbol) for symbol in symbols]
        return stack_several([(module, symbol) for symbol in different], program_of, of_grid, prefix)
    one = stack(module, of_grid, different[0], prefix=prefix)
    return StackedPrograms(one.module, one.function, (tuple(range(len(symbols))),), (one.results,), one.serial)


def _called(writer: OpBuilder, module: Module, op: Op, stacked: StackedPrograms, symbol: str) -> list[Value]:
    """Emit a call of the stacked function; return the results of all processes in rank order.

    Reads of a shared infeed are ordered as in the stacked program: ops in text order, and for one op processes in rank
    order.
    """
    writer.location = op.location
    functions = [module.function(str(getattr(each, "root", each))) for row in op["programs"] for each in row]
    operands, results = iter(op.operands), iter(op.results)
    arguments_of = [[next(operands) for _ in function.type.inputs] for function in functions]
    results_of = [[next(results) for _ in function.type.results] for function in functions]
    columns = [
        _joined(writer, column)
        for ranks in stacked.ranks
        for column in zip(*(arguments_of[rank] for rank in ranks), strict=True)
    ]
    types = [value.type for value in stacked.function.body.terminator.operands]
    call = _call(op, symbol, columns, types)
    writer.ops.append(call)
    whole, replaced = iter(call.results), dict[Value, Value]()
    for ranks, ups in zip(stacked.ranks, stacked.results, strict=True):
        for index, (value, up) in enumerate(zip((next(whole) for _ in ups), ups, strict=True)):
            for row, rank in enumerate(ranks):
                own = results_of[rank][index]
                part = writer.slice(value, 0, row, row + 1) if up else value
                replaced[own] = writer.one("reshape", [part], own.type) if up else value
    return [replaced[value] for value in op.results]


def _call(op: Op, symbol: str, columns: Sequence[Value], types: Sequence[Type]) -> Op:
    """Return the call of the stacked function, with the functions of its infeed, if any."""
    if not op["infeed"]:
        return make_op("func.call", columns, types, {"callee": symbol}, location=op.location)
    feeds = [str(getattr(each, "root", each)) for each in op["infeed"]]
    attributes: dict[str, AttributeValue] = {
        "call_target_name": FED,
        "called_computations": (symbol, *feeds),
        "has_side_effect": True,
        "api_version": 4,
    }
    return make_op("stablehlo.custom_call", columns, types, attributes, location=op.location)


def _joined(writer: OpBuilder, values: Sequence[Value]) -> Value:
    if not isinstance(values[0].type, TensorType):
        return values[0]  # a token orders the ops of one program
    rows = [writer.reshape(value, (1, *value.tensor.static_shape)) for value in values]
    return writer.concatenate(rows, 0)
