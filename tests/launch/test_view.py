"""``spmd view``."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.cli import main
from tests.viewing.programs import LAYERS, LOOP


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "layers.mlir"
    path.write_text(LAYERS)
    return path


def test_a_page_is_written(tmp_path: Path, program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, loop = tmp_path / "page.html", tmp_path / "loop.mlir"
    assert main(["view", str(program), "--grid", "2x4", "-o", str(page)]) == 0
    assert capsys.readouterr().out == f"wrote {page}\n"
    assert page.read_text().startswith("<!doctype html>") and "layers.mlir" in page.read_text()
    loop.write_text(LOOP)
    assert main(["view", str(program), str(loop), "-o", str(page)]) == 0
    assert "layers.mlir beside loop.mlir" in page.read_text()
    assert main(["view", str(loop), "--run", "--random", "3", "-o", str(page)]) == 0
    assert '"seed":3' in page.read_text()


def test_files_that_are_not_there_are_named(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(program), "--profile", "absent.json"]) == 2
    assert main(["view", str(program), "--machine", "absent.toml"]) == 2
    assert main(["view", str(program), "-o", "no/such/folder/page.html"]) == 2
    told = capsys.readouterr().err
    assert "absent.json" in told and "absent.toml" in told and "no/such/folder" in told
