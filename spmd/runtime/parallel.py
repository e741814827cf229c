"""Every process of a grid in this Python process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from collectives.errors import CollectiveError as TransportError
from collectives.grid import ProcessGrid
from collectives.threads import ThreadCommunicator, run
from spmd.backends.numpy.communication import connect, endpoints
from spmd.errors import CollectiveError, CompileError, ExecutionError
from spmd.ir import Module
from spmd.runtime.agreement import course, disagreement
from spmd.runtime.executable import Executable, grid_of
from spmd.runtime.process import Process
from spmd.runtime.streams import InfeedSource, OutfeedFile, OutfeedTarget, infeed_from, outfeed_to

Array = npt.NDArray[Any]
Programs = Module | Executable | Sequence[Sequence[Module | Executable]]


def run_parallel(
    module: Programs,
    grid: ProcessGrid | None = None,
    inputs: Sequence[Sequence[Any]] = (),
    function: str = "main",
    *,
    infeed: Sequence[InfeedSource | None] | None = None,
    outfeed: Sequence[OutfeedTarget | None] | None = None,
    timeout: float = 60.0,
    abort: bool = False,
    **options: Any,
) -> list[tuple[Any, ...]]:
    """Runs `function` of `module` as every process of `grid`, each a thread.

    `module` may be rows (replicas) of columns (partitions) of modules: different programs. `inputs` has an entry a
    process in rank order, each a sequence of arrays; none at all for programs without arguments. `infeed` and
    `outfeed` have an entry a process (see spmd.runtime.streams). A process that waits longer than `timeout` seconds is
    reported, and with `abort` ends the run. `options` are those of spmd.compile. Returns a tuple of arrays a process,
    in rank order. The first error of any process ends all of them and is raised.
    """
    table = _table(module, grid)
    grid = grid or _grid_of(module, table)
    if [len(row) for row in table] != [grid.num_partitions] * grid.num_replicas:
        raise CompileError(f"programs come in rows of {[len(row) for row in table]}, the process grid is {grid}")
    executables = _compiled([program for row in table for program in row], grid, function, options)
    if len({id(executable) for executable in executables}) > 1:
        _check_agreement(executables)
    given = inputs or [()] * grid.size
    for name, entries in (("inputs", given), ("infeed", infeed), ("outfeed", outfeed)):
        if entries is not None and len(entries) != grid.size:
            raise ExecutionError(f"{name} has {len(entries)} entries, a {grid} process grid has {grid.size} processes")
    infeeds = [infeed_from(source) for source in infeed or [None] * grid.size]
    outfeeds = [outfeed_to(target) for target in outfeed or [None] * grid.size]
    ends = [endpoints(executable.module, executable.function) for executable in executables]
    sends, receives = [end[0] for end in ends], [end[1] for end in ends]

    def process(communicator: ThreadCommunicator) -> tuple[Any, ...]:
        rank = communicator.rank
        me = Process(grid, communicator, infeed=infeeds[rank], outfeed=outfeeds[rank])
        if sends[rank] or receives[rank]:
            connect(me, sends, receives)
        return executables[rank].run(me, given[rank])

    try:
        return run(grid.size, process, timeout=timeout, abort=abort)
    except TransportError as error:
        raise error if isinstance(error, CollectiveError) else CollectiveError(str(error)) from error
    finally:
        for stream in outfeeds:
            if isinstance(stream, OutfeedFile):
                stream.close()


def _table(module: Programs, grid: ProcessGrid | None) -> Sequence[Sequence[Module | Executable]]:
    if not isinstance(module, Module | Executable):
        return module
    chosen = grid or _grid_of(module, ())
    return [[module] * chosen.num_partitions for _ in range(chosen.num_replicas)]


def _grid_of(module: Programs, table: Sequence[Sequence[Any]]) -> ProcessGrid:
    if isinstance(module, Executable):
        return module.grid
    return grid_of(module) if isinstance(module, Module) else ProcessGrid(len(table), len(table[0]))


def _check_agreement(executables: Sequence[Executable]) -> None:
    """CollectiveError when the texts of different programs show that their processes will not meet."""
    from spmd.compiler.lower import Lowering

    courses = []
    for rank, executable in enumerate(executables):
        function = executable.module.function(executable.function)
        courses.append(course(Lowering(executable.module, executable.options), function, rank))
    fault = disagreement(courses)
    if fault is not None:
        raise CollectiveError(fault)


def _compiled(
    programs: Sequence[Module | Executable], grid: ProcessGrid, function: str, options: dict[str, Any]
) -> list[Executable]:
    from spmd.compiler.compile import compile

    if len({id(program) for program in programs}) > 1:
        # What is combined depends on what lies between, which may differ from program to program.
        options = {"combine_threshold": 0, **options}
    made: dict[int, Executable] = {}
    for program in programs:
        if isinstance(program, Executable):
            if program.grid != grid:
                raise CompileError(f"the executable is for a {program.grid} process grid, not {grid}")
            made[id(program)] = program
        elif id(program) not in made:
            made[id(program)] = compile(program, grid, function, **options)
    return [made[id(program)] for program in programs]
