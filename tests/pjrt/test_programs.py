"""JAX on spmd as its own client gives what it gives on XLA's."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")

ROOT = Path(__file__).parents[2]
#: Between two ways of computing the same: parts of the largest value, for types of so many bits of fraction.
BOUNDS = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-5, "complex64": 2e-5}
#: Programs that take long to compile, beside those that are run each time.
LONG = """
random_numbers gradients other_generators solvers small_dtypes updates special_functions sorting transforms scans
batched convolutions indexing networks
"""


def results_on(platform: str, file: Path, names: list[str]) -> Mapping[str, np.ndarray]:
    environment = {**os.environ, "JAX_PLATFORMS": platform}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    script = Path(__file__).parent / "programs.py"
    done = subprocess.run(
        [sys.executable, script, file, *names], capture_output=True, text=True, timeout=600, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return np.load(file)


def programs() -> list[str]:
    """The names of all programs, in their order."""
    text = (Path(__file__).parent / "programs.py").read_text()
    return re.findall(r"^@program\ndef (\w+)", text, re.MULTILINE)


@pytest.mark.parametrize("is_long", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_small_programs_give_what_they_give_on_xla(tmp_path: Path, is_long: bool) -> None:
    names = [name for name in programs() if (name in LONG.split()) is is_long]
    expected = results_on("cpu", tmp_path / "cpu.npz", names)
    found = results_on("spmd", tmp_path / "spmd.npz", names)
    failed = {name: str(found[name])[-1000:] for name in found if name.endswith("/error")}
    assert failed == {}
    assert set(found) == set(expected) and len(found) > 50
    wrong = [name for name in expected if not alike(name, found[name], expected[name])]
    assert wrong == []


def alike(name: str, found: np.ndarray, expected: np.ndarray) -> bool:
    """Whether two results are the same, or next to it where they are floats."""
    if found.shape != expected.shape or found.dtype.kind not in "fc":
        return found.shape == expected.shape and np.array_equal(found, expected)
    bound = BOUNDS.get(name.rpartition("/")[2], 1e-12)
    scale = np.max(np.abs(expected), where=np.isfinite(expected), initial=1.0)
    return bool(np.allclose(found, expected, rtol=bound, atol=bound * scale, equal_nan=True))
