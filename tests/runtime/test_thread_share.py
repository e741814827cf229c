"""A rank's share of the processors, which its numerical libraries get."""

import os
from pathlib import Path

import pytest

from spmd.runtime import thread_share
from spmd.support import machine
from tests import plain_mpirun

PROGRAM = """
import sys
import numpy
import spmd
from spmd.runtime import thread_share
from spmd.runtime.world import ranks
world = ranks()
import scipy.linalg  # loaded after the share was taken
in_force = sorted({threads for _, threads in thread_share.in_force()})
sys.stdout.write(f"{thread_share.taken} {in_force}\\n")  # in one piece
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
    environment = {name: value for name, value in os.environ.items() if name not in thread_share.THREAD_VARIABLES}
    if threads is not None:
        environment["OPENBLAS_NUM_THREADS"] = threads
    done = plain_mpirun.run(PROGRAM, 2, tmp_path, environment)
    expected = max(1, machine.usable_cores() // 2)
    line = f"{expected} [{expected}]" if threads is None else "None [2]"
    assert (done.returncode, done.stdout.splitlines()) == (0, [line] * 2), done.stderr
