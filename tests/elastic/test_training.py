"""The loop in a process of its own, and what it refuses."""

import threading
from typing import Any

import pytest

import spmd
from spmd.elastic import Training
from spmd.elastic.programs import ProgramsByRanks
from spmd.errors import UsageError


def steps(**options: Any) -> Training:
    return Training(0, **{"examples": 10, "batch": 4, "epochs": 2} | options)


def test_it_is_a_loop_over_epochs_and_their_batches() -> None:
    training, places = steps(), []
    for step in training:
        with step:
            places.append((step.number, step.epoch, step.index, len(step.batch), step.is_last_of_epoch))
            step.commit(step.state + len(step.batch))
    assert places[:3] == [(0, 0, 0, 4, False), (1, 0, 1, 4, False), (2, 0, 2, 2, True)] and len(places) == 6
    assert training.state == 20 and training.finished == 6 and training.changes == []


def test_it_begins_where_it_is_told() -> None:
    assert [step.number for step in steps(start=4) if taken(step)] == [4, 5]
    assert list(steps(start=6)) == []
    with pytest.raises(UsageError, match="start must be a non-negative step"):
        steps(start=-1)


def taken(step: Any) -> bool:
    with step:
        step.commit(step.state)
    return True


def test_a_block_without_a_commit_and_a_step_without_a_block_are_refused() -> None:
    with pytest.raises(UsageError, match="without step"):
        for step in steps():
            with step:
                pass
    with pytest.raises(UsageError, match="run in a block"):
        list(steps())


def test_an_error_of_the_block_is_the_callers() -> None:
    with pytest.raises(ZeroDivisionError):
        for step in steps():
            with step:
                step.commit(1 // 0)


def test_programs_are_built_once_for_a_number_of_ranks() -> None:
    built: list[int] = []
    training = steps(build=lambda ranks: built.append(ranks) or f"for {ranks}")
    assert [step.program for step in training if taken(step)] == ["for 1"] * 6 and built == [1]
    with pytest.raises(UsageError, match="requires the build argument"):
        next(iter(steps())).program  # noqa: B018


@pytest.mark.parametrize(
    ("built", "words"),
    [
        (spmd.parse("func.func @main() { return }"), r"build\(1\) returned a Module, .*spmd.compile\(module"),
        (None, r"build\(1\) returned None: it is to return what computes a step"),
    ],
)
def test_what_computes_no_step_is_refused(built: object, words: str) -> None:
    training = steps(build=lambda ranks: built)
    with pytest.raises(UsageError, match=words):
        next(iter(training)).program  # noqa: B018


def test_what_is_built_ahead_is_waited_for_and_its_error_is_raised_where_it_is_needed() -> None:
    go = threading.Event()

    def build(ranks: int) -> int:
        assert go.wait(10)
        return 1 // (ranks - 3)

    programs = ProgramsByRanks(build)
    programs.make_ahead([4, 3])
    go.set()
    assert programs[4] == 1
    with pytest.raises(ZeroDivisionError):
        programs[3]
