"""A rank that communicates, and then does what the test says: see test_recording.py."""

import os
import signal
import sys
from pathlib import Path

import numpy as np
from stages import Stages, await_all  # beside this script

import spmd
from collectives import failure
from collectives.mpi import MpiCommunicator
from collectives.operations import AllToAll
from collectives.record.records import advice

#: For how long ranks are inside an all_reduce before others are let in: more than records may differ by.
AGE_SECONDS = 0.05
#: For all ranks to write what they recorded at an error: they may be kept waiting, but do write.
WATCHDOG_SECONDS = 120.0

PROGRAM = """module @step attributes {mhlo.num_replicas = 4 : i32} {
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = "stablehlo.cross-replica-sum"(%x) {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}
    : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
}"""


def main(folder: Path, what: str) -> None:
    world = MpiCommunicator.world()
    assert world.watcher is not None
    watcher = world.watcher
    failure.record = lambda reason: advice(watcher.record(reason, WATCHDOG_SECONDS))
    stages = Stages(world, folder, AGE_SECONDS)
    x = np.ones(4, np.float32)
    everybody = world.all_reduce((4,), np.float32)
    half = world.group([0, 1] if world.rank < 2 else [2, 3]).all_gather((2, 3), np.int64, 0)
    everybody(x)  # the first call, for which ranks also wait to compare it
    for turn in range(5):
        if world.rank == 2:
            stages.wait_for(f"turn{turn}", (0, 1, 3))
        stages.enter(f"turn{turn}")
        everybody(x)
        half(np.ones((2, 3), np.int64))
    world.bind_start(AllToAll((4,), np.dtype(np.float32), 0, 0, 4))(x).wait()
    world.send(x, (world.rank + 1) % 4, 5)
    world.receive((4,), np.float32, (world.rank - 1) % 4, 5)
    step = spmd.compile(spmd.parse(PROGRAM, name="step.mlir"))
    step(x)
    stages.enter("last")
    if what == "wait" and world.rank == 3:
        stages.wait_for("last", (0, 1, 2))
        (folder / "ready").touch()
        await_all([folder / "go"])
        os.kill(os.getpid(), signal.SIGUSR1)
        await_all([folder / "own" / "rank_3"])
        raise ValueError("no cheese")
    if what == "other" and world.rank == 3:
        world.checked().all_gather((4,), np.float32, 0)(x)
    world.checked().all_reduce((4,), np.float32)(x)


main(Path(sys.argv[1]), sys.argv[2])
