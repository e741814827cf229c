"""The start of compilation: selects, checks and partitions the entry function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from collectives.grid import ProcessGrid
from spmd.analysis.grid import grid_of
from spmd.analysis.shardings import is_sharded
from spmd.compiler.pipeline.options import CompileOptions, Options, chosen_options
from spmd.compiler.pipeline.verify import check_meaning
from spmd.dialects.type_rules import array_fault
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Function, Module
from spmd.support.usage import check_function, check_grid, check_module
from spmd.types import MOST_PARTS

if TYPE_CHECKING:
    from partitioner.record import PartitionRecord
    from partitioner.sharding import ShardedType


@dataclass(frozen=True)
class Prepared:
    """The program of one process, before lowering. `notes`: ops that partitioning could not split."""

    module: Module
    function: Function
    options: Options
    in_shardings: Sequence[ShardedType] | None = None
    out_shardings: Sequence[ShardedType] | None = None
    notes: Sequence[str] = ()


def prepare(
    module: Module,
    grid: ProcessGrid | None = None,
    function: str = "main",
    *,
    partition: bool = True,
    even_boundary: bool = False,
    record: PartitionRecord | None = None,
    **options: Unpack[CompileOptions],
) -> Prepared:
    """Return the program of one process of `grid`, partitioned if the module has shardings.

    `record` receives the decisions of partitioning; `even_boundary` is its option. UsageError for invalid arguments,
    CompileError if the program cannot be compiled.
    """
    check_module(module, "spmd.compile")
    check_grid(grid, "spmd.compile")
    check_function(function, "spmd.compile")
    entry = find_function(module, function)
    if grid is None:
        grid = declared_grid(module, function) if partition else grid_of(module)
    chosen = chosen_options(grid, options)
    check_meaning(module)
    if partition and is_sharded(module):
        import partitioner  # loaded late: who asks for none has none loaded

        if partitioner.starts_processes(module, function):
            module = partitioner.with_parts(module, function)
            entry = find_function(module, function)
        else:
            split = partitioner.partition(module, chosen.grid, function, even_boundary=even_boundary, record=record)
            entry = find_function(split.module, function)
            return Prepared(split.module, entry, chosen, split.in_shardings, split.out_shardings, split.notes)
    return Prepared(module, entry, chosen)


def declared_grid(module: Module, function: str = "main") -> ProcessGrid:
    """Return the default grid of `function`: the module's own, or one process per device of its mesh.

    The module's own is `mhlo.num_replicas` by `mhlo.num_partitions`, if that is more than one process.
    """
    grid = grid_of(module)
    if grid.size > 1 or not is_sharded(module):
        return grid
    import partitioner  # loaded late, as above

    return grid if partitioner.starts_processes(module, function) else partitioner.grid_of_mesh(module, function)


def _check_types(function: Function) -> None:
    """Raise CompileError for arguments or results with too many tuple elements, or of types that no array holds."""
    for kind, types in (("argument", function.type.inputs), ("result", function.type.results)):
        for index, type in enumerate(types):
            if type.parts > MOST_PARTS:
                text = f"{kind} {index} of @{function.symbol} is {type}; at most {MOST_PARTS:,} are supported"
                raise CompileError(Diagnostic(function.location, text, function.name))
            if (fault := array_fault(type)) is not None:
                text = f"{kind} {index} of @{function.symbol} is {type}: {fault}"
                raise CompileError(Diagnostic(function.location, text, function.name))


def find_function(module: Module, name: str) -> Function:
    """Return the function `name`, which must have a body; CompileError otherwise, listing the functions there are."""
    for function in module.functions:
        if function.symbol == name and not function.is_declaration:
            _check_types(function)
            return function
    known = ", ".join("@" + function.symbol for function in module.functions) or "none"
    raise CompileError(Diagnostic(module.location, f"no function @{name} to compile; functions here: {known}"))
