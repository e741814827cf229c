"""Cost and implementation of a collective over MPI, in words and bytes, without executing it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from collectives import layout
from collectives.algorithms import wire_bytes
from collectives.operations import (
    AllGather,
    AllToAll,
    CollectivePermute,
    Operation,
    ReduceScatter,
    ReducingOperation,
)
from collectives.reduction import Arithmetic


@dataclass(frozen=True)
class CollectiveCost:
    """Bytes that the busiest process of a group sends and receives, and the steps that implement the collective."""

    sent: int
    received: int
    algorithm: str


def cost(operation: Operation, size: int) -> CollectiveCost:
    """Return the cost of ``operation`` in a group of ``size`` processes, in bytes of the best algorithm."""
    operation.result_shape(size)
    if size == 1:
        return CollectiveCost(0, 0, "a copy: the process is alone")
    if not prod(operation.shape):
        return CollectiveCost(0, 0, "nothing to do: the operand is empty")
    sent, received = operation.traffic(wire_bytes(operation), size)
    return CollectiveCost(sent, received, ", ".join(_steps(operation, sent)))


def _steps(operation: Operation, sent: int) -> list[str]:
    """Return MPI's call and the passes around it."""
    match operation:
        case ReducingOperation() if operation.is_exchanged:
            why = "reproducible" if vars(operation)["reproducible"] else "the region is no known reduction"
            gathered = [] if isinstance(operation, ReduceScatter) else ["gathered"]
            return [f"{why}: exchanged by parts (all-to-all)", "folded in group order", *gathered]
        case ReducingOperation():
            return [operation.mpi_call, *_computed(operation.arithmetic), *_scattered(operation)]
        case AllGather():
            return [operation.mpi_call, *_moved(operation, 0, operation.dim)]
        case AllToAll():
            return [operation.mpi_call, *_moved(operation, operation.split_dim, operation.concat_dim)]
        case CollectivePermute() if not sent:
            return ["a copy: processes send to themselves alone"]
    return [operation.mpi_call]


def _computed(rule: Arithmetic) -> list[str]:
    if rule.widened:
        return [f"computed in {rule.accumulator}"]
    return [] if rule.native else ["an operation of our own"]


def _scattered(operation: ReducingOperation) -> list[str]:
    return _moved(operation, operation.dim, 0) if isinstance(operation, ReduceScatter) else []


def _moved(operation: Operation, split_dim: int, concat_dim: int) -> list[str]:
    """Return the passes over memory that the layout requires."""
    steps = []
    if layout.outer(operation.shape, split_dim) > 1:
        steps.append("a packing pass")
    if layout.outer(operation.shape, concat_dim) > 1:
        steps.append("an unpacking pass")
    if layout.is_packed(operation.dtype):
        steps.append("elements packed into bytes")
    return steps
