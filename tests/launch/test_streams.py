"""What a job writes reaches the screen, or its loss is told; nobody waits for words that cannot be written."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 60.0
#: More than pipes hold: a job whose words nobody takes would wait for ever.
TALK = "import sys; file = getattr(sys, sys.argv[1]); [print('x' * 999, file=file) for _ in range(2000)]; file.flush()"
BYTES = 2_000_000
WAIT = "; import time; [(time.sleep(0.2), print('late', file=file, flush=True)) for _ in range(3000)]"


def job(*arguments: str, program: str = TALK, redirect: str = "") -> subprocess.CompletedProcess[bytes]:
    """`spmd launch` of one rank that talks, in a shell that sends its streams elsewhere."""
    words = [sys.executable, "-m", "launch", "launch", "-n", "1", "--", sys.executable, "-c", program, *arguments]
    shell = f'set -o pipefail; "$@" {redirect}; exit ${{PIPESTATUS[0]}}'
    return subprocess.run(
        ["bash", "-c", shell, "bash", *words], cwd=ROOT, capture_output=True, timeout=SECONDS, check=False
    )


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_full_disk_fails_the_job_when_it_has_ended(stream: str) -> None:
    done = job(stream, redirect=f"{'' if stream == 'stdout' else '2'}>/dev/full")
    assert done.returncode == 1
    told = f"spmd launch: {BYTES} bytes could not be written to standard output: No space left on device\n"
    assert done.stderr.decode() == (told if stream == "stdout" else "")


@pytest.mark.parametrize(("stream", "redirect"), [("stdout", "| head -c 5"), ("stderr", "2>&1 >/dev/null | head -c 5")])
def test_a_reader_that_has_gone_ends_the_job(stream: str, redirect: str) -> None:
    done = job(stream, program=TALK + WAIT, redirect=redirect)
    assert done.returncode == 141 and done.stdout == b"xxxxx"


def test_a_slow_reader_gets_all() -> None:
    """Also when it takes longer than any launcher is given to end after its ranks."""
    assert int(job("stdout", redirect="| (sleep 7; wc -c)").stdout) == BYTES


def test_what_nobody_writes_is_not_lost() -> None:
    assert job("stdout", program="pass", redirect=">/dev/full 2>&1").returncode == 0


def test_a_stream_that_is_closed_cannot_be_written() -> None:
    done = job("stdout", redirect=">&-")
    assert done.returncode == 1 and b"could not be written to standard output" in done.stderr
