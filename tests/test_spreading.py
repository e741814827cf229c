"""What a plain run leaves out, and what it runs one after another, is there."""

from pathlib import Path

import pytest

from tests import spreading

HERE = Path(__file__).parent


@pytest.mark.parametrize("entry", sorted({*spreading.START_RANKS, *spreading.SLOW, *spreading.LONGEST}))
def test_what_is_named_is_there(entry: str) -> None:
    assert (HERE / entry).exists()


def test_what_takes_long_starts_ranks() -> None:
    assert all(any(Path(entry).is_relative_to(each) for each in spreading.START_RANKS) for entry in spreading.SLOW)
