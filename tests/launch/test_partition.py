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


SHARDED = """sdy.mesh @mesh = <["x"=2]>
func.func @main(%x: tensor<4x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> tensor<4x4xf32> {
  %y = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %y : tensor<4x4xf32>
}"""


def test_the_program_of_one_process_is_written_and_is_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, split = tmp_path / "global.mlir", tmp_path / "split.mlir"
    file.write_text(SHARDED)
    assert main(["partition", str(file), "-o", str(split)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("argument 0: tensor<4x4xf32>") and "func.func" not in out
    assert "@main(%arg0: tensor<2x4xf32>)" in split.read_text()
    assert main(["compare", str(file), str(split)]) == 0
    assert main(["partition", str(file), "--propagate", "-o", str(split)]) == 0
    assert '[<@mesh, [{}, {"x"}]>]' in split.read_text()


def test_options_of_a_search_require_auto(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "global.mlir").write_text(SHARDED)
    assert main(["partition", str(tmp_path / "global.mlir"), "--memory", "1GB"]) == 2
    assert capsys.readouterr().err == "--memory requires --auto\n"
