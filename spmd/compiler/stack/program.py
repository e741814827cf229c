"""Stacking as a pass: from the program of one process and a grid to the program of all processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from collectives.grid import ProcessGrid
from spmd.compiler.pipeline.options import Options
from spmd.compiler.pipeline.passes import expanded
from spmd.compiler.stack.chunks import write_in_chunks
from spmd.compiler.stack.core import StackedValue, Stacker, leaves, rebuilt
from spmd.compiler.stack.watched import mark_rows
from spmd.compiler.transforms.simplify import remove_dead
from spmd.dialects.make import make_function, make_op
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Block, Function, Module, Op, Value, captured_values
from spmd.types import FunctionType, TensorType


@dataclass(frozen=True)
class Stacked:
    """The program of all processes. `results`: which results have the leading axis.

    `serial`: the ops that it runs process by process.
    """

    module: Module
    function: Function
    results: tuple[bool, ...]
    serial: tuple[Op, ...]


def stack(
    module: Module,
    options: Options,
    function: str = "main",
    stacked: Sequence[bool] | None = None,
    memory: int | None = None,
    prefix: str = "each.",
) -> Stacked:
    """Return the program of all processes of the grid of `options`, from `function` of `module`, the program of one.

    `stacked` says for each argument whether it has the leading axis (default: all). Ops between communications run in
    chunks of processes if all would exceed `memory` bytes, including arguments and results. `prefix` is that of the
    names of added functions. CompileError for ops that cannot be stacked, CollectiveError for processes that would not
    meet.
    """
    entry = module.function(function)
    flat = expanded(module, entry, options)
    stacker = Stacker(module, options, prefix)
    stacker.location, stacker.name = flat.location, flat.name
    if options.watch is not None:
        stacker.after_op = mark_rows
    if memory is not None:
        stacker.write_block = partial(write_in_chunks, _left(memory, options.grid.size, flat))
    flags = [True] * len(flat.arguments) if stacked is None else list(stacked)
    types = [stacker.type_of(value.type, stacked=up) for value, up in zip(flat.arguments, flags, strict=True)]
    with stacker.block(types) as body:
        leaves_of = [stacker.unpacked(value, stacked=up) for value, up in zip(body.arguments, flags, strict=True)]
        trees = stacker.run(flat.body, leaves_of)
        ups = [any(leaf.stacked for leaf in leaves(tree)) for tree in trees]
        results: list[Value] = []
        for tree, up in zip(trees, ups, strict=True):
            parts = iter([StackedValue(stacker.stack(leaf), True) if up else leaf for leaf in leaves(tree)])
            results.append(stacker.packed(rebuilt(tree, parts)))
        body.ops.append(make_op("func.return", results, location=flat.location))
    for channel, queue in stacker.channels.items():
        for sent in queue:
            text = f"no process receives from channel {channel}"
            raise CompileError(Diagnostic(sent.op.location, text, sent.op.name))
    remove_dead(body)
    stacked_function = function_of(flat, body)
    return Stacked(
        module_of(module, stacked_function, stacker.functions), stacked_function, tuple(ups), tuple(stacker.serial)
    )


def _left(memory: int, size: int, flat: Function) -> int:
    """Return `memory` without arguments and results, but at least an eighth of it."""
    types = (*flat.type.inputs, *flat.type.results)
    held = size * sum(type.nbytes for type in types if isinstance(type, TensorType) and type.is_static)
    return max(memory - held, memory // 8)


def stack_region(module: Module, options: Options, op: Op, index: int, count: int) -> tuple[Module, Function]:
    """Return region `index` of `op`, on scalars, as a function of `count` elements at once, and its module.

    It takes the region's arguments, each tensor<count x ...>, then the captured values of `op`, unstacked; it returns
    the region's results, each tensor<count x ...>.
    """
    prefix = "element."
    while any(symbol.startswith(prefix) for symbol in module.symbols):
        prefix += "element."
    stacker = Stacker(module, replace(options, grid=ProcessGrid(count, 1)), prefix)
    stacker.location = op.location
    source, captured = op.regions[index].block, captured_values(op)
    types = [*(stacker.type_of(value.type) for value in source.arguments), *(value.type for value in captured)]
    arity = len(source.arguments)
    with stacker.block(types) as body:
        outer = zip(captured, map(StackedValue, body.arguments[arity:]), strict=True)
        stacker.trees.update(outer)
        trees = stacker.run(source, [StackedValue(value, True) for value in body.arguments[:arity]])
        results = [stacker.stack(leaf) for tree in trees for leaf in leaves(tree)]
        body.ops.append(make_op("func.return", results, location=op.location))
    function = make_function(stacker.new_symbol(op), body, location=op.location)
    return module_of(module, function, stacker.functions), function


def function_of(flat: Function, body: Block) -> Function:
    """Return `flat` with another body, whose signature it takes over."""
    inputs = tuple(value.type for value in body.arguments)
    results = tuple(value.type for value in body.terminator.operands)
    attributes = {name: value for name, value in flat.attributes.items() if name not in ("arg_attrs", "res_attrs")} | {
        "function_type": FunctionType(inputs, results)
    }
    for old, new in zip(flat.arguments, body.arguments, strict=False):
        new.name_hint = old.name_hint
    function = flat.with_body(body, attributes)
    function.discardable = {}
    return function


def module_of(module: Module, function: Function, added: Sequence[Function]) -> Module:
    """Return the module of the stacked function with all functions it references, from `added` or `module`."""
    named = _named({**module.symbols, **{each.symbol: each for each in added}}, function)
    kept = {
        name: value
        for name, value in module.discardable.items()
        if name not in ("mhlo.num_replicas", "mhlo.num_partitions")
    }
    return module.with_ops([function, *named], kept)


def _named(symbols: Mapping[str, Op], function: Function) -> list[Op]:
    ops: dict[str, Op] = {}
    pending: list[Op] = [function]
    while pending:
        for op in pending.pop().walk():
            for name in _symbols(op):
                if name in symbols and name not in ops and name != function.symbol:
                    ops[name] = symbols[name]
                    pending.append(symbols[name])
    return list(ops.values())


def _symbols(op: Op) -> list[str]:
    if op.name == "stablehlo.custom_call":
        return [str(getattr(symbol, "root", symbol)) for symbol in op["called_computations"] or ()]
    return [str(op[name]) for name in ("callee", "decomposition") if name in op.attributes]
