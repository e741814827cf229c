"""Programs that start processes themselves: each started function becomes the program of one process.

Source: StableHLO's interpreter dialect, `interpreter.run_parallel`: rows of `programs` are replicas, columns
partitions. Inputs and results of a started function are those of its process: blocks if sharded, else global arrays.
"""

from __future__ import annotations

from collections.abc import Iterator

from collectives.grid import ProcessGrid
from partitioner.core import called_functions
from partitioner.partition import partition
from spmd.analysis.shardings import has_sharding
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Function, Module, Op

_STARTING = "interpreter.run_parallel"


def starts_processes(module: Module, function: str) -> bool:
    """Return whether `function` has no shardings and starts processes."""
    entry = next((launched for launched in module.functions if launched.symbol == function), None)
    if entry is None or any(map(has_sharding, entry.walk())):
        return False
    return any(op.name == _STARTING for op in entry.walk())


def with_parts(module: Module, function: str) -> Module:
    """Return `module` with the sharded functions that `function` starts replaced by the programs of one process.

    Raises CompileError for a function that is started on different grids, or on one that its mesh does not fit.
    """
    functions: dict[str, Op] = {}
    grids: dict[str, ProcessGrid] = {}
    for op, symbol, grid in _started(module.function(function)):
        if grids.setdefault(symbol, grid) != grid:
            text = f"@{symbol} must be started on one process grid, got {grids[symbol]} and {grid}"
            raise CompileError(Diagnostic(op.location, text, op.name))
        started = module.symbols.get(symbol)
        if symbol in functions or not isinstance(started, Function) or not _is_sharded(module, started):
            continue
        parts = partition(module, grid, symbol, whole_boundary=True)
        functions.update((part.symbol, part) for part in parts.module.functions)
    ops = [functions.get(op.symbol, op) if isinstance(op, Function) else op for op in module.body.ops]
    return module.with_ops(ops)


def _started(function: Function) -> Iterator[tuple[Op, str, ProcessGrid]]:
    for op in function.walk():
        if op.name == _STARTING:
            table = op["programs"]
            if table and table[0]:
                grid = ProcessGrid(len(table), len(table[0]))
                yield from ((op, str(getattr(name, "root", name)), grid) for row in table for name in row)


def _is_sharded(module: Module, function: Function) -> bool:
    reached = (function, *called_functions(module, [function]))
    return any(has_sharding(op) for root in reached for op in root.walk())
