"""Two-axis grids of a transformer's step: any grid gives the same, and memory stays near what is stacked."""

import tracemalloc
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import spmd
from benchmarks.simulation import (
    ROWS,
    SIZES,
    mlp_arguments,
    mlp_program,
    rounds_program,
    transformer_arguments,
    transformer_program,
    transformer_sizes,
)
from spmd.arrays import Array

SMALL = replace(transformer_sizes(), vocabulary=32, width=16, heads=4, hidden=32, sequence=4, batch=8)


def test_a_larger_grid_gives_what_a_small_one_gives() -> None:
    pytest.importorskip("jax")
    outcomes = []
    for axis in (1, 2, 4):
        module = transformer_program(SMALL, axis)
        assert module is not None
        simulation = spmd.simulate(module, spmd.ProcessGrid(1, axis * axis))
        assert simulation.serial == ()
        outcomes.append(simulation.unshard(*simulation(*simulation.shard(*transformer_arguments(SMALL)))))
    for results in outcomes[1:]:
        for left, right in zip(outcomes[0], results, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-4, atol=2e-4)


def peak(simulation: spmd.Simulation, arrays: Sequence[Array]) -> int:
    """Bytes of the arguments, and the most that is allocated beside them."""
    simulation(*arrays)
    tracemalloc.start()
    try:
        simulation(*arrays)
        return tracemalloc.get_traced_memory()[1] + sum(array.nbytes for array in arrays)
    finally:
        tracemalloc.stop()


def test_memory_is_at_most_three_times_what_is_stacked() -> None:
    processes = 64
    simulation = spmd.simulate(mlp_program(processes), spmd.ProcessGrid(processes, 1))
    arrays = mlp_arguments(processes)
    results = sum(array.nbytes for array in simulation(*arrays, collapse=True))
    hidden = 4 * processes * ROWS * SIZES[1]  # the largest temporary: a layer's values, of all processes
    assert peak(simulation, arrays) <= 3 * (sum(array.nbytes for array in arrays) + results + hidden)


def test_memory_of_rounds_is_that_of_two_values_and_the_result() -> None:
    x = np.ones((512, 64), np.float32)
    simulation = spmd.simulate(rounds_program(512), spmd.ProcessGrid(512, 1))
    assert peak(simulation, [x]) <= 3 * (2 * x.nbytes + x.nbytes)
