"""Communication between processes: process grids, every collective of StableHLO, channels; over MPI or between threads.

Depends on NumPy and mpi4py only. Names are loaded when first used: that of ``collectives.mpi`` starts MPI.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectives.late_names import loaded_when_used as _loaded_when_used

if TYPE_CHECKING:
    from collectives.communicator import BoundCollective as BoundCollective
    from collectives.communicator import Communicator as Communicator
    from collectives.communicator import Request as Request
    from collectives.communicator import Start as Start
    from collectives.errors import CommunicationError as CommunicationError
    from collectives.errors import GroupError as GroupError
    from collectives.grid import ProcessGrid as ProcessGrid
    from collectives.grid import ProcessId as ProcessId
    from collectives.grid import cross_partition as cross_partition
    from collectives.grid import cross_replica as cross_replica
    from collectives.grid import cross_replica_and_partition as cross_replica_and_partition
    from collectives.grid import flattened_ids as flattened_ids
    from collectives.grid import permute_pairs as permute_pairs
    from collectives.operations import AllGather as AllGather
    from collectives.operations import AllReduce as AllReduce
    from collectives.operations import AllToAll as AllToAll
    from collectives.operations import Barrier as Barrier
    from collectives.operations import CollectiveBroadcast as CollectiveBroadcast
    from collectives.operations import CollectivePermute as CollectivePermute
    from collectives.operations import CollectiveReduce as CollectiveReduce
    from collectives.operations import Operation as Operation
    from collectives.operations import ReduceScatter as ReduceScatter
    from collectives.operations import describe as describe
    from collectives.operations import strategy as strategy
    from collectives.reduction import ADD as ADD
    from collectives.reduction import AND as AND
    from collectives.reduction import MAXIMUM as MAXIMUM
    from collectives.reduction import MINIMUM as MINIMUM
    from collectives.reduction import MONOIDS as MONOIDS
    from collectives.reduction import MULTIPLY as MULTIPLY
    from collectives.reduction import OR as OR
    from collectives.reduction import XOR as XOR
    from collectives.reduction import Reduction as Reduction

_HOMES = {
    "communicator": ("BoundCollective", "Communicator", "Request", "Start"),
    "errors": ("CommunicationError", "GroupError"),
    "grid": (
        "ProcessGrid",
        "ProcessId",
        "cross_partition",
        "cross_replica",
        "cross_replica_and_partition",
        "flattened_ids",
        "permute_pairs",
    ),
    "operations": (
        "AllGather",
        "AllReduce",
        "AllToAll",
        "Barrier",
        "CollectiveBroadcast",
        "CollectivePermute",
        "CollectiveReduce",
        "Operation",
        "ReduceScatter",
        "describe",
        "strategy",
    ),
    "reduction": ("ADD", "AND", "MAXIMUM", "MINIMUM", "MONOIDS", "MULTIPLY", "OR", "XOR", "Reduction"),
}

_HOME_OF = {name: f"collectives.{home}" for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)

__getattr__ = _loaded_when_used(__name__, _HOME_OF)


def __dir__() -> list[str]:
    return __all__
