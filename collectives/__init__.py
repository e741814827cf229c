"""Arrays between processes: process grids, every collective of StableHLO, channels; over MPI or between threads.

Knows NumPy and MPI, nothing of programs. ``collectives.mpi`` is imported only where MPI is wanted, since importing
mpi4py starts MPI.
"""

from collectives.communicator import BoundCollective, Communicator, Request, Start
from collectives.errors import CommunicationError, GroupError
from collectives.grid import (
    ProcessGrid,
    ProcessId,
    cross_partition,
    cross_replica,
    cross_replica_and_partition,
    flattened_ids,
    permute_pairs,
)
from collectives.operations import (
    AllGather,
    AllReduce,
    AllToAll,
    Barrier,
    CollectiveBroadcast,
    CollectivePermute,
    CollectiveReduce,
    Operation,
    ReduceScatter,
    describe,
    strategy,
)
from collectives.reduction import ADD, AND, MAXIMUM, MINIMUM, MONOIDS, MULTIPLY, OR, XOR, Reduction

__all__ = [
    "ADD",
    "AND",
    "MAXIMUM",
    "MINIMUM",
    "MONOIDS",
    "MULTIPLY",
    "OR",
    "XOR",
    "AllGather",
    "AllReduce",
    "AllToAll",
    "Barrier",
    "BoundCollective",
    "CollectiveBroadcast",
    "CollectivePermute",
    "CollectiveReduce",
    "CommunicationError",
    "Communicator",
    "GroupError",
    "Operation",
    "ProcessGrid",
    "ProcessId",
    "ReduceScatter",
    "Reduction",
    "Request",
    "Start",
    "cross_partition",
    "cross_replica",
    "cross_replica_and_partition",
    "describe",
    "flattened_ids",
    "permute_pairs",
    "strategy",
]  # fmt: skip
