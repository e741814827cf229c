"""The examples of the builder: what they print, and that the step built by hand is the exported one."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spmd
from collectives.grid import ProcessGrid
from tests.builder.support import equal, run_replicas, sound

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "builder"


def names_of(example: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / example))


def test_axpy() -> None:
    done = subprocess.run([sys.executable, EXAMPLES / "axpy.py"], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "parameters: f32[3] {12, 24, 36}\nconstants:  f32[3] {12, 24, 36}\n"


def test_max_pooling_and_its_gradient() -> None:
    computation = names_of("max_pooling.py")["pooling_and_gradient"](4, 5)
    images = np.random.default_rng(0).permutation(20).astype(np.float32).reshape(4, 5)
    gradients = np.array([[1, 10], [100, 1000]], np.float32)
    ((pooled, spread),) = run_replicas(computation, [images, gradients])
    windows = [[images[y : y + 2, x : x + 3] for x in (0, 2)] for y in (0, 2)]
    equal(pooled, [[window.max() for window in row] for row in windows])
    expected = np.zeros_like(images)
    for value, gradient in zip(pooled.flat, gradients.flat, strict=True):
        expected[images == value] += gradient
    equal(spread, expected)


@pytest.mark.parametrize("replicas", [1, 2, 4, 8])
def test_the_step_gives_the_losses_of_the_exported_one(replicas: int) -> None:
    example = names_of("digits.py")
    built = sound(example["train_step"](64 // replicas))
    exported = spmd.load(ROOT / "examples" / "digits" / f"train_step_{replicas}.mlir")
    grids = ProcessGrid(num_replicas=replicas), None
    programs = [spmd.compile(module, grid) for module, grid in zip((built, exported), grids, strict=True)]
    data = [example["load_data"](rank, replicas) for rank in range(replicas)]
    batches = zip(*(part.batches(0, 0, rank * 8 // replicas) for rank, part in enumerate(data)), strict=True)
    states = [[example["initial_state"](0)] * replicas for _ in programs]
    for _, batch in zip(range(3), batches, strict=False):
        losses = []
        for program, state in zip(programs, states, strict=True):
            inputs = [[*own, np.float32(0.05), *part] for own, part in zip(state, batch, strict=True)]
            table = [[program]] * replicas if program is programs[0] else [[program] * replicas]
            results = spmd.run_parallel(table, program.grid, inputs)
            state[:] = [list(result[1:]) for result in results]
            losses.append(float(results[0][0]))
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for one, two in zip(states[0][0], states[1][0], strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)
