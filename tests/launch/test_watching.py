"""What is made of the records of a running job's ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectives.record.reading import Record, RecordedActivity, RecordedCall
from launch.cli import main
from launch.watching import states


def call(number: int, started: float, completed: float | None, group: str = "all") -> RecordedCall:
    state = "started" if completed is None else "completed"
    return RecordedCall(group, number, "all_reduce", "all_reduce of x", (), state, "p.py:3", False, started, completed)


def record(rank: int, *calls: RecordedCall, steps: tuple[tuple[float, float | None], ...] = ()) -> Record:
    activities = tuple(RecordedActivity("step @main", began, ended) for began, ended in steps)
    return Record(Path(), rank, "", "", True, 100.0, {"all": (0, 1, 2)}, calls, activities)


def test_a_rank_waits_for_those_that_have_not_begun_the_same() -> None:
    records = {
        0: record(0, call(1, 90, 91), call(2, 96, None)),
        1: record(1, call(1, 89, 91), call(2, 97, None)),
        2: record(2, call(1, 90.5, 91), steps=((92, None),)),
    }
    first, second, third = states(records, {1: 1000})
    assert (first.text, first.seconds, first.place) == ("in all_reduce of x, waits for 2", 4.0, "p.py:3")
    assert (second.waits_for, second.seconds, second.memory) == ((2,), 3.0, 1000)
    assert (third.text, third.seconds) == ("computes, step @main", 8.0)
    assert [state.late for state in (first, second, third)] == [1.0, 0.0, 1.5]


def test_ranks_that_do_not_answer_are_not_said_to_be_waited_for() -> None:
    (state,) = states({0: record(0, call(1, 90, None))}, {})
    assert state.waits_for == () and state.late is None


def test_steps_a_second_are_those_of_the_last_ten_seconds() -> None:
    steps = ((0.0, 1.0), *((90.0 + n, 91.0 + n) for n in range(9)))
    assert states({0: record(0, steps=steps)}, {})[0].steps == pytest.approx(1.0)
    assert states({0: record(0, steps=((0.0, 1.0),))}, {})[0].steps is None


def test_a_job_that_is_none_is_said_to_be_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "1"]) == 2
    assert "no job of launcher 1" in capsys.readouterr().err
