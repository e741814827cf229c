"""Writers of checkpoints killed at points of their work. `python -m tests.checkpoint.kills [COUNT]` kills 100, or so
many, at points that are drawn.

A point is the number of a call by which a writer changes what is on the disk (opens, renames, removes, makes durable):
it is killed in front of it, or behind it.
"""

import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from spmd import checkpoint

ROOT = Path(__file__).parents[2]
#: Reads points, and for each has a child write until it is killed there; tells by what signal it has ended.
WRITER = """
import os, signal, sys
import numpy as np
from spmd import checkpoint

EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate", "os.scandir"}


def write_until(point):
    passed = 0

    def die():
        nonlocal passed
        passed += 1
        if passed == point:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched(call):
        def calling(*arguments):
            die()
            result = call(*arguments)
            die()
            return result
        return calling

    os.fsync, os.posix_fadvise = watched(os.fsync), watched(os.posix_fadvise)
    step = (checkpoint.newest(sys.argv[1]) or 0) + 1
    sys.addaudithook(lambda event, arguments: die() if event in EVENTS else None)
    while True:
        checkpoint.save(sys.argv[1], step, {str(leaf): np.full(30_000, step) for leaf in range(8)}, wait=step % 2 == 0)
        step += 1


for line in sys.stdin:
    child = os.fork()
    if child == 0:
        write_until(int(line))
    print(os.WTERMSIG(os.waitpid(child, 0)[1]), flush=True)
"""


def kill_writers(folder: Path, points: Iterable[int]) -> int:
    """Kills a writer into `folder` at each of the points, one after another, and returns the newest step.

    After each kill the newest checkpoint is whole, no older than the one before, and no file is torn: AssertionError,
    or the warning of a torn file as an error.
    """
    last = 0
    command = [sys.executable, "-c", WRITER, folder]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None and writer.stdout is not None
        for point in points:
            writer.stdin.write(f"{point}\n")
            writer.stdin.flush()
            assert writer.stdout.readline() == "9\n", f"the writer was not killed at point {point}"
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                step = checkpoint.newest(folder)
            if step is not None:
                assert step >= last
                last = step
                tree = checkpoint.restore(folder, step)
                assert all((leaf == step).all() for leaf in tree.values())
    return last


if __name__ == "__main__":
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    seed = time.time_ns() % 2**32
    print(f"seed {seed}")
    drawn = np.random.default_rng(seed).integers(1, 200, kills)
    with tempfile.TemporaryDirectory() as place:
        newest = kill_writers(Path(place), map(int, drawn))
    print(f"{kills} writers killed, none left a torn checkpoint; the newest is of step {newest}")
