"""What a collective costs and how it is carried out over MPI, in words and bytes; nothing is executed."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from collectives import layout
from collectives.algorithms import wire_bytes
from collectives.operations import (
    AllGather,
    AllReduce,
    AllToAll,
    CollectiveBroadcast,
    CollectivePermute,
    CollectiveReduce,
    Operation,
    ReduceScatter,
)


@dataclass(frozen=True)
class CollectiveCost:
    """Bytes that the busiest process of a group sends and receives, and the calls that carry them."""

    sent: int
    received: int
    algorithm: str


def cost(operation: Operation, size: int) -> CollectiveCost:
    """The cost of ``operation`` in a group of ``size`` processes; bytes as the best algorithms need them."""
    operation.result_shape(size)
    if size == 1:
        return CollectiveCost(0, 0, "a copy: the process is alone")
    if not prod(operation.shape):
        return CollectiveCost(0, 0, "nothing to do: the operand is empty")
    nbytes = wire_bytes(operation)
    share = nbytes * (size - 1) // size
    match operation:
        case AllReduce() | ReduceScatter() | CollectiveReduce():
            return _reducing(operation, size, nbytes, share)
        case AllGather():
            steps = ["MPI_Allgather", *_moved(operation, 0, operation.dim)]
            return CollectiveCost(nbytes, nbytes * (size - 1), ", ".join(steps))
        case AllToAll():
            steps = ["MPI_Alltoall", *_moved(operation, operation.split_dim, operation.concat_dim)]
            return CollectiveCost(share, share, ", ".join(steps))
        case CollectivePermute():
            sends = any(source != target for source, target in operation.pairs)
            nbytes = nbytes if sends else 0
            return CollectiveCost(
                nbytes, nbytes, "MPI_Sendrecv" if sends else "a copy: processes send to themselves alone"
            )
        case CollectiveBroadcast():
            return CollectiveCost(nbytes, nbytes, "MPI_Bcast")
    return CollectiveCost(0, 0, "MPI_Barrier")


def _reducing(
    operation: AllReduce | ReduceScatter | CollectiveReduce, size: int, nbytes: int, share: int
) -> CollectiveCost:
    rule = operation.arithmetic
    name = {AllReduce: "MPI_Allreduce", ReduceScatter: "MPI_Reduce_scatter_block", CollectiveReduce: "MPI_Reduce"}
    if operation.is_exchanged:
        why = "reproducible" if operation.reproducible else "the region is no known reduction"
        how = "exchanged by parts (all-to-all), folded in group order, gathered"
        if isinstance(operation, ReduceScatter):
            how = "exchanged by parts (all-to-all), folded in group order"
        twice = 1 if isinstance(operation, ReduceScatter) else 2
        return CollectiveCost(twice * share, twice * share, f"{why}: {how}")
    steps = [name[type(operation)]]
    if rule.widened:
        steps.append(f"computed in {rule.accumulator}")
    elif not rule.native:
        steps.append("an operation of our own")
    if isinstance(operation, ReduceScatter):
        steps += _moved(operation, operation.dim, 0)
    sent = 2 * share if isinstance(operation, AllReduce) else share
    return CollectiveCost(sent, sent, ", ".join(steps))


def _moved(operation: Operation, split_dim: int, concat_dim: int) -> list[str]:
    """The passes over memory that the layout forces."""
    steps = []
    if layout.outer(operation.shape, split_dim) > 1:
        steps.append("a packing pass")
    if layout.outer(operation.shape, concat_dim) > 1:
        steps.append("an unpacking pass")
    if layout.is_packed(operation.dtype):
        steps.append("elements packed into bytes")
    return steps
