"""The suite that every transport passes, on threads."""

from hypothesis import given, settings

from collectives.threads import run
from tests.collectives.cases import Case, cases, same


@settings(max_examples=300, deadline=None)
@given(cases())
def test_collectives_mean_what_the_specification_says(case: Case) -> None:
    expected = case.expected()
    for rank, result in enumerate(run(case.grid.size, case.run)):
        assert same(result, expected[rank]), f"process {rank}: {result!r} where {expected[rank]!r} is meant"
