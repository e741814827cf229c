"""A rank whose second step comes late on rank 1: see test_profiling.py."""

import sys
import time

import numpy as np

import spmd
from spmd.runtime.world import ranks

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
with spmd.profile(sys.argv[1]):
    step(x)
    if ranks().rank == 1:
        time.sleep(0.2)
    during = step(x)[0]
assert before.tobytes() == during.tobytes() == step(x)[0].tobytes()
