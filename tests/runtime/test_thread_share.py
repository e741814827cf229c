"""A rank's share of the processors, which its numerical libraries get."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spmd.runtime import thread_share
from spmd.support import machine

ROOT = Path(__file__).parents[2]
PROGRAM = """
import numpy
import spmd
from spmd.runtime import thread_share
from spmd.runtime.world import ranks
world = ranks()
import scipy.linalg  # loaded after the share was taken
print(thread_share.taken, sorted({threads for _, threads in thread_share.in_force()}), flush=True)
"""


def test_a_share_is_of_those_that_may_run_on_the_same_processors() -> None:
    everything = set(range(8))
    assert thread_share.share(everything, [], 8) == 8
    assert thread_share.share(everything, [everything] * 3, 8) == 2
    assert thread_share.share(everything, [everything] * 15, 8) == 1
    assert thread_share.share({0, 1}, [{2, 3}, {4, 5}], 2) == 2, "bound ranks have theirs to themselves"
    assert thread_share.share({0, 1}, [{1, 2}], 2) == 1


@pytest.mark.parametrize("threads", [None, pytest.param("2", marks=pytest.mark.slow)])
def test_libraries_of_ranks_that_are_told_nothing_get_their_share(threads: str | None, tmp_path: Path) -> None:
    from launch import mpirun

    launcher = mpirun.find()
    if launcher is None or launcher.kind == "srun":
        pytest.skip("ranks are started with mpirun here")
    environment = {name: value for name, value in os.environ.items() if name not in thread_share.THREAD_VARIABLES}
    environment["PYTHONPATH"] = str(ROOT)
    if threads is not None:
        environment["OPENBLAS_NUM_THREADS"] = threads
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    root = ["--allow-run-as-root"] * machine.is_root()
    options = [*root, "--oversubscribe", "--bind-to", "none"] if launcher.kind == "openmpi" else []
    done = subprocess.run(
        [launcher.path, *options, "-n", "2", sys.executable, str(script)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    expected = max(1, machine.usable_cores() // 2)
    line = f"{expected} [{expected}]" if threads is None else "None [2]"
    assert (done.returncode, done.stdout.splitlines()) == (0, [line] * 2), done.stderr
