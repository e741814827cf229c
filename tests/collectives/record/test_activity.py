"""What a process keeps of its communications."""

import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collectives.record.activity import Activity, Call, Waiting

CALL = Call("all_reduce", "all_reduce add of 4 float32", (4,), (4,), np.dtype(np.float32), (0, 1), "t.py:3")


@given(kept=st.integers(1, 7), count=st.integers(0, 20))
def test_the_last_ones_are_kept_in_their_order(kept: int, count: int) -> None:
    activity = Activity(kept)
    counter = activity.counter((0, 1))
    for number in range(count):
        event = activity.begin(Waiting(str(number), (1,), (0, 1)), counter)
        event.ended = event.began
        activity.what = None
    events = activity.events()
    assert [waiting.text for waiting, *_ in events] == [str(number) for number in range(count)][-kept:]
    assert [turn for _, turn, _, _ in events] == list(range(count + 1))[1:][-kept:]
    assert activity.total == activity.count == count and activity.begun() == {(0, 1): count}


def test_who_waits_for_what_it_started_waits_as_that_number() -> None:
    activity = Activity(3)
    counter = activity.counter((0, 1))
    started = activity.start(Waiting("first", (1,), (0, 1)), counter)
    assert activity.waiting is None
    key = started.key
    activity.begin(Waiting("second", (1,), (0, 1)), counter)
    for times_around in (False, True):
        if times_around:
            for _ in range(3):
                activity.begin(Waiting("another", (1,), (0, 1)), counter)
        event = activity.resume(key)
        assert (event is started) is not times_around
        assert activity.waiting == Waiting("first", (1,), (0, 1), 1)
        event.ended = event.began
    assert all(ended < began for waiting, _, began, ended in activity.events() if waiting.text == "another")


def test_what_waits_travels_without_the_call() -> None:
    waiting = Waiting("text", (1,), (0, 1), 3, settles=True, call=CALL, finished=True)
    assert pickle.loads(pickle.dumps(waiting)) == Waiting("text", (1,), (0, 1), 3, settles=True, finished=True)
