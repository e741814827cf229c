"""Processes as threads: taking turns, failing together, finding deadlocks."""

import _thread
import itertools
import math
import signal
import threading

import numpy as np
import pytest

from collectives import CommunicationError, GroupError, Reduction, threads, threads_watch
from collectives.threads import ThreadCommunicator, run, single_process
from tests.clocks import until


def test_hundreds_of_processes() -> None:
    def process(c: ThreadCommunicator) -> tuple[float, float]:
        x = np.full(8, c.rank, np.float32)
        total = c.all_reduce((8,), np.float32)(x)
        moved = c.collective_permute((8,), np.float32, [(i, (i + 1) % c.size) for i in range(c.size)])(x)
        return float(total[0]), float(moved[0])

    assert run(300, process) == [(300 * 299 / 2, (rank - 1) % 300) for rank in range(300)]


def test_the_first_exception_is_raised_with_the_name_of_its_process() -> None:
    def process(c: ThreadCommunicator) -> None:
        if c.rank == 2:
            raise KeyError("lost")
        c.barrier()

    with pytest.raises(KeyError, match="lost") as caught:
        run(4, process)
    assert caught.value.__notes__ == ["in process 2"]
    assert not [t for t in threading.enumerate() if t.name.startswith("process-") and t.is_alive()]


def test_processes_that_compute_without_end_are_ended_by_the_failure_of_another() -> None:
    def process(c: ThreadCommunicator) -> None:
        if c.rank == 2:
            raise KeyError("lost")
        while True:
            np.add(1, 1)

    with pytest.raises(KeyError, match="lost"):
        run(4, process)
    assert not [t for t in threading.enumerate() if t.name.startswith("process-")]


def test_an_interrupt_ends_processes_that_compute() -> None:
    """Ctrl-C, in the thread that runs them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs in the background may ignore it
    ready = threading.Event()

    def process(c: ThreadCommunicator) -> None:
        ready.set()
        while True:
            np.add(1, 1)

    def interrupt() -> None:
        ready.wait()
        _thread.interrupt_main()

    threading.Thread(target=interrupt).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run(3, process)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not [t for t in threading.enumerate() if t.name.startswith("process-")]


def test_a_second_interrupt_leaves_no_process_that_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = threading.Event()

    def process(c: ThreadCommunicator) -> None:
        ready.set()
        while True:
            np.add(1, 1)

    def watch(*arguments: object) -> None:
        ready.wait()
        raise KeyboardInterrupt("once")

    def stop(*arguments: object) -> None:
        raise KeyboardInterrupt("again")

    monkeypatch.setattr(threads, "watch", watch)
    monkeypatch.setattr(threads, "stop", stop)
    with pytest.raises(KeyboardInterrupt, match="again"):
        run(3, process)
    until(lambda: not [t for t in threading.enumerate() if t.name.startswith("process-")])


@pytest.mark.parametrize("started", range(1, 5))
def test_an_interrupt_while_processes_are_started_leaves_no_thread(
    started: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, begun = threading.Thread.start, itertools.count(1)

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if next(begun) == started:
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(4, lambda c: c.barrier())
    assert not [t for t in threading.enumerate() if t.name.startswith("process-")]


def test_different_collectives_are_told_with_their_places() -> None:
    def process(c: ThreadCommunicator) -> None:
        bind = c.all_gather if c.rank == 1 else c.collective_broadcast
        call = bind((2,), np.int32, 0, where=f"line {c.rank}")
        call(np.zeros(2, np.int32))

    with pytest.raises(CommunicationError) as caught:
        run(2, process)
    assert "process 0: collective_broadcast of 2 int32, root 0 among [0, 1] at line 0" in str(caught.value)
    assert "process 1: all_gather of 2 int32, dim 0 among [0, 1] at line 1" in str(caught.value)


def test_groups_in_another_order_are_a_deadlock_that_is_found_without_a_timeout() -> None:
    def process(c: ThreadCommunicator) -> None:
        first, second = ((0, 1), (0, 1, 2)) if c.rank == 0 else ((0, 1, 2), (0, 1))
        for members in (first, second):
            if c.rank in members:
                c.group(members).barrier(f"group of {len(members)}")

    with pytest.raises(CommunicationError, match=r"deadlock(.|\n)*process 0: waits in barrier(.|\n)*at group of 2"):
        run(3, process, timeout=math.inf)


def test_a_receive_that_nobody_serves_is_a_deadlock() -> None:
    with pytest.raises(CommunicationError, match=r"deadlock(.|\n)*for process 1"):
        run(2, lambda c: c.receive((1,), np.int8, 1, 5) if c.rank == 0 else None)


def test_transfers_arrive_in_the_order_of_sending() -> None:
    def process(c: ThreadCommunicator) -> list[int]:
        if c.rank == 0:
            for i in range(5):
                c.send(np.array([i]), 1, tag=i % 2)
            return []
        odd = [int(c.receive((1,), np.int64, 0, 1)[0]) for _ in range(2)]
        return odd + [int(c.receive((1,), np.int64, 0, 0)[0]) for _ in range(3)]

    assert run(2, process)[1] == [1, 3, 0, 2, 4]


def test_a_transfer_of_another_shape_is_told() -> None:
    def process(c: ThreadCommunicator) -> None:
        if c.rank == 0:
            c.send(np.zeros(3, np.int8), 1, 0)
        else:
            c.receive((4,), np.int8, 0, 0, "here")

    with pytest.raises(CommunicationError, match=r"process 0: a transfer of 3 int8(.|\n)*process 1: .* 4 int8 at here"):
        run(2, process)


def test_a_wait_that_is_too_long_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[str] = []
    reported = threading.Event()

    def report(form: str, text: str) -> None:
        reports.append(text)
        reported.set()

    def process(c: ThreadCommunicator) -> None:
        if c.rank == 0:
            assert reported.wait(120)
        c.barrier("the end")

    monkeypatch.setattr(threads_watch.log, "warning", report)
    run(2, process, timeout=0.2)
    assert "process 0: computes" in reports[0]
    assert "in barrier of 0 uint8 among [0, 1] at the end, for [0]" in reports[0]


def test_a_wait_that_is_too_long_may_end_the_run() -> None:
    def process(c: ThreadCommunicator) -> None:
        while c.rank == 0:
            np.add(1, 1)
        c.barrier("the end")

    with pytest.raises(CommunicationError, match="a process has waited"):
        run(2, process, timeout=0.2, abort=True)


def test_several_collectives_may_be_under_way() -> None:
    def process(c: ThreadCommunicator) -> list[float]:
        start = c.bind_start
        from collectives import ADD, AllGather, AllReduce

        f32 = np.dtype(np.float32)
        one = start(AllReduce((1,), f32, ADD))(np.array([c.rank], np.float32))
        two = start(AllGather((1,), f32, 0))(np.array([c.rank], np.float32))
        return [*two.wait().tolist(), *one.wait().tolist()]

    assert run(3, process) == [[0.0, 1.0, 2.0, 3.0]] * 3


def test_waiting_outside_of_the_grid_gives_others_the_turn_and_is_no_deadlock() -> None:
    ready = threading.Event()

    def process(c: ThreadCommunicator) -> None:
        if c.rank < 8:
            with c.outside():
                assert ready.wait(20)
        else:
            ready.set()
        c.barrier()

    run(9, process)


def test_a_custom_reduction_folds_in_group_order() -> None:
    def process(c: ThreadCommunicator) -> float:
        group = c.group((2, 0, 1))
        return float(group.all_reduce((), np.float64, Reduction("minus", np.subtract))(np.array(10.0**c.rank)))

    assert run(3, process) == [100 - 1 - 10] * 3


def test_a_group_is_asked_for_by_its_members_only() -> None:
    with pytest.raises(GroupError, match="distinct ranks of 0 to 0, got"):
        single_process().group((1, 2))
