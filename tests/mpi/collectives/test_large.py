"""Calls of operands whose counts do not fit in MPI's integers."""

import numpy as np
import pytest

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize(("most", "calls"), [(1, 4), (6, 2), (7, 2), (11, 2)])
def test_the_count_over_all_chunks_of_a_scattered_call_fits(
    most: int, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three chunks of four elements: each call has as many of every chunk, at least one, or `most` in all."""
    from collectives.mpi import large
    from collectives.mpi.transfer import Transfer
    from collectives.operations import ReduceScatter
    from collectives.reduction import Reduction

    sent: list[list[int]] = []

    def post(send: np.ndarray, receive: np.ndarray) -> None:
        sent.append(send.ravel().tolist())
        receive[...] = send[0]

    monkeypatch.setattr(large, "MOST", most)
    transfer = Transfer(lambda array: array, lambda out: out, post, lambda send, receive: [])
    operation = ReduceScatter((12,), np.dtype(np.float32), Reduction("add"), 0)
    received = np.zeros(4, np.float32)
    large.within_limits(transfer, operation, 3).post(np.arange(12, dtype=np.float32), received)
    assert received.tolist() == [0, 1, 2, 3]
    assert len(sent) == calls and all(len(each) <= max(most, 3) for each in sent)
    assert sorted(number for each in sent for number in each) == list(range(12))
