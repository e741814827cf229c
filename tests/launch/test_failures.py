"""One case of each kind of failure; `python -m tests.launch.failures` runs many.

In an ordinary run those alone that `test_job` does not have on MPI alone.
"""

import pytest

from tests.launch.failures import WORDS, FailureCase

ORDINARY = {"kill", "hang", "mismatch"}


@pytest.mark.parametrize(
    "fault", [fault if fault in ORDINARY else pytest.param(fault, marks=pytest.mark.slow) for fault in WORDS]
)
def test_a_failure_ends_the_job_well(fault: str) -> None:
    assert FailureCase(fault, "all_reduce", ranks=2, victim=1).faults() == []
