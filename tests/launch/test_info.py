"""`spmd info`: what is installed, and under MPI what is in force on each rank."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SPMD = [sys.executable, "-m", "launch"]


def test_each_rank_tells_its_processors_and_threads() -> None:
    command = [*SPMD, "launch", "-n", "2", "--threads", "1", "--", *SPMD, "info"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert sum(line.startswith("Python ") for line in lines) == 1, "told once"
    for rank in range(2):
        line = next(line for line in lines if line.startswith(f"rank {rank} "))
        assert ", processors " in line and line.endswith("(as the environment says)")
        assert "openblas" not in line or ": 1" in line


def test_the_cache_is_told_of_and_cleared(tmp_path: Path) -> None:
    (tmp_path / "some.entry").write_bytes(bytes(3 << 20))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPMD_CACHE_DIR": str(tmp_path)}
    tmp_path.chmod(0o700)

    def told(*arguments: str) -> str:
        done = subprocess.run([*SPMD, "info", *arguments], env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert f"{tmp_path}: 1 entries, 3.0 MiB" in told()
    assert told("--clear-cache") == "removed 1 entries, 3.0 MiB\n"
    assert f"{tmp_path}: 0 entries, 0.0 MiB" in told()
    environment["SPMD_BACKENDS"] = "numpy"
    assert any(line.split() == ["back", "ends", "numpy"] for line in told().splitlines())
