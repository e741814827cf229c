"""Amounts have three digits and a prefix of a thousand's powers."""

import pytest

from spmd.support.amounts import amount


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1e3, "1 kB"),
        (1500, "1.5 kB"),
        (999_499, "999 kB"),
        (999_600, "1 MB"),
        (524_288, "524 kB"),
        (999.7e6, "1 GB"),
        (2.5e15, "2.5 PB"),
    ],
)
def test_amount(number: float, text: str) -> None:
    assert amount(number) == text


def test_units_have_the_prefix() -> None:
    assert amount(18, "operations") == "18 operations"
