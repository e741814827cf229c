"""Timing in turns, and what is told of it."""

import json
from pathlib import Path

import pytest

from benchmarks.harness import LEAST_ROUNDS, Timing, duration, in_turns, paired_ratio, print_table, write_json


def test_contestants_take_turns_after_one_unmeasured_call_each() -> None:
    calls: list[str] = []
    timings = in_turns({name: lambda name=name: calls.append(name) for name in "ab"}, budget=0.0)
    assert calls == ["a", "b"] * (1 + LEAST_ROUNDS)
    assert all(timing.rounds == LEAST_ROUNDS for timing in timings.values())


def test_spread_is_the_distance_of_the_quartiles_over_the_median() -> None:
    assert Timing.of([1.0, 2.0, 3.0, 4.0, 5.0]) == Timing(median=3.0, fastest=1.0, spread=2 / 3, rounds=5)


def test_a_slow_round_for_both_does_not_change_the_ratio() -> None:
    assert paired_ratio([2, 20, 2], [1, 10, 1]) == 2


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.5, "2.5 s"), (0.0123, "12.3 ms"), (4.56e-6, "4.56 us"), (7.8e-8, "78 ns")]
)
def test_durations_have_the_unit_that_suits(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_columns_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "n"), [("a", "1"), ("long name", "100")])
    assert capsys.readouterr().out == "name         n\na            1\nlong name  100\n"


def test_results_are_written_with_their_machine(tmp_path: Path) -> None:
    write_json(tmp_path / "out.json", {"timing": Timing(1.0, 1.0, 0.0, 5)})
    content = json.loads((tmp_path / "out.json").read_text())
    assert content["timing"] == {"median": 1.0, "fastest": 1.0, "spread": 0.0, "rounds": 5}
    assert content["machine"]["processor"]
