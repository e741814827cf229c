"""Counting what processes send, by messages that carry out each collective, or by those that are posted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from collectives.operations import (
    AllGather,
    AllReduce,
    AllToAll,
    CollectiveBroadcast,
    CollectivePermute,
    CollectiveReduce,
    Operation,
    ReduceScatter,
    ReducingOperation,
)
from collectives.threads import ThreadCommunicator
from spmd.support.arrays import Array


class Wires:
    """What the processes of a group send, in bytes, where an operation is carried out by messages."""

    def __init__(self, size: int) -> None:
        self.sent = [0.0] * size

    def send(self, source: int, array: Array, operation: Operation) -> Array:
        """The array as it arrives. Sums of narrow floats travel as wide ones, parts of a byte packed."""
        self.sent[source] += array.size * _width(operation, array)
        return array.copy()


def _width(operation: Operation, array: Array) -> float:
    if isinstance(operation, ReducingOperation) and not operation.is_exchanged:
        return operation.arithmetic.accumulator.itemsize
    return 0.5 if array.dtype.name in ("int4", "uint4") else array.dtype.itemsize


def carried_out(operation: Operation, arrays: Sequence[Array]) -> Wires:
    """Carry out an operation by a ring, a chain or messages from each to each, whichever needs the fewest bytes."""
    size = len(arrays)
    wires = Wires(size)
    match operation:
        case AllReduce():
            _gathered(_folded(operation, arrays, wires), operation, wires)
        case ReduceScatter():
            _folded(operation, arrays, wires)
        case AllGather():
            _gathered([array.reshape(-1) for array in arrays], operation, wires)
        case AllToAll():
            for source, array in enumerate(arrays):
                for target, part in enumerate(np.split(array, size, operation.split_dim)):
                    if target != source:
                        wires.send(source, part, operation)
        case CollectiveBroadcast() | CollectiveReduce():
            for step in range(size - 1):
                wires.send((operation.root + step) % size, arrays[operation.root], operation)
    return wires


def _folded(operation: ReducingOperation, arrays: Sequence[Array], wires: Wires) -> list[Array]:
    """Each process's part of the fold, by a ring: what arrives is folded into one's own and goes on."""
    size = len(arrays)
    parts = [np.array_split(array.reshape(-1), size) for array in arrays]
    for step in range(size - 1):
        for rank in range(size):
            number = (rank - step) % size
            there = wires.send(rank, parts[rank][number], operation)
            target = parts[(rank + 1) % size]
            target[number] = operation.arithmetic.fold([there, target[number]])
    return [parts[(number - 1) % size][number] for number in range(size)]


def _gathered(parts: Sequence[Array], operation: Operation, wires: Wires) -> None:
    size = len(parts)
    for step in range(size - 1):
        for rank in range(size):
            wires.send(rank, parts[(rank - step) % size], operation)


def count_operations(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Operation, Wires]]:
    """Have every collective that threads meet in carried out by messages as well; return what was, as it grows."""
    found: list[tuple[Operation, Wires]] = []

    def watch(kind: type[Operation]) -> None:
        evaluate = kind.evaluate

        def watched(self: Operation, arrays: Sequence[Array]) -> Sequence[Array]:
            if len(arrays) > 1 and arrays[0].dtype != object:
                found.append((self, carried_out(self, arrays)))
            return evaluate(self, arrays)

        monkeypatch.setattr(kind, "evaluate", watched)

    for kind in Operation.kinds():
        if "evaluate" in vars(kind):
            watch(kind)
    return found


def count_messages(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return the rank and the bytes of each message of a permutation or a send between threads, as they are posted."""
    found: list[tuple[int, int]] = []
    permute, send = ThreadCommunicator._permute, ThreadCommunicator.send

    def permuted(self: ThreadCommunicator, operation: CollectivePermute, where: str) -> Any:
        start, target = permute(self, operation, where), operation.target(self.rank)

        def started(array: Array) -> Any:
            if target not in (None, self.rank):
                found.append((self.rank, array.nbytes))
            return start(array)

        return started

    def sent(self: ThreadCommunicator, array: Array, target: int, *how: Any) -> None:
        if target != self.rank:
            found.append((self.rank, array.nbytes))
        send(self, array, target, *how)

    monkeypatch.setattr(ThreadCommunicator, "_permute", permuted)
    monkeypatch.setattr(ThreadCommunicator, "send", sent)
    return found
