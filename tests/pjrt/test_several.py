"""JAX on several devices of spmd's client, in one process and on ranks, gives what it gives on XLA's devices."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).parent / "several_programs.py"
COUNT = 4


def run(command: list[str], **settings: str) -> None:
    of_mpi = ("OMPI_", "PMIX_", "PRTE_")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(of_mpi)}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env={**environment, **settings})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, np.ndarray]:
    """What XLA's client gives on as many devices of one process."""
    file = tmp_path_factory.mktemp("xla") / "results.npz"
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={COUNT}"
    run([sys.executable, str(SCRIPT), str(file), str(COUNT)], JAX_PLATFORMS="cpu", XLA_FLAGS=flags)
    return np.load(file)


def compare(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    assert {name: str(found[name])[-1500:] for name in found if name.endswith("/error")} == {}
    assert set(found) == set(expected) and len(found) > 20
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=2e-5, atol=1e-5, err_msg=name)


def test_devices_of_one_process(tmp_path: Path, expected: Mapping[str, np.ndarray]) -> None:
    file = tmp_path / "results.npz"
    command = [sys.executable, str(SCRIPT), str(file), str(COUNT)]
    run(command, JAX_PLATFORMS="spmd", SPMD_NUM_DEVICES=str(COUNT))
    compare(np.load(file), expected)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [COUNT, 2])
def test_ranks(tmp_path: Path, expected: Mapping[str, np.ndarray], ranks: int) -> None:
    """One device a rank, or several."""
    launch = [sys.executable, "-m", "launch", "launch", "-n", str(ranks), "--", sys.executable]
    settings = {"JAX_PLATFORMS": "spmd", "SPMD_NUM_DEVICES": str(COUNT // ranks)}
    run([*launch, str(SCRIPT), str(tmp_path / "results.npz"), str(COUNT)], **settings)
    for rank in range(ranks):
        compare(np.load(tmp_path / f"results.npz.{rank}.npz"), expected)
