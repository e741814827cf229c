"""Two-axis grids of a transformer's step: any grid gives the same, and memory stays near what is stacked."""

from dataclasses import replace

import numpy as np
import pytest

import spmd
from benchmarks.simulation import (
    transformer_arguments,
    transformer_program,
    transformer_sizes,
)
from tests.effort import some_slow

SMALL = replace(transformer_sizes(), vocabulary=32, width=16, heads=4, hidden=32, sequence=4, batch=8)


@pytest.mark.parametrize("larger", some_slow([2, 4], 1))
def test_a_larger_grid_gives_what_a_small_one_gives(larger: int) -> None:
    pytest.importorskip("jax")
    outcomes = []
    for axis in (1, larger):
        module = transformer_program(SMALL, axis)
        assert module is not None
        simulation = spmd.simulate(module, spmd.ProcessGrid(1, axis * axis))
        assert simulation.serial == ()
        outcomes.append(simulation.unshard(*simulation(*simulation.shard(*transformer_arguments(SMALL)))))
    for left, right in zip(*outcomes, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=2e-4)
