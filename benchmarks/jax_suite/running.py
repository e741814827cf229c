"""Run tests of one file on one client, in child processes that may crash or hang."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from benchmarks.jax_suite import child
from benchmarks.jax_suite.outcomes import CRASHED, FAILED, TIMED_OUT, Outcome, read, worst

ROOT = Path(__file__).parents[2]
#: The platforms that JAX_PLATFORMS names.
OURS, XLA = "spmd", "cpu"
#: Most tests of a process: ending it frees what they leave in memory.
_MOST = 200
_POLL = 0.25
#: Processes are killed after this many times the CPU time limit of a test without output.
_IDLE = 3


@dataclass(frozen=True)
class Settings:
    """`seconds`: CPU time limit of a test; `processes`: of multi-process tests; `folder`: of outcomes."""

    seconds: float
    processes: int
    folder: Path


#: The folder of multi-process tests.
MULTIPROCESS = "multiprocess"


def title_of(file: Path) -> str:
    """Return the name of a test file, with its folder if its tests are multi-process."""
    return f"{MULTIPROCESS}/{file.stem}" if file.parent.name == MULTIPROCESS else file.stem


def _environment(platform: str, settings: Settings, processes: int) -> dict[str, str]:
    environment = {**os.environ, "JAX_PLATFORMS": platform, child.SECONDS: str(settings.seconds)}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH")]))
    if processes > 1:
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            environment[child.ADDRESS] = f"localhost:{probe.getsockname()[1]}"
        environment[child.PROCESSES] = str(processes)
    return environment


def names_of(file: Path) -> list[str]:
    """Return the names of a file's tests."""
    command = [sys.executable, "-m", child.__name__, str(file)]
    environment = {**os.environ, "JAX_PLATFORMS": XLA}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH")]))
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{file} cannot be read as a file of tests:\n{done.stderr[-2000:]}")
    names: list[str] = json.loads(done.stdout.splitlines()[-1])
    return names


class Runs:
    """Runs a file's tests on a platform, and stores their outcomes in a file."""

    def __init__(self, file: Path, platform: str, settings: Settings) -> None:
        self._file, self._platform, self._settings = file, platform, settings
        self._processes = settings.processes if file.parent.name == MULTIPROCESS else 1
        self._out = settings.folder / platform / f"{title_of(file)}.jsonl"
        self._out.parent.mkdir(parents=True, exist_ok=True)

    def outcomes(self, names: Sequence[str]) -> dict[str, Outcome]:
        """Return the outcomes of tests; those that the file already has are not run again."""
        found, _ = read(self._out)
        waiting = [name for name in names if name not in found]
        while waiting:
            self._run(waiting[:_MOST])
            found, _ = read(self._out)
            waiting = [name for name in names if name not in found]
        return {name: found[name] for name in names}

    def _run(self, names: Sequence[str]) -> None:
        """Run tests until all have ended or one ends the process; at least one of them has an outcome then."""
        parts = [self._out] if self._processes == 1 else self._parts()
        before = [part.stat().st_size if part.exists() else 0 for part in parts]
        status, log_text = self._wait(names, parts, before)
        new: dict[str, list[Outcome]] = {}
        for part in parts:
            found, running = read(part)
            ended = [] if running is None else [_ended(running, status, log_text)]
            for outcome in [*(found.values() if part != self._out else ()), *ended]:
                new.setdefault(outcome.name, []).append(outcome)
        if not new and names[0] not in read(self._out)[0]:  # none was started
            new[names[0]] = [Outcome(names[0], CRASHED if status else FAILED, f"it was not run: {log_text}")]
        with self._out.open("a") as out:
            out.writelines(worst(outcomes).line() for outcomes in new.values())
        for part in parts:
            if part != self._out:
                part.unlink(missing_ok=True)

    def _parts(self) -> list[Path]:
        return [self._out.with_name(f"{self._out.name}.{number}") for number in range(self._processes)]

    def _wait(self, names: Sequence[str], parts: Sequence[Path], before: Sequence[int]) -> tuple[int, str]:
        """Wait for the processes, killed if idle; return the exit status and the end of their output."""
        listed, log = self._out.with_suffix(".names"), self._out.with_suffix(".log")
        listed.write_text("".join(f"{name}\n" for name in names))
        with log.open("w") as output:
            running = self._start(listed, output)
            try:
                is_idle = self._watch(running, parts, before)
            finally:  # also when this process is terminated
                for process in running:
                    if process.poll() is None:
                        os.killpg(process.pid, signal.SIGKILL)
            codes = [process.wait() for process in running]
        listed.unlink()
        status = -signal.SIGPROF if is_idle else next((code for code in codes if code), 0)
        log_text = log.read_text(errors="replace")[-3000:]
        log.unlink()
        return status, log_text

    def _watch(self, running: Sequence[subprocess.Popen[bytes]], parts: Sequence[Path], before: Sequence[int]) -> bool:
        """Wait until all processes have ended; return True early if none has made progress for too long."""
        sizes, idle = list(before), 0.0
        while any(process.poll() is None for process in running):
            time.sleep(_POLL)  # counted in polls: time while all are stopped does not count
            now = [part.stat().st_size if part.exists() else 0 for part in parts]
            idle = 0.0 if now != sizes else idle + _POLL
            sizes = now
            if idle > _IDLE * self._settings.seconds:
                return True
        return False

    def _start(self, listed: Path, output: TextIO) -> list[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", child.__name__, str(self._file), str(self._out), str(listed)]
        environment = _environment(self._platform, self._settings, self._processes)
        each: list[dict[str, str]] = [{}]
        if self._processes > 1 and self._platform == OURS:
            command = [sys.executable, "-m", "launch", "launch", "-n", str(self._processes), "--", *command]
        elif self._processes > 1:
            each = [{child.PROCESS: str(number)} for number in range(self._processes)]
        return [
            subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env={**environment, **own}, start_new_session=True
            )
            for own in each
        ]


def _ended(name: str, status: int, log_text: str) -> Outcome:
    """Return the outcome of a test that a process started and did not finish."""
    if status in (-signal.SIGPROF, 128 + signal.SIGPROF):
        return Outcome(name, TIMED_OUT, log_text)
    return Outcome(name, CRASHED, f"the process ended with {status}: {log_text}")
