"""Programs with shardings on MPI ranks: shard, run, unshard."""

from __future__ import annotations

import numpy as np
import pytest

import partitioner
import spmd

pytestmark = pytest.mark.mpi

_PROGRAM = """
func.func @main(%x: tensor<10x6xf32>, %w: tensor<6x8xf32>) -> (tensor<10x8xf32>, tensor<8xf32>) {
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<10x6xf32>, tensor<6x8xf32>) -> tensor<10x8xf32>
  %r = stablehlo.reverse %y, dims = [0] : tensor<10x8xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%y init: %z) applies stablehlo.add across dimensions = [0]
    : (tensor<10x8xf32>, tensor<f32>) -> tensor<8xf32>
  return %r, %s : tensor<10x8xf32>, tensor<8xf32>
}
"""


@pytest.mark.parametrize("specs", [[("x",), ()], [(None, "x"), ("x",)], [(), (None, "x")], [("x",), ("x",)]])
def test_ranks_give_the_whole_program_s_results(specs: list[tuple[str | None, ...]]) -> None:
    from mpi4py import MPI

    size = MPI.COMM_WORLD.size
    module = partitioner.with_shardings(spmd.parse(_PROGRAM), {"x": size}, specs)
    executable = spmd.compile(module, spmd.ProcessGrid(1, size))
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(shape, np.float32) for shape in ((10, 6), (6, 8)))
    # A rank that is asked by callback makes no more than its own block.
    local = executable.shard(lambda index: x[index], w)
    assert [array.shape for array in local] == [type.shape for type in executable.in_types]
    reversed_, sums = executable.unshard(*executable(*local))
    np.testing.assert_allclose(reversed_, (x @ w)[::-1], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sums, (x @ w).sum(0), rtol=1e-5, atol=1e-5)
