"""Groups of one replica communicate in a branch that the others do not take: nobody waits for who is in no group."""

import numpy as np
import pytest

import spmd
from spmd.analysis.varying.check import check_processes
from tests.runtime.branches import OPS, program, total

REPLICAS = 3
GRID = spmd.ProcessGrid(REPLICAS, 2)


@pytest.mark.parametrize("op", OPS)
def test_threads_and_stacked_processes_agree(op: str) -> None:
    module = spmd.parse(program(op, REPLICAS), name="branch.mlir")
    assert check_processes(module, GRID) == []
    values = 10.0 ** np.arange(GRID.size, dtype=np.float32)
    for results in (
        spmd.run_parallel(module, GRID, [(value,) for value in values]),
        zip(*spmd.simulate(module, GRID)(values), strict=True),
    ):
        assert [float(own[0]) for own in results] == [total(op, REPLICAS)] * GRID.size
