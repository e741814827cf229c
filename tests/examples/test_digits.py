"""The digits example: the same curve on any number of ranks, and the same weights after an interruption."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spmd import checkpoint

ROOT = Path(__file__).parents[2]
TRAIN = str(ROOT / "examples" / "digits" / "train.py")


def start(folder: Path, ranks: int, epochs: int) -> subprocess.Popen[str]:
    launch = [sys.executable, "-m", "launch", "launch", "-n", str(ranks), "--"]
    return subprocess.Popen(
        [*launch, sys.executable, TRAIN, "--epochs", str(epochs), "--checkpoints", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def train(folder: Path, ranks: int, epochs: int) -> tuple[str, dict[str, Any]]:
    job = start(folder, ranks, epochs)
    out, err = job.communicate(timeout=120)
    assert job.returncode == 0, err
    return out, checkpoint.restore(folder)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    return train(tmp_path_factory.mktemp("uninterrupted"), ranks=2, epochs=8)


def test_the_last_line_tells_the_test_accuracy(uninterrupted: tuple[str, dict[str, Any]]) -> None:
    last = uninterrupted[0].rstrip().splitlines()[-1]
    match = re.fullmatch(r"test accuracy (\d+\.\d+)%", last)
    assert match is not None
    assert float(match[1]) > 94


@pytest.mark.slow
def test_the_loss_curve_does_not_depend_on_the_number_of_ranks(
    uninterrupted: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    losses = uninterrupted[1]["losses"]
    for ranks in (1, 4):
        _, other = train(tmp_path / str(ranks), ranks, epochs=8)
        np.testing.assert_allclose(other["losses"], losses, rtol=1e-4)


@pytest.mark.slow
def test_killed_and_resumed_it_ends_with_the_same_weights(
    uninterrupted: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    job = start(tmp_path, ranks=2, epochs=100_000)
    while (rank := _a_rank(job.pid)) is None:
        assert job.poll() is None
    while not checkpoint.steps(tmp_path):
        assert job.poll() is None
        time.sleep(0.001)
    os.kill(rank, signal.SIGKILL)
    _, err = job.communicate(timeout=120)
    assert job.returncode != 0 and "SIGKILL" in err
    step = checkpoint.newest(tmp_path)
    assert step is not None and step < len(uninterrupted[1]["losses"]), "killed too late to have anything left to do"
    out, resumed = train(tmp_path, ranks=2, epochs=8)
    assert "resumed after epoch" in out
    for mine, other in zip(resumed["state"], uninterrupted[1]["state"], strict=True):
        assert mine.tobytes() == other.tobytes()


def _a_rank(launcher: int) -> int | None:
    """The process id of one of the ranks below the launcher; None while there is none."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_text().split("\0")
            parents = _ancestors(int(process.name))
        except OSError:
            continue
        if command[1:2] == [TRAIN] and launcher in parents:
            return int(process.name)
    return None


def _ancestors(process: int) -> list[int]:
    ancestors = []
    while process > 1:
        status = Path(f"/proc/{process}/status").read_text()
        process = int(re.search(r"^PPid:\s+(\d+)", status, re.MULTILINE)[1])  # type: ignore[index]
        ancestors.append(process)
    return ancestors
