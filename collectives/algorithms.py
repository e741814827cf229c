"""The usual algorithms of each collective as rounds of messages: sender, receiver, bytes and repetitions.

Source: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH" (2005), for k
processes and n bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np

from collectives import layout, operations
from collectives.arrays import Array
from collectives.errors import CommunicationError

RING, TREE, HALVING = "ring", "tree", "recursive_halving"
#: The algorithms within one level of a network.
ALGORITHMS = (RING, TREE, HALVING)


@dataclass(frozen=True)
class Round:
    """Every process sends `nbytes` to the one `distance` positions further in its group, `times` times in sequence.

    `folded` bytes of each message are reduced into the receiver's data. `distance` 0 addresses every other process in
    turn, each of which gets `nbytes` once in all `times` rounds. With a `stride` only the edges of a tree carry
    messages: from positions 0, stride, 2 stride, ... to those `distance` above; a negative `distance` reverses the
    direction.
    """

    times: int
    distance: int
    nbytes: float
    folded: float = 0.0
    stride: int = 0

    def pairs(self, size: int) -> tuple[Array, Array]:
        """Return the sending positions in a group of `size`, and the receiving positions, element by element."""
        if not self.stride:
            position = np.arange(size)
            return position, (position + self.distance) % size
        lower = np.arange(0, size - abs(self.distance), self.stride)
        upper = lower + abs(self.distance)
        return (lower, upper) if self.distance > 0 else (upper, lower)


Rounds: TypeAlias = tuple[Round, ...]


def wire_bytes(operation: operations.Operation) -> int:
    """Return the bytes of the operand on the wire: narrow floats of sums widened, sub-byte types packed."""
    count = prod(operation.shape)
    if isinstance(operation, operations.ReducingOperation):
        carried = operation.dtype if operation.is_exchanged else operation.arithmetic.accumulator
        return count * carried.itemsize
    if layout.is_packed(operation.dtype):
        return layout.packed_size(count, operation.dtype)
    return count * operation.dtype.itemsize


def rounds(operation: operations.Operation, size: int, algorithm: str) -> Rounds:
    """Return the rounds of `operation` on a group of `size` processes by `algorithm`, one of ALGORITHMS.

    A `collective_permute` is one round whatever the algorithm; its pairs, not `distance`, define the messages. Raises
    CommunicationError for an unknown algorithm.
    """
    if algorithm not in ALGORITHMS:
        raise CommunicationError(f"algorithm must be one of {', '.join(ALGORITHMS)}, got {algorithm!r}")
    if size == 1 or (not prod(operation.shape) and not isinstance(operation, operations.Barrier)):
        return ()
    n = float(wire_bytes(operation))
    match operation:
        case operations.AllReduce():
            if algorithm == TREE:
                return (*_up(size, n, n), *_down(size, n))
            return (*_scattering(size, n, algorithm, n), *_gathering(size, n / size, algorithm))
        case operations.ReduceScatter():
            if algorithm == TREE:
                return (*_up(size, n, n), *_spread(size, n))
            return _scattering(size, n, algorithm, n)
        case operations.Barrier():
            return tuple([Round(1, distance, 0.0) for distance in _distances(size)])
        case operations.AllGather():
            if algorithm == TREE:
                return (*_collected(size, n), *_down(size, n * size))
            return _gathering(size, n, algorithm)
        case operations.AllToAll():
            if algorithm == RING:
                return (Round(size - 1, 0, n / size),)
            return tuple([Round(1, distance, n / 2) for distance in _distances(size)])
        case operations.CollectivePermute():
            return (Round(1, 1, n),)
        case operations.CollectiveBroadcast():
            if algorithm == TREE:
                return _down(size, n)
            return (*_spread(size, n), *_gathering(size, n / size, algorithm))
        case operations.CollectiveReduce():
            if algorithm == TREE:
                return _up(size, n, n)
            return (*_scattering(size, n, algorithm, n), *_collected(size, n / size))
    return _gathering(size, n, algorithm)  # an all-gather of the operands, which serves any operation


def in_all(steps: Rounds, size: int) -> float:
    """Return the bytes of all messages of a group of `size` processes."""
    return sum(each.times * each.nbytes * (len(each.pairs(size)[0]) if each.distance else size) for each in steps)


def least_rounds(operation: operations.Operation, size: int) -> Rounds:
    """Return the rounds of that algorithm whose messages are what `operation.total` counts, recursive halving first."""
    total = operation.total(wire_bytes(operation), size)
    candidates = [rounds(operation, size, algorithm) for algorithm in (HALVING, RING, TREE)]
    return min(candidates, key=lambda each: round(abs(in_all(each, size) - total)))


def _distances(size: int) -> list[int]:
    """Return the powers of two below `size`."""
    return [1 << exponent for exponent in range((size - 1).bit_length())]


def _up(size: int, n: float, folded: float) -> Rounds:
    """Reduce to the root of a binomial tree, `n` bytes per edge."""
    return tuple([Round(1, -distance, n, folded, 2 * distance) for distance in _distances(size)])


def _down(size: int, n: float) -> Rounds:
    """Broadcast from the root of a binomial tree."""
    return tuple([Round(1, distance, n, 0.0, 2 * distance) for distance in reversed(_distances(size))])


def _spread(size: int, n: float) -> Rounds:
    """Scatter from the root of a binomial tree: each edge carries the parts of its subtree."""
    return tuple(
        [
            Round(1, distance, n * min(distance, size - distance) / size, 0.0, 2 * distance)
            for distance in reversed(_distances(size))
        ]
    )


def _collected(size: int, n: float) -> Rounds:
    """Gather `n` bytes of each process to the root of a binomial tree."""
    return tuple(
        [Round(1, -distance, n * min(distance, size - distance), 0.0, 2 * distance) for distance in _distances(size)]
    )


def _halves(size: int, n: float, folded: float) -> Rounds:
    """Return the rounds of recursive halving: half of the remaining bytes per round, reduced."""
    return tuple(
        [
            Round(1, distance, n / 2 ** (step + 1), folded / 2 ** (step + 1))
            for step, distance in enumerate(reversed(_distances(size)))
        ]
    )


def _doubles(size: int, n: float) -> Rounds:
    """Return the rounds of recursive doubling: twice as many bytes per round."""
    sent = [min(distance, size - distance) for distance in _distances(size)]
    return tuple([Round(1, distance, n * count) for distance, count in zip(_distances(size), sent, strict=True)])


def _scattering(size: int, n: float, algorithm: str, folded: float) -> Rounds:
    if algorithm == RING:
        return (Round(size - 1, 1, n / size, folded / size),)
    return (*_odd_ones(size, n, folded), *_halves(_power(size), n, folded))


def _gathering(size: int, n: float, algorithm: str) -> Rounds:
    if algorithm == RING:
        return (Round(size - 1, 1, n),)
    return _doubles(size, n)


def _power(size: int) -> int:
    """Return the largest power of two that is at most `size`."""
    return 1 << (size.bit_length() - 1)


def _odd_ones(size: int, n: float, folded: float) -> Iterable[Round]:
    """Fold the operands of the processes beyond the largest power of two into others."""
    return () if size == _power(size) else (Round(1, -_power(size), n, folded, 1),)
