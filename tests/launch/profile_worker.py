"""A rank whose second step comes on rank 1 when rank 0 has waited for it: see test_profiling.py."""

import sys
from pathlib import Path

import numpy as np
from stages import Stages  # beside this script

import spmd
from collectives.mpi import MpiCommunicator
from spmd.runtime.world import ranks

#: For how long rank 0 waits: far more than the clocks of ranks are told apart by.
AGE_SECONDS = 1.0

PROGRAM = """module @step attributes {mhlo.num_replicas = 2 : i32} {
func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {
  %s = stablehlo.sine %x : tensor<64xf32>
  %y = "stablehlo.cross-replica-sum"(%s) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}
    : (tensor<64xf32>) -> tensor<64xf32>
  return %y : tensor<64xf32>
}
}"""

x = np.linspace(0.0, 1.0, 64, dtype=np.float32)
step = spmd.compile(spmd.parse(PROGRAM, name="step.mlir"))
before = step(x)[0]
world = ranks()
assert isinstance(world, MpiCommunicator)
stages = Stages(world, Path(sys.argv[1]).parent, AGE_SECONDS)
with spmd.profile(sys.argv[1]):
    step(x)
    if world.rank == 1:
        stages.wait_for("second", (0,))
    stages.enter("second")
    during = step(x)[0]
assert before.tobytes() == during.tobytes() == step(x)[0].tobytes()
