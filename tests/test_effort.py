"""An ordinary run takes a part of the cases that a long one takes."""

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from tests import effort

LENGTHS, SIGNS, TYPES = [1, 2, 3, 5, 8], [True, False], ["f32", "f64", "i8"]


class Case:
    """What is looked at of a collected test."""

    def __init__(self, *values: Any) -> None:
        names = ("length", "sign", "type")[: len(values)]
        self.nodeid = f"tests/test_some.py::test_it[{'-'.join(map(str, values))}]"
        self.callspec = SimpleNamespace(params=dict(zip(names, values, strict=True)), marks=[])
        self.given = [pytest.mark.parametrize(name, []).mark for name in names]
        self.is_slow = False
        self.sampled: Any = None

    def get_closest_marker(self, name: str) -> Any:
        return self.sampled

    def iter_markers(self, name: str) -> list[Any]:
        return self.given

    def add_marker(self, mark: Any) -> None:
        self.is_slow = self.is_slow or mark.name == "slow"


def test_each_pair_of_values_is_in_an_ordinary_run() -> None:
    cases: list[Any] = [Case(*values) for values in itertools.product(LENGTHS, SIGNS, TYPES)]
    effort.mark_repetition(cases)
    ordinary = [tuple(case.callspec.params.values()) for case in cases if not case.is_slow]
    assert len(ordinary) < len(cases)
    for left, right in itertools.combinations(range(3), 2):
        whole = itertools.product(*[(LENGTHS, SIGNS, TYPES)[axis] for axis in (left, right)])
        assert {(values[left], values[right]) for values in ordinary} == set(whole)


def test_all_cases_of_two_parameters_are_in_an_ordinary_run() -> None:
    cases: list[Any] = [Case(*values) for values in itertools.product(LENGTHS, SIGNS)]
    effort.mark_repetition(cases)
    assert not any(case.is_slow for case in cases)


@pytest.mark.parametrize("count", [0, 3, 7, 20])
def test_a_sample_has_each_value_of_each_parameter(count: int) -> None:
    cases: list[Any] = [Case(*values) for values in itertools.product(LENGTHS, SIGNS, TYPES)]
    for case in cases:
        case.sampled = pytest.mark.sampled(count).mark
    effort.mark_repetition(cases)
    ordinary = [tuple(case.callspec.params.values()) for case in cases if not case.is_slow]
    assert len(ordinary) == count if count == 20 else len(ordinary) < 12
    assert [set(values) for values in zip(*ordinary, strict=True)] == [set(LENGTHS), set(SIGNS), set(TYPES)]


def test_a_sample_of_one_parameter_has_as_many_cases_as_it_says() -> None:
    cases: list[Any] = [Case(length) for length in range(30)]
    for case in cases:
        case.sampled = pytest.mark.sampled(7).mark
    effort.mark_repetition(cases)
    assert sum(not case.is_slow for case in cases) == 7
