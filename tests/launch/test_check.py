"""`spmd check` tells what only the specification's text forbids, and with --strict refuses it."""

from pathlib import Path

import pytest

import spmd
from launch.cli import main

TEXT = """func.func @main(%a: tensor<f32>) -> tensor<i1> {
  %0 = stablehlo.compare EQ, %a, %a, SIGNED : (tensor<f32>, tensor<f32>) -> tensor<i1>
  return %0 : tensor<i1>
}
"""


def test_what_the_text_alone_forbids_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.mlir"
    file.write_text(TEXT)
    assert main(["check", str(file)]) == 0
    told = f"{file}:2:8: stablehlo.compare: (C3) compare_type is what the element type has, got SIGNED for f32"
    assert f"warning: {told}" in capfd.readouterr().err
    assert main(["check", "--strict", str(file)]) == 1
    shown = capfd.readouterr().err
    assert told in shown and "warning:" not in shown
    (got,) = spmd.compile(spmd.load(file))(1.5)
    assert got
