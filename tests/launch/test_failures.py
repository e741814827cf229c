"""One case of each kind of failure; `python -m tests.launch.failures` runs many."""

import pytest

from tests.launch.failures import WORDS, FailureCase


@pytest.mark.parametrize("fault", WORDS)
def test_a_failure_ends_the_job_well(fault: str) -> None:
    assert FailureCase(fault, "all_reduce", ranks=2, victim=1).faults() == []
