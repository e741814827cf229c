"""Running the tests of this folder on real ranks, and bringing their outcomes back.

The session that the user starts has no ranks. It starts them with the project's own launcher, once for all tests that
are selected; there every rank runs the same tests, with pytest-mpi, and notes each outcome in a file as it is known.
A test passes when it passes on every rank. When the ranks cannot finish (one hangs, or dies), the test they were in
fails with what they printed, and the remaining tests run on new ranks.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

REPORTS_VARIABLE = "SPMD_TEST_REPORTS"
RANKS_VARIABLE = "SPMD_TEST_RANKS"
DEFAULT_RANKS = 4
JOB_SECONDS = 1200
STACKS_SECONDS = 100
HANG_SECONDS = 120
ROOT = Path(__file__).parents[2]


def number_of_ranks() -> int:
    return int(os.environ.get(RANKS_VARIABLE, DEFAULT_RANKS))


def inside_ranks() -> bool:
    """Whether this pytest is one of several ranks (and not the session that started them)."""
    sizes = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
    return any(int(os.environ.get(name, 1)) > 1 for name in sizes)


def meet(communicator: Any, overdue: Callable[[], None] | None = None) -> None:
    """Wait until all ranks are here, `HANG_SECONDS` after which `overdue` is called again and again.

    Pauses become longer: MPI's own barrier takes a processor from the ranks that it waits for.
    """
    arrived, deadline, pause = communicator.Ibarrier(), time.monotonic() + HANG_SECONDS, 0.0002
    while not arrived.Test():
        if overdue is not None and time.monotonic() > deadline:
            overdue()
        time.sleep(pause)
        pause = min(1.2 * pause, 0.005)


@dataclass(frozen=True)
class RankOutcome:
    """What one rank says of one phase of one test: ``outcome`` is pytest's word, ``text`` the failure or the reason."""

    nodeid: str
    phase: str
    outcome: str
    text: str
    seconds: float

    def append_to(self, file: Path) -> None:
        with file.open("a") as stream:
            stream.write(json.dumps(asdict(self)) + "\n")


@dataclass(frozen=True)
class RankVerdict:
    """What all ranks together say of a test."""

    outcome: str
    text: str
    seconds: float


def run_on_ranks(nodeids: Sequence[str], options: Sequence[str]) -> dict[str, RankVerdict]:
    """Run tests on ranks, with these further options of pytest, until each has a verdict."""
    verdicts: dict[str, RankVerdict] = {}
    while remaining := [nodeid for nodeid in nodeids if nodeid not in verdicts]:
        verdicts |= _run_job(remaining, options)
    return verdicts


def _run_job(nodeids: Sequence[str], options: Sequence[str]) -> dict[str, RankVerdict]:
    """One job of ranks; gives a verdict to at least the first test."""
    ranks = number_of_ranks()
    with tempfile.TemporaryDirectory(prefix="spmd-tests-") as folder:
        printed = _launch(nodeids, options, ranks, Path(folder))[-20000:]
        heard = [_read(Path(folder) / f"rank-{rank}.jsonl") for rank in range(ranks)]
    if not any(heard):
        return dict.fromkeys(nodeids, RankVerdict("failed", f"The ranks ran no test; they printed:\n{printed}", 0.0))
    verdicts = {}
    for nodeid in nodeids:
        said = [outcomes.get(nodeid, []) for outcomes in heard]
        ended = [any(outcome.phase == "teardown" for outcome in outcomes) for outcomes in said]
        if all(ended):
            verdicts[nodeid] = _judge(said)
        else:
            ending = f"The ranks ended in this test; they printed:\n{printed}"
            verdicts[nodeid] = RankVerdict("failed", "\n".join([*_failures(said), ending]), 0.0)
            break
    return verdicts


def _launch(nodeids: Sequence[str], options: Sequence[str], ranks: int, folder: Path) -> str:
    """Start the ranks; return what they printed."""
    pytest_options = ["--with-mpi", "-q", "--color=no", "-p", "no:cacheprovider", "-m", ""]
    pytest_options += options
    pytest_options += ["-o", f"faulthandler_timeout={STACKS_SECONDS}"]
    command = [sys.executable, "-m", "launch", "launch", "-n", str(ranks), "--"]
    command += [sys.executable, "-m", "pytest", *pytest_options, *nodeids]
    environment = {**os.environ, REPORTS_VARIABLE: str(folder)}
    job = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        printed, _ = job.communicate(timeout=JOB_SECONDS)
        return printed
    except subprocess.TimeoutExpired:
        job.terminate()
        printed, _ = job.communicate()
        return f"{printed}\nended after {JOB_SECONDS} s"


def _read(file: Path) -> dict[str, list[RankOutcome]]:
    outcomes: dict[str, list[RankOutcome]] = {}
    if file.exists():
        for line in file.read_text().splitlines():
            outcome = RankOutcome(**json.loads(line))
            outcomes.setdefault(outcome.nodeid, []).append(outcome)
    return outcomes


def _judge(said: Sequence[Sequence[RankOutcome]]) -> RankVerdict:
    seconds = max(sum(outcome.seconds for outcome in outcomes) for outcomes in said)
    if failures := _failures(said):
        return RankVerdict("failed", "\n".join(failures), seconds)
    skipped = [outcome for outcomes in said for outcome in outcomes if outcome.outcome == "skipped"]
    if skipped:
        return RankVerdict("skipped", skipped[0].text, seconds)
    return RankVerdict("passed", "", seconds)


def _failures(said: Sequence[Sequence[RankOutcome]]) -> list[str]:
    """Each rank's failure under its own heading; ranks that say the same share one."""
    ranks_by_text: dict[str, list[int]] = {}
    for rank, outcomes in enumerate(said):
        for outcome in outcomes:
            if outcome.outcome == "failed":
                ranks_by_text.setdefault(f"({outcome.phase})\n{outcome.text}", []).append(rank)
    return [f"on rank {', '.join(map(str, ranks))} {text}" for text, ranks in ranks_by_text.items()]
