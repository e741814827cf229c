"""What reaches the screen: everything the ranks print, without Open MPI's banners on how the job ended."""

import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch import job
from launch.banners import BETWEEN_LINES_SECONDS, RULE, BannerFilter
from launch.streams import QUIET_SECONDS, Stream

KILLED = (
    RULE
    + b"\nprterun noticed that process rank 2 with PID 3398 on node vm exited on\nsignal 9 (Killed).\n"
    + RULE
    + b"\n"
)
EXITED = (
    RULE
    + b"\nprterun detected that one or more processes exited with non-zero status,\n"
    + b"thus causing the job to be terminated. The first process to do so was:\n\n"
    + b"   Process name: [prterun-vm-3580@1,2]\n   Exit code:    3\n"
    + RULE
    + b"\n"
)
ABORTED = (
    RULE + b"\nMPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\n  Errorcode: 1\n" + RULE + b"\n"
) + (RULE + b'\nprterun has exited due to process rank 2 with PID 0 on node vm calling\n"abort".\n' + RULE + b"\n")
WARNING = RULE + b"\nWARNING: no network interface was found.\n" + RULE + b"\n"


def filtered(pieces: list[bytes]) -> tuple[bytes, str]:
    stream = BannerFilter()
    passed = b"".join(stream.feed(piece) for piece in pieces)
    return passed + stream.flush(), stream.cause


@pytest.mark.parametrize(
    ("banner", "cause"),
    [
        (KILLED, "rank 2 (process 3398 on vm) was killed by signal 9 (SIGKILL)"),
        (EXITED, "rank 2 exited with status 3"),
        (ABORTED, ""),
    ],
)
@given(cuts=st.lists(st.integers(0, 400), max_size=5))
def test_ending_banners_are_read_and_dropped_however_they_arrive(banner: bytes, cause: str, cuts: list[int]) -> None:
    text = b"before\n" + banner + b"after\n"
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    passed, told = filtered([text[start:stop] for start, stop in itertools.pairwise(edges)])
    assert passed == b"before\nafter\n"
    assert cause in told


def passed_on(pieces: Sequence[bytes | float], tmp_path: Path) -> bytes:
    """What a stream with a filter of banners passes on of `pieces`: bytes, and seconds of rest between them."""
    reading, writing = os.pipe()
    coming = iter(pieces)

    def has_come(pipe: int, seconds: float) -> bool:
        nonlocal rest
        rest -= seconds
        while rest <= 0:
            piece = next(coming, None)
            if piece is None:
                os.close(writing)
            elif isinstance(piece, bytes):
                os.write(writing, piece)
            else:
                rest = piece
                continue
            rest = 0.0
            return True
        return False

    rest = 0.0
    with (tmp_path / "screen").open("w") as screen:
        stream = Stream(reading, screen, BannerFilter(), has_come=has_come)
        stream.finish()
        os.close(reading)
    return (tmp_path / "screen").read_bytes()


@pytest.mark.parametrize("lines", [1, 2, 3])
def test_a_launcher_may_rest_between_the_lines_of_a_banner(lines: int, tmp_path: Path) -> None:
    written = KILLED.splitlines(keepends=True)
    first, last = b"".join(written[:lines]), b"".join(written[lines:])
    assert passed_on([b"before\n", first, BETWEEN_LINES_SECONDS - QUIET_SECONDS, last], tmp_path) == b"before\n"


def test_what_begins_like_a_banner_is_not_held_for_ever(tmp_path: Path) -> None:
    first, last = KILLED[:100], KILLED[100:]
    assert passed_on([first, BETWEEN_LINES_SECONDS + 2 * QUIET_SECONDS, last], tmp_path) == KILLED


def test_a_rule_that_nothing_follows_reaches_the_screen(capfd: pytest.CaptureFixture[str]) -> None:
    job.run(job.JobStart([sys.executable, "-c", f"import os; os.write(2, {RULE!r})"], {}))
    assert capfd.readouterr().err == RULE.decode()


@given(st.lists(st.sampled_from([b"\n", b"\r", b"-", RULE, RULE[:40], b"loss 0.1", b"x" * 5000, WARNING]), max_size=12))
def test_anything_else_passes_unchanged(pieces: list[bytes]) -> None:
    assert filtered(pieces) == (b"".join(pieces), "")


def test_a_line_that_is_no_rule_is_not_held_back() -> None:
    stream = BannerFilter()
    assert stream.feed(b"\repoch 1: 50%") == b"\repoch 1: 50%"
    assert stream.feed(b"--- a\n") == b"--- a\n"
