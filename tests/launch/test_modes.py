"""spmd run and spmd test: processes as threads, or all of them as one stacked program."""

from pathlib import Path

import numpy as np
import pytest

from launch.cli import main
from tests.compiler.test_stack_runs import PROGRAM, of_two_programs

RANKS = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %i = stablehlo.replica_id : tensor<ui32>
  %f = stablehlo.convert %i : (tensor<ui32>) -> tensor<f32>
  %b = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<2xf32>
  %y = stablehlo.add %x, %b : tensor<2xf32>
  return %y : tensor<2xf32>
}"""


@pytest.mark.parametrize("mode", ["auto", "stacked", "threads"])
def test_run(tmp_path: Path, mode: str) -> None:
    (tmp_path / "p.mlir").write_text(RANKS)
    np.save(tmp_path / "x.npy", np.array([1, 2], np.float32))
    output = tmp_path / "out.npz"
    arguments = [str(tmp_path / "p.mlir"), str(tmp_path / "x.npy"), "--grid", "3x1", "--output", str(output)]
    assert main(["run", *arguments, "--mode", mode]) == 0
    with np.load(output) as results:
        assert [results[f"rank{rank}.result0"].tolist() for rank in range(3)] == [[1, 2], [2, 3], [3, 4]]


@pytest.mark.parametrize("mode", ["auto", "stacked", "threads"])
def test_conformance(tmp_path: Path, mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict(tmp_path, PROGRAM, mode) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 0 failed"
    different = of_two_programs()
    assert verdict(tmp_path, different, mode) == 0
    # Processes of groups in other orders never meet.
    assert verdict(tmp_path, different.replace("[[0, 1]]", "[[1, 0]]", 1), mode) == 1


def verdict(folder: Path, program: str, mode: str) -> int:
    (folder / "case.mlir").write_text(program)
    return main(["test", "--mode", mode, str(folder / "case.mlir")])
