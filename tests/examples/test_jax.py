"""The JAX examples: the same losses on any number of ranks, resumed too, and those of JAX itself."""

import csv
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from spmd import checkpoint

jax = pytest.importorskip("jax")
pytest.importorskip("optax")

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "jax"


def run(name: str, ranks: int, *options: Any) -> str:
    launch = [sys.executable, "-m", "launch", "launch", "-n", str(ranks), "--", sys.executable, str(EXAMPLES / name)]
    job = subprocess.run(
        [*launch, *map(str, options)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert job.returncode == 0, job.stderr
    return job.stdout


def history(folder: Path) -> list[list[float]]:
    with (folder / "metrics.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["epoch", "loss", "accuracy"]
    return [[float(value) for value in row] for row in rows[1:]]


@pytest.mark.slow
def test_the_network_s_losses_do_not_depend_on_ranks_or_interruptions(tmp_path: Path) -> None:
    pytest.importorskip("flax")
    pytest.importorskip("grain")
    printed = run("train.py", 1, "--epochs", 3, "--stop", 2, "--folder", tmp_path / "one")
    for ranks, stop in ((2, 1), (1, 2)):
        run("train.py", ranks, "--epochs", 3, "--stop", stop, "--folder", tmp_path / "two")
    one, two = history(tmp_path / "one"), history(tmp_path / "two")
    assert [row[0] for row in one] == [1, 2] and one[1][1] < one[0][1]
    np.testing.assert_allclose(two, one, rtol=1e-5)
    assert printed.startswith("test accuracy ")


@pytest.mark.slow
def test_the_transformer_learns_as_in_jax_alone(tmp_path: Path) -> None:
    run("sharded.py", 4, "--steps", 6, "--folder", tmp_path)
    example = _module("sharded")
    step, (params, moments) = jax.jit(example.train_step), example.initial()
    for number in range(6):
        params, moments, _ = step(params, moments, example.batch(number))
    restored = checkpoint.restore(tmp_path, 6, like=(params, moments))
    for mine, other in zip(jax.tree.leaves(restored), jax.tree.leaves((params, moments)), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-4)


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
