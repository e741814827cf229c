"""The first communication of ranks: who has not come is told, and whether they compare what they do."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from collectives import ADD, AllReduce, CommunicationError, failure
from collectives.mpi import MpiCommunicator
from collectives.mpi.meeting import meet
from collectives.record.activity import Activity
from collectives.record.recorder import Recorder
from collectives.settings import CHECK_VARIABLE, WatchSettings

pytestmark = pytest.mark.mpi


def test_who_waits_is_told_after_each_timeout_who_has_not_come_and_goes_on() -> None:
    """Rank 1 comes when rank 0 has been told twice that it has not."""
    from mpi4py import MPI

    comm, aside = MPI.COMM_WORLD.Dup(), MPI.COMM_WORLD.Dup()
    told: list[str] = []

    def warn(text: str) -> None:
        told.append(text)
        if comm.rank == 0 and len(told) <= 2:
            aside.send(text, dest=1)

    if comm.rank == 1:
        for _ in range(2):
            text = aside.recv(source=0)
            assert re.match(r"process 0 has waited \d+ s\n", text)
            assert re.search(r"process(es)? 0.*: waits \d+ s in the first call", text)
            assert "  process 1: has not reached its first communication" in text
    meet(comm, "the first call", Activity(), WatchSettings(timeout=0.05), warn)
    assert comm.rank != 1 or not told
    aside.Barrier()
    for each in (comm, aside):
        each.Free()


def test_ranks_of_which_some_compare_what_they_do_hear_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from mpi4py import MPI

    monkeypatch.setenv(CHECK_VARIABLE, str(int(MPI.COMM_WORLD.rank == 1)))
    others = [rank for rank in range(MPI.COMM_WORLD.size) if rank != 1]
    said = f"COLLECTIVE_CHECK is on in processes [1] and off in {others}: set it to the same in all of them"
    with pytest.raises(CommunicationError, match=re.escape(said)):
        MpiCommunicator.world(MPI.COMM_WORLD.Dup())


@pytest.fixture
def comparing(monkeypatch: pytest.MonkeyPatch) -> MpiCommunicator:
    """All ranks, as a program begins whose environment has them compare what they do."""
    from mpi4py import MPI

    monkeypatch.setenv(CHECK_VARIABLE, "1")
    monkeypatch.setattr("collectives.mpi.communicator.RECORDER", Recorder())
    monkeypatch.setattr(failure, "record", None)
    return MpiCommunicator.world(MPI.COMM_WORLD.Dup())


def test_the_environment_has_ranks_compare_what_they_do(comparing: MpiCommunicator) -> None:
    """Each mistake is an error on all ranks, and what follows goes well."""
    world, odd = comparing, comparing.rank == 1

    def started(size: int) -> object:
        operation = AllReduce((size,), np.dtype(np.float32), ADD)
        return world.bind_start(operation, "a.py:5")(np.ones(size, np.float32)).wait()

    def reduced(size: int, dtype: type, how: str, where: str) -> object:
        return world.all_reduce(size, dtype, how, where=where)(np.ones(size, dtype))

    mistakes: list[tuple[Callable[[], object], str, str]] = [
        (
            lambda: reduced(4 if odd else 3, np.float32, "sum", "a.py:1"),
            "all_reduce add of 3 float32",
            "all_reduce add of 4 float32",
        ),
        (
            lambda: reduced(4, np.float32 if odd else np.int32, "sum", "a.py:2"),
            "all_reduce add of 4 int32",
            "all_reduce add of 4 float32",
        ),
        (
            lambda: reduced(4, np.float32, "max" if odd else "sum", "a.py:3"),
            "all_reduce add of 4 float32",
            "all_reduce maximum of 4 float32",
        ),
        (
            lambda: world.barrier("a.py:4") if odd else world.all_gather(4, np.int8, 0, where="a.py:4")([1] * 4),
            "all_gather of 4 int8, dim 0",
            "barrier",
        ),
        (lambda: started(8 if odd else 9), "all_reduce add of 9 float32", "all_reduce add of 8 float32"),
    ]
    for number, (mistake, others, ours) in enumerate(mistakes, 1):
        with pytest.raises(CommunicationError, match="different collectives") as error:
            mistake()
        text = str(error.value)
        assert re.search(rf"process(es)? 0\b.*: {others}.* at a.py:{number}", text), text
        assert re.search(rf"process 1: {ours}.* at a.py:{number}", text), text
        assert reduced(8, np.float32, "sum", "train.py:7").tolist() == [float(world.size)] * 8  # type: ignore[attr-defined]
