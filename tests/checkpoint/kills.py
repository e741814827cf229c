"""Writers of checkpoints killed at random moments. `python -m tests.checkpoint.kills [COUNT]` kills 100, or so many."""

import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from spmd import checkpoint

ROOT = Path(__file__).parents[2]
WRITER = """
import sys, numpy as np
from spmd import checkpoint
step = (checkpoint.newest(sys.argv[1]) or 0) + 1
print("ready", flush=True)
while True:
    checkpoint.save(sys.argv[1], step, {str(leaf): np.full(30_000, step) for leaf in range(8)}, wait=step % 2 == 0)
    step += 1
"""


def kill_writers(folder: Path, count: int, seed: int) -> int:
    """Kills `count` writers into `folder`, one after another, and returns the newest step.

    After each kill the newest checkpoint is whole, no older than the one before, and no file is torn: AssertionError,
    or the warning of a torn file as an error.
    """
    rng = np.random.default_rng(seed)
    last = 0
    for _ in range(count):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, folder], cwd=ROOT, stdout=subprocess.PIPE)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.2))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
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
    with tempfile.TemporaryDirectory() as place:
        newest = kill_writers(Path(place), kills, seed=time.time_ns() % 2**32)
    print(f"{kills} writers killed, none left a torn checkpoint; the newest is of step {newest}")
