"""What is exported runs where there is no JAX; spmd without JAX says so in a sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spmd

jax = pytest.importorskip("jax")

import spmd.jax  # noqa: E402

ROOT = Path(__file__).parents[2]
#: Python in which JAX cannot be imported.
WITHOUT = "import sys; sys.modules['jax'] = None; import numpy as np, spmd; "


def without_jax(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


def function(params: dict[str, Any], x: Any, *, scale: float = 2.0) -> Any:
    return {"total": jax.lax.psum(params["w"] * x * scale, "data"), "w": params["w"]}


def test_an_exported_program_runs_without_jax(tmp_path: Path) -> None:
    path = tmp_path / "step.mlir"
    w, x = np.full(3, 2, np.float32), np.ones(3, np.float32)
    module = spmd.jax.export(function, {"w": w}, x, axes={"data": 4}, path=path)
    assert module.to_string(debug_info=True) == path.read_text()
    (psum,) = [op for op in spmd.load(path).walk() if op.name == "stablehlo.all_reduce"]
    assert f'"function"("{__file__}":' in str(psum.debug_location)
    infos = [entry["jax.arg_info"].value for entry in module.function("main").argument_attributes]
    assert infos == ["params['w']", "x"]
    code = (
        f"m = spmd.load({str(path)!r}); r = spmd.run_parallel(m, inputs=[[np.full(3, 2, 'f4'), np.ones(3, 'f4')]] * 4)"
    )
    answer = without_jax(code + "; print([a.tolist() for a in r[3]])")
    assert answer.stdout == "[[16.0, 16.0, 16.0], [2.0, 2.0, 2.0]]\n", answer.stderr


def test_what_cannot_be_exported_is_told() -> None:
    with pytest.raises(spmd.UsageError, match=r"test_export.py:\d+: a callback into Python cannot be exported"):
        spmd.jax.export(lambda x: jax.debug.print("{x}", x=x), np.ones(3), axes={"data": 2})
    with pytest.raises(spmd.UsageError, match="needs the axes"):
        spmd.jax.export(lambda x: x, np.ones(3))


def test_without_jax_a_sentence_says_so() -> None:
    answer = without_jax("import spmd.jax")
    assert answer.stderr.rstrip().endswith("pip install 'spmd[jax]' installs it")
    assert "spmd.jax needs JAX, which cannot be imported here" in answer.stderr
    assert without_jax("print(spmd.parse, spmd.checkpoint.save)").returncode == 0


def test_importing_spmd_does_not_import_jax() -> None:
    code = "import sys, spmd, spmd.checkpoint; spmd.compile; spmd.run_parallel; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)
