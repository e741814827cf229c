"""What a job writes reaches the screen, or its loss is told; nobody waits for words that cannot be written."""

import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from launch import job
from launch.streams import PATIENCE_SECONDS, Stream
from tests.clocks import WATCHDOG_SECONDS, Clock, until

ROOT = Path(__file__).parents[2]
#: More than pipes hold: a job whose words nobody takes would wait for ever.
TALK = "import sys; file = getattr(sys, sys.argv[1]); [print('x' * 999, file=file) for _ in range(2000)]; file.flush()"
BYTES = 2_000_000
WAIT = "; import time; [(time.sleep(0.02), print('late', file=file, flush=True)) for _ in iter(int, 1)]"
#: Of a full pipe, and of what is on its way through the launcher, no more than this.
HELD_BYTES = 1 << 18


def talk(stream: str, program: str = TALK) -> int:
    """The status of a job whose launcher, here a plain process, talks."""
    return job.run(job.JobStart([sys.executable, "-c", program, stream], {}), patience=job.Patience(look=0.02))


@pytest.fixture
def full() -> Iterator[TextIO]:
    """A disk on which there is no room."""
    with open("/dev/full", "w") as disk:
        yield disk


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_full_disk_fails_the_job_when_it_has_ended(
    stream: str, full: TextIO, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, stream, full)
    assert talk(stream) == 1
    told = f"spmd launch: {BYTES} bytes could not be written to standard output: No space left on device\n"
    assert capfd.readouterr().err == (told if stream == "stdout" else "")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_reader_that_has_gone_ends_the_job(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    read: list[bytes] = []

    def read_five() -> None:
        read.append(os.read(reading, 5))
        os.close(reading)

    reader = threading.Thread(target=read_five)
    reader.start()
    with open(writing, "w") as pipe:
        monkeypatch.setattr(sys, stream, pipe)
        assert talk(stream, TALK + WAIT) == 141
        monkeypatch.undo()
    reader.join()
    assert read == [b"xxxxx"]


def test_a_slow_reader_gets_all() -> None:
    """Also when it takes longer than any launcher is given to end after its ranks."""
    (of_job, to_launcher), (of_launcher, to_reader) = os.pipe(), os.pipe()
    clock = Clock()
    with open(to_reader, "w") as target:
        stream = Stream(of_job, target, has_come=lambda pipe, _: bool(select.select([pipe], [], [])), clock=clock)

        def write() -> None:
            left = BYTES
            while left:
                left -= os.write(to_launcher, b"x" * left)
            os.close(to_launcher)

        writer, finished = threading.Thread(target=write), threading.Thread(target=stream.finish)
        writer.start()
        finished.start()
        read = 0
        while read < BYTES:
            clock.now += 2 * PATIENCE_SECONDS
            assert finished.is_alive() or read > BYTES - HELD_BYTES
            read += len(os.read(of_launcher, 4096))
        for thread in (writer, finished):
            thread.join(WATCHDOG_SECONDS)
    assert read == BYTES and not finished.is_alive() and stream.loss == ""
    for end in (of_job, of_launcher):
        os.close(end)


def test_a_process_that_has_outlived_the_job_holds_its_stream_open_not_for_long() -> None:
    of_job, to_launcher = os.pipe()
    with open(os.devnull, "w") as target:
        stream = Stream(of_job, target, clock=(clock := Clock()))
        until(lambda: stream.is_quiet)
        finished = threading.Thread(target=stream.finish)
        finished.start()
        clock.now += 1.1 * PATIENCE_SECONDS
        finished.join(WATCHDOG_SECONDS)
        assert not finished.is_alive()
        os.close(to_launcher)
        until(lambda: not stream.is_running)
    os.close(of_job)


def test_what_nobody_writes_is_not_lost(full: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, full)
    assert talk("stdout", "pass") == 0


def test_a_stream_that_is_closed_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert talk("stdout") == 1
    assert "could not be written to standard output" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirect", "status", "out", "err"),
    [
        (">/dev/full", 1, "", "No space left on device"),
        ("| head -c 5", 141, "xxxxx", ""),
        (">&-", 1, "", "could not be written to standard output"),
        ("| (sleep 7; wc -c)", 0, f"{BYTES}\n", ""),
    ],
)
def test_streams_of_a_shell(redirect: str, status: int, out: str, err: str) -> None:
    """The same of a real job of one rank."""
    program = TALK + (WAIT if "head" in redirect else "")
    words = [sys.executable, "-m", "launch", "launch", "-n", "1", "--", sys.executable, "-c", program, "stdout"]
    shell = f'set -o pipefail; "$@" {redirect}; exit ${{PIPESTATUS[0]}}'
    command = ["bash", "-c", shell, "bash", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=WATCHDOG_SECONDS, text=True, check=False)
    assert (done.returncode, done.stdout) == (status, out) and err in done.stderr
