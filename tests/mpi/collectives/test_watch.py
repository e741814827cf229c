"""Which ranks wait forever, according to the states of all ranks."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from tests.clocks import until

pytestmark = pytest.mark.mpi


def test_waits_that_can_end_and_waits_that_cannot() -> None:
    from collectives.mpi.watch import State, waits_in_vain
    from collectives.record.activity import Waiting

    def waits(text: str, *ranks: int) -> State:
        return State(Waiting(text, ranks), 1, 5.0)

    computes, ended = State(None, 1, 5.0), State(None, 1, 5.0, ended=True)
    together = {0: waits("sum", 1, 2), 1: waits("sum", 0, 2), 2: waits("sum", 0, 1)}
    assert not waits_in_vain(0, together), "one collective that all are in is merely slow"
    assert not waits_in_vain(0, together | {2: computes})
    assert not waits_in_vain(0, {0: together[0], 1: together[1]}), "one that does not answer may be about to come"
    assert waits_in_vain(0, together | {2: ended}) == {0, 1, 2}
    assert waits_in_vain(0, together | {2: waits("maximum", 0, 1)}) == {0, 1, 2}
    circle = {0: waits("a", 1), 1: waits("b", 2), 2: waits("c", 0), 3: computes}
    assert waits_in_vain(1, circle) == {0, 1, 2}
    assert not waits_in_vain(1, circle | {2: waits("c", 0, 3)})
    there = {(0, 1, 2): 4}
    total = Waiting("sum", (1, 2), (0, 1, 2), sequence=4)
    left = {0: State(total, 1, 5.0, begun=there), 1: State(Waiting("receive", (2,)), 1, 5.0, begun=there)}
    assert not waits_in_vain(1, left | {2: State(total, 1, 5.0, begun=there)}), "one that has left a sum, which goes on"
    behind = State(Waiting("another", (0,), (0, 2), sequence=1), 1, 5.0, begun={(0, 1, 2): 3, (0, 2): 1})
    assert waits_in_vain(1, left | {2: behind}) == {0, 1, 2}
    through = State(Waiting("the results", (0, 1), finished=True), 1, 5.0)
    assert waits_in_vain(0, together | {2: through}) == {0, 1, 2}, "it comes to no sum, though it waits for the others"
    assert str(through) == "has finished its program, and waits 5 s in the results"


def test_who_is_through_and_came_to_it_is_not_waited_for_in_vain() -> None:
    from collectives.mpi.watch import never_came
    from collectives.record.activity import Call, Waiting

    total = Waiting("sum", (0, 2), (0, 1, 2), sequence=3)
    gone = {0: {(0, 1, 2): 3}, 2: {(0, 1, 2): 2, (1, 2): 9}}
    assert never_came(1, total, {}, gone) == [2]
    assert never_came(1, total, {}, {2: gone[2] | {(0, 1, 2): 3}}) == []
    assert never_came(1, Waiting("receive", (0,)), {}, {0: {}}) == [0], "what it has sent has arrived"
    call = Call("collective_permute", "permute", (), (), np.dtype(np.float32), (0, 1, 2), "", pairs=((0, 1), (1, 2)))
    ring = Waiting("permute", (0, 2), (0, 1, 2), sequence=2, call=call, links=call.pairs)
    begun = {call.pairs: 2, ((1, 2), (2, 1)): 1, (0, 1, 2): 5}
    assert never_came(1, ring, begun, {2: {call.pairs: 2, ((1, 2), (2, 1)): 1}}) == []
    assert never_came(1, ring, begun, {2: {((1, 2),): 3}}) == [], "it has named its own pairs alone"
    assert never_came(1, ring, begun, {0: {((0, 1),): 1}, 2: {((1, 2),): 3}}) == [0]


def test_an_answer_is_kept_until_it_has_gone() -> None:
    """MPI may read a message when the ranks are connected, later; mpi4py holds it as long as its request lives."""
    from collectives.mpi.watch import Watcher
    from collectives.record.activity import Activity
    from collectives.settings import WatchSettings

    class Sending:
        gone = False

        def Test(self) -> bool:
            return self.gone

    class Asked:
        """Rank 0 of two, whom rank 1 asks `questions` times."""

        rank, size, questions = 0, 2, 1

        def __init__(self) -> None:
            self.sent: list[weakref.ref[Sending]] = []

        def Iprobe(self, *arguments: object) -> bool:
            return len(self.sent) < self.questions

        def recv(self, source: int, tag: int) -> tuple[str, int, None]:
            return "ask", len(self.sent), None

        def isend(self, message: object, rank: int, tag: int) -> Sending:
            request = Sending()
            self.sent.append(weakref.ref(request))
            return request

    comm: Any = Asked()
    watcher = Watcher(comm, Activity(), WatchSettings())
    try:
        until(lambda: len(comm.sent) == 1)
        comm.questions = 2
        until(lambda: len(comm.sent) == 2)
        gc.collect()
        first = comm.sent[0]()
        assert first is not None and comm.sent[1]() is not None
        first.gone = True
        del first
        comm.questions = 3
        until(lambda: len(comm.sent) == 3)
    finally:
        watcher.stop()
    gc.collect()
    assert comm.sent[0]() is None and comm.sent[1]() is not None
