"""Algorithms message by message: every process sends what the rounds say, and nobody waits in vain."""

from typing import Any

import numpy as np
import pytest

from collectives.algorithms import ALGORITHMS, Round, rounds
from collectives.operations import AllGather, AllReduce, AllToAll, CollectiveBroadcast, CollectivePermute, ReduceScatter
from collectives.reduction import ADD
from collectives.threads import ThreadCommunicator, run
from spmd.predict.rounds import RoundsOfMessages

FLOAT = np.dtype(np.float32)


class Counting:
    """A group of `size` that counts the bytes that each process sends to how far away."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.sent: dict[int, int] = {}

    def bind(self, operation: CollectivePermute) -> Any:
        ((_, distance), *_) = operation.pairs

        def call(array: np.ndarray[Any, Any]) -> None:
            self.sent[distance] = self.sent.get(distance, 0) + array.nbytes

        return call


def test_bytes_and_distances() -> None:
    group = Counting(5)
    RoundsOfMessages(group, (Round(3, 1, 8.0, 8.0), Round(1, 2, 10.0), Round(4, 0, 4.0)))()  # type: ignore[arg-type]
    assert group.sent == {1: 3 * 8 + 4, 2: 12 + 4, 3: 4, 4: 4}


@pytest.mark.parametrize("size", [2, 3, 5, 8])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_all_processes_come_through(size: int, algorithm: str) -> None:
    shape = (6 * size,)
    operations = [
        AllReduce(shape, FLOAT, ADD),
        ReduceScatter(shape, FLOAT, ADD, 0),
        AllGather(shape, FLOAT, 0),
        AllToAll(shape, FLOAT, 0, 0, size),
        CollectiveBroadcast(shape, FLOAT),
    ]

    def process(communicator: ThreadCommunicator) -> int:
        for operation in operations:
            RoundsOfMessages(communicator, rounds(operation, size, algorithm))()
        return communicator.rank

    assert run(size, process, timeout=30.0, abort=True) == list(range(size))
