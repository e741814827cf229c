"""How many threads the numerical libraries of a rank use: its share of the processors, unless the user has said.

Ranks that are not bound to processors of their own, and are told nothing, would each start as many threads as there are
processors, and keep each other from them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from collectives.system import usable_processors
from spmd.support import machine

if TYPE_CHECKING:
    from mpi4py import MPI

#: What the numerical libraries read when they are loaded.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)

#: The share that this process has taken; None where the user has said how many threads, or none was to be taken.
taken: int | None = None


def said_by_user() -> bool:
    """Whether the environment says how many threads the numerical libraries are to use."""
    return taken is None and any(name in os.environ for name in THREAD_VARIABLES)


def share(processors: set[int], others: Sequence[set[int]], cores: int) -> int:
    """Of ``cores`` behind ``processors``, this process's part: ``others`` are what ranks of the machine may run on."""
    sharing = 1 + sum(1 for theirs in others if theirs & processors)
    return max(1, cores // sharing)


def take(world: MPI.Comm) -> None:
    """Gives this rank's numerical libraries its share. Collective among the ranks of ``world``, an MPI communicator."""
    global taken
    from mpi4py import MPI  # late: importing it starts MPI

    node = world.Split_type(MPI.COMM_TYPE_SHARED)
    everyone = node.allgather(usable_processors())
    own = everyone.pop(node.rank)
    node.Free()
    if said_by_user() or taken is not None:
        return
    taken = share(own, everyone, machine.usable_cores())
    for name in THREAD_VARIABLES:  # for libraries that are loaded later
        os.environ[name] = str(taken)
    from threadpoolctl import threadpool_limits  # late: ranks alone need it

    threadpool_limits(taken)


def in_force() -> list[tuple[str, int]]:
    """The numerical libraries that are loaded, by name and version, and how many threads each uses."""
    from threadpoolctl import threadpool_info  # late, as above

    return [
        (f"{library['internal_api']} {library.get('version') or ''}".strip(), int(library["num_threads"]))
        for library in threadpool_info()
    ]
