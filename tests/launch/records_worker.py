"""A rank that communicates, and then does what the test says: see test_recording.py."""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

import spmd
from collectives.mpi import MpiCommunicator
from collectives.operations import AllToAll

PROGRAM = """module @step attributes {mhlo.num_replicas = 4 : i32} {
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = "stablehlo.cross-replica-sum"(%x) {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}
    : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
}"""


def main(folder: Path, what: str) -> None:
    world = MpiCommunicator.world()
    x = np.ones(4, np.float32)
    everybody = world.all_reduce((4,), np.float32)
    half = world.group([0, 1] if world.rank < 2 else [2, 3]).all_gather((2, 3), np.int64, 0)
    for _ in range(5):
        if world.rank == 2:
            time.sleep(0.05)
        everybody(x)
        half(np.ones((2, 3), np.int64))
    world.bind_start(AllToAll((4,), np.dtype(np.float32), 0, 0, 4))(x).wait()
    world.send(x, (world.rank + 1) % 4, 5)
    world.receive((4,), np.float32, (world.rank - 1) % 4, 5)
    step = spmd.compile(spmd.parse(PROGRAM, name="step.mlir"))
    step(x)
    if what == "wait" and world.rank == 3:
        (folder / "ready").touch()
        while not (folder / "go").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGUSR1)
        while not (folder / "own" / "rank_3").exists():
            time.sleep(0.05)
        raise ValueError("no cheese")
    if what == "other" and world.rank == 3:
        world.checked().all_gather((4,), np.float32, 0)(x)
    world.checked().all_reduce((4,), np.float32)(x)


main(Path(sys.argv[1]), sys.argv[2])
