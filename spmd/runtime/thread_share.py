"""The number of threads of a rank's numerical libraries: its share of the processors, unless the user sets it.

Ranks that are not bound to processors would otherwise each start as many threads as there are processors, and
oversubscribe them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from collectives.system import usable_processors
from spmd.support import machine

if TYPE_CHECKING:
    from mpi4py import MPI

#: Variables that numerical libraries read when they are loaded.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)

#: The share that this process has set; None if the user has set the number, or there is nothing to share.
taken: int | None = None


def said_by_user() -> bool:
    """Return whether the environment sets the number of threads of the numerical libraries."""
    return taken is None and any(name in os.environ for name in THREAD_VARIABLES)


def share(processors: set[int], others: Sequence[set[int]], cores: int) -> int:
    """Return this process's share of the ``cores`` behind ``processors``, given the processors of the machine's other
    ranks.
    """
    sharing = 1 + sum(1 for theirs in others if theirs & processors)
    return max(1, cores // sharing)


def take(world: MPI.Comm) -> None:
    """Limit this rank's numerical libraries to its share. Collective among the ranks of ``world``, an
    MPI communicator.
    """
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
    from threadpoolctl import threadpool_limits  # late: needed by ranks only

    threadpool_limits(taken)


def in_force() -> list[tuple[str, int]]:
    """Return the numerical libraries that are loaded, by name and version, with their numbers of threads."""
    from threadpoolctl import threadpool_info  # late, as above

    return [
        (f"{library['internal_api']} {library.get('version') or ''}".strip(), int(library["num_threads"]))
        for library in threadpool_info()
    ]
