"""What a step is expected to take is told before it runs, as `spmd predict` tells it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import spmd
from spmd.predict.machine import nominal
from spmd.predict.prediction import predict

jax = pytest.importorskip("jax")

import spmd.jax  # noqa: E402
from spmd.compiler.pipeline.prepare import prepare  # noqa: E402


def _step(w, x):  # type: ignore[no-untyped-def]
    gradient = jax.grad(lambda w: ((x @ w - 1) ** 2).mean())(w)
    return w - 0.1 * jax.lax.pmean(gradient, "data")


def test_the_cost_of_a_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SPMD_MACHINE", raising=False)
    step = spmd.jax.jit(_step, axes={"data": 8})
    w, x = np.zeros(64, np.float32), jax.ShapeDtypeStruct((256, 64), np.float32)
    cost = step.cost(w, x)  # on one process: nothing runs
    prepared = prepare(step.lower(w, x), spmd.ProcessGrid(1, 8), partition=False)
    assert cost.to_json() == predict(prepared, nominal()).to_json()
    assert cost.grid.size == 8 and cost.communicating > 0 and cost.memory.arguments == 4 * (64 + 256 * 64)
    (tmp_path / "slow.toml").write_text(nominal().to_toml().replace("latency = 1.000e-06", "latency = 1"))
    monkeypatch.setenv("SPMD_MACHINE", str(tmp_path / "slow.toml"))
    assert step.cost(w, x).seconds > 1
