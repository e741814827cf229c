"""What reaches the screen under MPICH and Intel MPI: what the ranks print, without Hydra's banners."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.hydra_banners import HydraBannerFilter

RULE = b"=" * 83 + b"\n"
MPICH = (
    b"\n" + RULE + b"=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 9057 RUNNING AT vm\n"
    b"=   EXIT CODE: 9\n=   CLEANING UP REMAINING PROCESSES\n=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES\n" + RULE
    + b"YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n"
    b"This typically refers to a problem with your application.\n"
    b"Please see the FAQ page for debugging suggestions\n"
)  # fmt: skip
INTEL = (
    b"\n" + RULE + b"=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   RANK 1 PID 13759 RUNNING AT vm\n"
    b"=   KILLED BY SIGNAL: 9 (Killed)\n" + RULE
)  # fmt: skip
TEXT = b"epoch 1\n\n=====\nepoch 2 ... 50 %\r100 %\n\n\n" + RULE + b"a table's title\n" + RULE


def passed(data: bytes, cuts: list[int]) -> bytes:
    banners = HydraBannerFilter()
    ends = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return b"".join(banners.feed(data[a:b]) for a, b in itertools.pairwise(ends)) + banners.flush()


@pytest.mark.parametrize("banner", [MPICH, INTEL, INTEL * 3, INTEL + MPICH])
@given(st.lists(st.integers(0, 2000), max_size=8))
def test_banners_go_and_all_else_stays(banner: bytes, cuts: list[int]) -> None:
    assert passed(TEXT + banner, cuts) == TEXT
    assert passed(TEXT, cuts) == TEXT


def test_a_line_without_an_end_is_not_kept_waiting() -> None:
    banners = HydraBannerFilter()
    assert banners.feed(b"Continue? ") == b"Continue? "
    assert banners.feed(b"\n") + banners.flush() == b"\n"
