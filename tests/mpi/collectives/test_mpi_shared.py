"""The suite that every transport passes, on MPI ranks; and the same bits as threads give."""

import os
import threading
import time
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from collectives import CommunicationError, Reduction, shared_memory
from collectives.communicator import Communicator
from collectives.mpi import MpiCommunicator, host, large
from collectives.mpi.host import HostMemory
from collectives.threads import run
from tests.collectives.behaviours import BEHAVIOURS
from tests.collectives.cases import CollectiveCase, bits, cases, same
from tests.effort import examples
from tests.mpi.ranks import number_of_ranks

pytestmark = pytest.mark.mpi


@cache
def world() -> MpiCommunicator:
    return MpiCommunicator.world()


@settings(max_examples=examples(300), suppress_health_check=list(HealthCheck))
@given(cases(most=number_of_ranks()))
def test_collectives_mean_what_the_specification_says(case: CollectiveCase) -> None:
    check(case)


@settings(max_examples=examples(100), suppress_health_check=list(HealthCheck))
@given(cases(most=number_of_ranks()))
def test_so_do_operands_too_large_for_one_call(case: CollectiveCase) -> None:
    """As if MPI could count to five only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large, "MOST", 5)
        check(case)


@pytest.fixture
def through_memory(monkeypatch: pytest.MonkeyPatch) -> MpiCommunicator:
    """A communicator whose every all_reduce goes through memory that ranks share, some elements at a time."""
    from mpi4py import MPI

    monkeypatch.setattr(host, "LEAST", 1)
    monkeypatch.setattr(host, "CHUNK", 48)
    return MpiCommunicator(MPI.COMM_WORLD.Dup(), range(world().size))


@settings(max_examples=examples(200), suppress_health_check=list(HealthCheck))
@given(case=cases(most=number_of_ranks()))
def test_so_do_operands_that_go_through_shared_memory(case: CollectiveCase, through_memory: MpiCommunicator) -> None:
    check(case, through_memory)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, ml_dtypes.bfloat16, np.int8])
@pytest.mark.parametrize("count", [7, 12, 13, 5000])
def test_shared_memory_is_folded_in_group_order(dtype: type, count: int, through_memory: MpiCommunicator) -> None:
    """Not reproducible on demand, and yet the bits of threads; in place too, and call after call."""
    size = world().size
    operands = [(np.random.default_rng([count, rank]).normal(size=count) * 9).astype(dtype) for rank in range(size)]

    def reduced(communicator: Communicator) -> list[bytes]:
        call, product = (communicator.all_reduce((count,), dtype, Reduction(name)) for name in ("add", "multiply"))
        in_place = operands[communicator.world_rank].copy()
        results = [call(in_place), product(in_place), call(in_place[::-1]), call(in_place, in_place)]
        assert results[-1] is in_place
        return [bits(result) for result in results]

    assert reduced(through_memory) == run(size, reduced)[world().rank]


def test_ranks_that_reduce_different_arrays_in_shared_memory_are_told(through_memory: MpiCommunicator) -> None:
    call = through_memory.all_reduce((2 + through_memory.rank,), np.float32)
    with pytest.raises(CommunicationError, match=rf"all_reduce add of {2 + world().rank} float32, .* in another call"):
        call(np.ones(2 + through_memory.rank, np.float32))


def test_without_room_for_memory_to_share_mpi_reduces(
    through_memory: MpiCommunicator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if through_memory.rank == 0:
        monkeypatch.setattr(shared_memory, "FOLDER", str(tmp_path / "missing"))
    assert through_memory.all_reduce((3,), np.int32)(np.ones(3, np.int32)).tolist() == [through_memory.size] * 3


def check(case: CollectiveCase, communicator: MpiCommunicator | None = None) -> None:
    """Ranks agree on each outcome, so that all of them see a failure at the same example."""
    fault = ""
    if world().rank < case.grid.size:
        try:
            result, expected = case.run(communicator or world()), case.expected()[world().rank]
            if not same(result, expected):
                fault = f"rank {world().rank}: {result!r} where {expected!r} is meant"
            elif case.reproducible and "reduce" in case.op:
                alike = run(case.grid.size, case.run)[world().rank]
                if bits(alike) != bits(result):
                    fault = f"rank {world().rank}: {result!r}, but {alike!r} on threads"
        except Exception:
            fault = traceback.format_exc()
    faults = [text for text in world().allgather_object(fault) if text]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("count", [1, 7, 5000, 40001])
def test_reproducible_reductions_are_those_of_threads_bit_for_bit(count: int, dtype: type) -> None:
    """Values whose sum depends on the order of addition, below and above the size that is exchanged by parts."""
    size = world().size
    shape = (count, size)
    operands = [np.random.default_rng([count, rank]).normal(size=shape).astype(dtype) for rank in range(size)]

    def reduced(communicator: Communicator) -> list[bytes]:
        group = communicator.group(tuple(reversed(range(communicator.size))))
        calls = [
            group.all_reduce(shape, dtype, reproducible=True),
            group.reduce_scatter(shape, dtype, 1, reproducible=True),
            group.collective_reduce(shape, dtype, root=1, reproducible=True),
            group.all_reduce(shape, dtype, Reduction("subtract", np.subtract)),
        ]
        return [bits(call(operands[communicator.world_rank])) for call in calls]

    assert reduced(world()) == run(size, reduced)[world().rank]


def test_a_second_thread_in_the_same_group_is_an_error_at_once_and_for_all() -> None:
    """The first waits in a barrier that rank 0 does not come to before the second has been turned away."""
    from mpi4py import MPI

    everyone = MPI.COMM_WORLD.Dup()
    communicator = MpiCommunicator.world(everyone)
    reduce, group = communicator.all_reduce((4,), np.float32), communicator.group((communicator.rank,))
    operand = np.ones(4, np.float32)
    told: list[str] = []

    def wait() -> None:
        with pytest.raises(CommunicationError) as caught:
            communicator.barrier("the first thread")
        told.append(str(caught.value))

    if communicator.rank:
        first = threading.Thread(target=wait)
        first.start()
        while communicator.activity.what is None:
            time.sleep(0.001)
        with pytest.raises(CommunicationError, match=r"two threads(.|\n)*all_reduce add of 4 float32"):
            reduce(operand)
        assert group.all_reduce((4,), np.float32)(operand).tolist() == operand.tolist(), "another group is free"
        MPI.COMM_WORLD.Barrier()
        first.join()
        assert "two threads" in told[0]
        with pytest.raises(CommunicationError, match="two threads"):
            reduce(operand)
    else:
        MPI.COMM_WORLD.Barrier()
        communicator.barrier("rank 0")


def test_memory_that_ranks_share_never_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mpi4py import MPI

    monkeypatch.setattr(shared_memory, "FOLDER", str(tmp_path))
    listed: list[list[str]] = []
    allocate = os.posix_fallocate

    def look(descriptor: int, offset: int, length: int) -> None:
        allocate(descriptor, offset, length)
        listed.append(os.listdir(tmp_path))

    monkeypatch.setattr(os, "posix_fallocate", look)
    memory = HostMemory.of(MPI.COMM_WORLD)
    assert memory is not None and os.listdir(tmp_path) == [] and listed == [[]] * (MPI.COMM_WORLD.rank == 0)


@pytest.mark.parametrize("checked", [False, True], ids=["plain", "checked"])
@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda behaviour: behaviour.__name__)
def test_behaviour(behaviour: Callable[[Communicator], None], checked: bool) -> None:
    behaviour(world().checked() if checked else world())
