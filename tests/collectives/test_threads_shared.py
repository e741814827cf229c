"""The suite that every transport passes, on threads."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings

from collectives.communicator import Communicator
from collectives.threads import run
from tests.collectives.behaviours import BEHAVIOURS
from tests.collectives.cases import CollectiveCase, cases, same
from tests.effort import examples


@settings(max_examples=examples(300))
@given(cases())
def test_collectives_mean_what_the_specification_says(case: CollectiveCase) -> None:
    expected = case.expected()
    for rank, result in enumerate(run(case.grid.size, case.run)):
        assert same(result, expected[rank]), f"process {rank}: {result!r} where {expected[rank]!r} is meant"


@pytest.mark.sampled(14)
@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda behaviour: behaviour.__name__)
def test_behaviour(behaviour: Callable[[Communicator], None], size: int) -> None:
    run(size, behaviour)
