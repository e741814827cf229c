"""`spmd partition` on the command line."""

from pathlib import Path

import pytest

import spmd
from launch.cli import main

PROGRAM = """func.func @main(%x: tensor<64x32xf32>, %w: tensor<32x16xf32>) -> tensor<64x16xf32> {
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<64x32xf32>, tensor<32x16xf32>) -> tensor<64x16xf32>
  return %y : tensor<64x16xf32>
}"""


def test_a_searched_layout_is_written_and_its_table_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, laid = tmp_path / "plain.mlir", tmp_path / "laid.mlir"
    file.write_text(PROGRAM)
    searched = ["partition", str(file), "--auto", "--mesh", "data=2"]
    assert main([*searched, "-o", str(laid)]) == 0
    assert capsys.readouterr().out == ""
    assert main([*searched, "--table", "-o", str(laid)]) == 0
    out = capsys.readouterr().out
    assert "argument 0: tensor<64x32xf32>" in out and "bytes/process" in out
    assert "sdy.sharding" in str(spmd.load(laid))
