"""All processes of a grid in this Python process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Unpack

from collectives.errors import CommunicationError as TransportError
from collectives.grid import ProcessGrid
from collectives.threads import ThreadCommunicator, run
from spmd.compiler.pipeline.options import CompileOptions
from spmd.compiler.pipeline.prepare import declared_grid
from spmd.errors import CollectiveError, CompileError, UsageError
from spmd.ir import Module
from spmd.runtime.agreement import check_agreement, trace
from spmd.runtime.compile import compile
from spmd.runtime.endpoints import connect, endpoints
from spmd.runtime.executable import Executable
from spmd.runtime.process import Process, Streams
from spmd.runtime.several import ProgramsSimulation
from spmd.runtime.simulation import Simulation, of_process, simulation_of, stacked_columns
from spmd.runtime.streams import InfeedSource, OutfeedTarget, check_entries, open_streams
from spmd.runtime.symbolic import SymbolicExecutable
from spmd.support.arrays import Argument, Array
from spmd.support.usage import check_function, check_grid, check_memory, check_module, kind_of

Programs = Module | Executable | Sequence[Sequence[Module | Executable]]

_log = logging.getLogger("spmd")

#: Maximum number of processes as threads.
_MOST_PROCESSES = 1 << 14
#: Up to so many processes run as threads by default.
_FEW_PROCESSES = 16


def run_parallel(
    module: Programs,
    grid: ProcessGrid | None = None,
    inputs: Sequence[Sequence[Argument]] = (),
    function: str = "main",
    *,
    infeed: Sequence[InfeedSource | None] | None = None,
    outfeed: Sequence[OutfeedTarget | None] | None = None,
    timeout: float = 60.0,
    abort: bool = False,
    mode: str = "auto",
    memory: int | None = None,
    **options: Unpack[CompileOptions],
) -> list[tuple[Array, ...]]:
    """Run `function` of `module` as every process of `grid`, and return a tuple of arrays per process, in rank order.

    `module` may be rows (replicas) of columns (partitions) of modules: different programs. `inputs` has one entry per
    process in rank order, each a sequence of arrays; it may be empty for programs without arguments. `infeed` and
    `outfeed` have one entry per process (see spmd.runtime.streams). `options` are those of spmd.compile. The first
    error of any process ends all of them and is raised.

    `mode`: "threads" makes each process a thread, which behaves like a rank: one that is blocked longer than `timeout`
    seconds is reported, and with `abort` ends the run. "stacked" computes all processes at once, as spmd.simulate does;
    different programs are stacked if they have matching collectives and transfers, and take the same path through the
    control flow around them. "auto" stacks a grid of more than 16 processes if possible; the logger "spmd" reports why
    it is not. `memory` limits the bytes of the stacked arrays of one program (see spmd.simulate).
    """
    return prepared_run(
        module,
        grid,
        inputs,
        function,
        infeed=infeed,
        outfeed=outfeed,
        timeout=timeout,
        abort=abort,
        mode=mode,
        memory=memory,
        **options,
    )()


def prepared_run(
    module: Programs,
    grid: ProcessGrid | None = None,
    inputs: Sequence[Sequence[Argument]] = (),
    function: str = "main",
    *,
    infeed: Sequence[InfeedSource | None] | None = None,
    outfeed: Sequence[OutfeedTarget | None] | None = None,
    timeout: float = 60.0,
    abort: bool = False,
    mode: str = "auto",
    memory: int | None = None,
    **options: Unpack[CompileOptions],
) -> Callable[[], list[tuple[Array, ...]]]:
    """Return a function that runs the programs each time it is called, with all preparations of run_parallel done.

    The parameters are those of run_parallel.
    """
    check_grid(grid, "spmd.run_parallel")
    check_function(function, "spmd.run_parallel")
    check_memory(memory, "spmd.run_parallel")
    grid = grid or grid_of_programs(module, function)
    _check_choices(mode, timeout)
    if mode == "threads":
        _check_size(grid)
    executables = compiled_programs(programs_of(module, grid), grid, function, options)
    if not _are_one(executables):
        check_agreement([trace(executable, rank) for rank, executable in enumerate(executables)])
    arrays_of_ranks = inputs if len(_sequence("inputs", inputs)) else [()] * grid.size
    for name, entries in (("inputs", arrays_of_ranks), ("infeed", infeed), ("outfeed", outfeed)):
        if entries is not None:
            check_entries(name, _sequence(name, entries), grid)
    for rank, arrays in enumerate(arrays_of_ranks):
        _sequence(f"inputs[{rank}]", arrays)
    executables = [
        one.for_blocks(arrays) if isinstance(one, SymbolicExecutable) else one
        for one, arrays in zip(executables, arrays_of_ranks, strict=True)
    ]
    if mode == "stacked" or (mode == "auto" and grid.size > _FEW_PROCESSES):
        simulation = _simulation(executables, mode == "stacked" or grid.size > _MOST_PROCESSES, memory)
        if simulation is not None:
            return partial(_stacked, simulation, arrays_of_ranks, infeed, outfeed)
    _check_size(grid)
    process = process_of_thread(executables, grid, arrays_of_ranks)

    def run_threads() -> list[tuple[Array, ...]]:
        try:
            with open_streams(grid, infeed, outfeed) as streams:
                return run(grid.size, partial(process, streams), timeout=timeout, abort=abort)
        except TransportError as error:
            raise error if isinstance(error, CollectiveError) else CollectiveError(str(error)) from error

    return run_threads


def process_of_thread(
    executables: Sequence[Executable], grid: ProcessGrid, inputs: Sequence[Sequence[Argument]]
) -> Callable[[Streams | None, ThreadCommunicator], tuple[Array, ...]]:
    """Return the function of each process's thread, given the streams of all processes and its communicator."""
    ends = [endpoints(executable.module, executable.function) for executable in executables]
    sends, receives = [end[0] for end in ends], [end[1] for end in ends]

    def process(streams: Streams | None, communicator: ThreadCommunicator) -> tuple[Array, ...]:
        rank = communicator.rank
        infeed, outfeed = (None, None) if streams is None else streams[rank]
        me = Process(grid, communicator, infeed=infeed, outfeed=outfeed)
        if sends[rank] or receives[rank]:
            connect(me, sends, receives)
        return executables[rank].run(me, executables[rank].with_copies(inputs[rank]))

    return process


def _simulation(
    executables: Sequence[Executable], must: bool, memory: int | None
) -> Simulation | ProgramsSimulation | None:
    """Return the stacked program of all processes; None if it cannot be stacked and need not (`must`)."""
    simulation: Simulation | ProgramsSimulation
    try:
        simulation = simulation_of(executables[0], memory) if _are_one(executables) else ProgramsSimulation(executables)
    except (CompileError, CollectiveError) as error:
        if must:
            raise
        _log.info("the processes run as threads: %s", error)
        return None
    _log.info("all processes are computed at once; by turns: %s", ", ".join(simulation.serial) or "nothing")
    return simulation


def _stacked(
    simulation: Simulation | ProgramsSimulation,
    inputs: Sequence[Sequence[Argument]],
    infeed: Sequence[InfeedSource | None] | None,
    outfeed: Sequence[OutfeedTarget | None] | None,
) -> list[tuple[Array, ...]]:
    """Return the results of each process, in separate arrays."""
    if isinstance(simulation, ProgramsSimulation):
        return simulation(inputs, infeed, outfeed)
    columns = stacked_columns(simulation.function, simulation.in_types, inputs, range(simulation.grid.size))
    results = simulation(*columns, infeed=infeed, outfeed=outfeed)
    return [tuple([of_process(value, rank) for value in results]) for rank in range(simulation.grid.size)]


def _sequence(name: str, value: object) -> Any:
    """Return `value`; UsageError unless it has a length and entries."""
    if not hasattr(value, "__len__") or isinstance(value, str | bytes | Mapping):
        raise UsageError(f"{name} must be a sequence, got {kind_of(value)}")
    return value


def _check_choices(mode: object, timeout: object) -> None:
    if mode not in ("auto", "stacked", "threads"):
        raise UsageError(f'mode must be "auto", "stacked" or "threads", got {mode!r}')
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise UsageError(f"timeout must be a positive number of seconds, got {timeout!r}")


def _are_one(executables: Sequence[Executable]) -> bool:
    """Return whether all processes run the same program."""
    return len({id(executable) for executable in executables}) == 1


def programs_of(module: Programs, grid: ProcessGrid) -> list[Module | Executable]:
    """Return the program of each process in rank order; CompileError if their number is not that of processes."""
    if not isinstance(module, Sequence):
        if not isinstance(module, Executable):
            check_module(module, "spmd.run_parallel")
        return [module] * grid.size
    _check_rows(module)
    if [len(row) for row in module] != [grid.num_partitions] * grid.num_replicas:
        raise CompileError(f"programs come in rows of {[len(row) for row in module]}, the process grid is {grid}")
    return [program for row in module for program in row]


def grid_of_programs(module: Programs, function: str) -> ProcessGrid:
    if isinstance(module, Executable):
        return module.grid
    if isinstance(module, Module):
        return declared_grid(module, function)
    if not isinstance(module, list | tuple):
        check_module(module, "spmd.run_parallel")
    _check_rows(module)
    return ProcessGrid(len(module), len(module[0]))


def _check_rows(module: Sequence[object]) -> None:
    """Raise UsageError unless the programs are given as rows."""
    if isinstance(module, str | bytes):
        check_module(module, "spmd.run_parallel")
    if not module or not all(isinstance(row, list | tuple) and row for row in module):
        raise UsageError(
            "different programs must be given as rows, one per replica with one program per partition, such as [[a, b]]"
        )


def _check_size(grid: ProcessGrid) -> None:
    """Raise CompileError for a grid with more processes than threads are supported."""
    if grid.size > _MOST_PROCESSES:
        raise CompileError(
            f"a {grid} process grid has {grid.size:,} processes: run_parallel runs at most {_MOST_PROCESSES:,}, each "
            "a thread; spmd.simulate computes all processes of larger grids at once"
        )


def compiled_programs(
    programs: Sequence[Module | Executable], grid: ProcessGrid, function: str, options: CompileOptions
) -> list[Executable]:
    if options and all(isinstance(program, Executable) for program in programs):
        raise UsageError(f"an executable is compiled already: spmd.compile takes {', '.join(options)}")
    if len({id(program) for program in programs}) > 1:
        # What is combined and overlapped depends on the ops in between, which may differ between programs.
        options = {"combine_threshold": 0, "overlap": False, **options}
    executables: dict[int, Executable] = {}
    for program in programs:
        if isinstance(program, Executable):
            if program.grid != grid:
                raise CompileError(f"the executable is for a {program.grid} process grid, not {grid}")
            executables[id(program)] = program
        elif id(program) not in executables:
            check_module(program, "spmd.run_parallel")
            executables[id(program)] = compile(program, grid, function, **options)
    return [executables[id(program)] for program in programs]
