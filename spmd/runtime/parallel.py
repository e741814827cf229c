"""Every process of a grid in this Python process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Unpack

from collectives.errors import CommunicationError as TransportError
from collectives.grid import ProcessGrid
from collectives.threads import ThreadCommunicator, run
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.options import CompileOptions
from spmd.compiler.pipeline.prepare import declared_grid
from spmd.errors import CollectiveError, CompileError, UsageError
from spmd.ir import Module
from spmd.runtime.agreement import disagreement, trace
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

#: Where each process is a thread.
_MOST_PROCESSES = 1 << 14
#: So many processes run as threads unless they are asked not to.
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
    """Runs `function` of `module` as every process of `grid`.

    `module` may be rows (replicas) of columns (partitions) of modules: different programs. `inputs` has an entry a
    process in rank order, each a sequence of arrays; none at all for programs without arguments. `infeed` and
    `outfeed` have an entry a process (see spmd.runtime.streams). `options` are those of spmd.compile. Returns a tuple
    of arrays a process, in rank order. The first error of any process ends all of them and is raised.

    `mode` is how: "threads" makes each process a thread, which behaves as a rank does: one that waits longer than
    `timeout` seconds is reported, and with `abort` ends the run. "stacked" computes all processes at once, as
    spmd.simulate does; different programs are stacked program by program, where they meet in the same collectives, send
    to each other, and go the same way through the control flow in which they do.
    "auto" stacks a grid of more than 16 processes, unless it cannot be stacked, which the logger "spmd" tells. `memory`
    is the number of bytes that the stacked arrays of one program may take (see spmd.simulate).
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
    """Return what runs the programs each time it is called: all that run_parallel, which has the same parameters, does
    before."""
    check_grid(grid, "spmd.run_parallel")
    check_function(function, "spmd.run_parallel")
    check_memory(memory, "spmd.run_parallel")
    grid = grid or grid_of_programs(module, function)
    _check_choices(mode, timeout)
    if mode == "threads":
        _check_size(grid)
    executables = compiled_programs(programs_of(module, grid), grid, function, options)
    if not _are_one(executables):
        _check_agreement(executables)
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
    """What the thread of each process does, given everybody's streams and its own communicator."""
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
    """The stacked program of all processes; None where it cannot be and (`must`) need not, and threads run them."""
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
    """The results of each process, in arrays of its own."""
    if isinstance(simulation, ProgramsSimulation):
        return simulation(inputs, infeed, outfeed)
    columns = stacked_columns(simulation.function, simulation.in_types, inputs, range(simulation.grid.size))
    results = simulation(*columns, infeed=infeed, outfeed=outfeed)
    return [tuple([of_process(value, rank) for value in results]) for rank in range(simulation.grid.size)]


def _sequence(name: str, value: object) -> Any:
    """`value`; UsageError unless it has a length and entries."""
    if not hasattr(value, "__len__") or isinstance(value, str | bytes | Mapping):
        raise UsageError(f"{name} is a sequence, got {kind_of(value)}")
    return value


def _check_choices(mode: object, timeout: object) -> None:
    if mode not in ("auto", "stacked", "threads"):
        raise UsageError(f'mode is "auto", "stacked" or "threads", got {mode!r}')
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise UsageError(f"timeout is a positive number of seconds, got {timeout!r}")


def _are_one(executables: Sequence[Executable]) -> bool:
    """Whether all processes run the same program."""
    return len({id(executable) for executable in executables}) == 1


def programs_of(module: Programs, grid: ProcessGrid) -> list[Module | Executable]:
    """The program of each process in rank order; CompileError where there are not as many as processes."""
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
    """UsageError unless the programs come in rows."""
    if isinstance(module, str | bytes):
        check_module(module, "spmd.run_parallel")
    if not module or not all(isinstance(row, list | tuple) and row for row in module):
        raise UsageError("different programs come as rows, one a replica, with a program a partition, such as [[a, b]]")


def _check_size(grid: ProcessGrid) -> None:
    """CompileError for a grid of more processes than this one can have threads."""
    if grid.size > _MOST_PROCESSES:
        raise CompileError(
            f"a {grid} process grid has {grid.size:,} processes: run_parallel runs at most {_MOST_PROCESSES:,}, each "
            "a thread; spmd.simulate computes all processes of larger grids at once"
        )


def _check_agreement(executables: Sequence[Executable]) -> None:
    """CollectiveError when the texts of different programs show that their processes will not meet."""
    traces = []
    for rank, executable in enumerate(executables):
        function = executable.module.function(executable.function)
        traces.append(trace(ModuleLowering(executable.module, executable.options), function, rank))
    fault = disagreement(traces)
    if fault is not None:
        raise CollectiveError(fault)


def compiled_programs(
    programs: Sequence[Module | Executable], grid: ProcessGrid, function: str, options: CompileOptions
) -> list[Executable]:
    if options and all(isinstance(program, Executable) for program in programs):
        raise UsageError(f"an executable is compiled already: spmd.compile takes {', '.join(options)}")
    if len({id(program) for program in programs}) > 1:
        # What is combined and overlapped depends on what lies between, which may differ from program to program.
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
