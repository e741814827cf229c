"""The plugin for users' tests, on MPI ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from spmd.testing import Run

pytestmark = pytest.mark.mpi
pytest_plugins = ["spmd.testing"]

SUM = """
    func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = "stablehlo.cross-replica-sum"(%x) {replica_groups = dense<> : tensor<0x0xi64>}
        : (tensor<2xf32>) -> tensor<2xf32>
      return %0 : tensor<2xf32>
    }"""


def test_each_rank_compares_its_own_and_all_fail_together(spmd_run: Run) -> None:
    from mpi4py import MPI

    size = MPI.COMM_WORLD.size
    run = spmd_run(SUM, (size, 1), lambda rank: [np.full(2, rank, np.float32)])
    total = np.full(2, size * (size - 1) / 2, np.float32)
    assert list(run.results) == [MPI.COMM_WORLD.rank]
    run.expect(lambda rank: [total])
    with pytest.raises(AssertionError, match=r"process 1 \(1, 0\), result 0"):
        run.expect(lambda rank: [total + (rank == 1)])
