"""`spmd info`: what is installed; what is in force on each rank: `tests.mpi.test_commands`."""

from pathlib import Path

import pytest

from launch.cli import main


def test_the_cache_is_told_of_and_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "some.entry").write_bytes(bytes(3 << 20))
    tmp_path.chmod(0o700)
    monkeypatch.setenv("SPMD_CACHE_DIR", str(tmp_path))

    def told(*arguments: str) -> str:
        assert main(["info", *arguments]) == 0
        return capsys.readouterr().out

    assert f"{tmp_path}: 1 entries, 3.0 MiB" in told()
    assert told("--clear-cache") == "removed 1 entries, 3.0 MiB\n"
    monkeypatch.setenv("SPMD_BACKENDS", "numpy")
    lines = told().splitlines()
    assert any(f"{tmp_path}: 0 entries, 0.0 MiB" in line for line in lines)
    assert any(line.split() == ["back", "ends", "numpy"] for line in lines)
