"""`spmd test --explore N` runs a file's processes in N orders, and names the seed of one in which a check fails."""

from pathlib import Path

import numpy as np
import pytest

import spmd
from launch.cli import main

FILE = """
func.func @visit(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.custom_call @who_comes(%x) {has_side_effect = true} : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func @main() {
  %x = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.constant dense<1.0> : tensor<f32>
  %r:2 = "interpreter.run_parallel"(%x, %y) {programs = [[@visit], [@visit]]}
    : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
  check.expect_eq_const %r#0, dense<FIRST> : tensor<f32>
  return
}
"""


@pytest.mark.parametrize(("first", "status"), [("0.0", 1), ("7.0", 0)])
def test_orders_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], first: str, status: int) -> None:
    """The function gives what came before it, in whatever order; or, for the right file, always 7."""
    came: list[float] = []

    def who_comes(x: np.ndarray, attributes: object) -> np.ndarray:
        came.append(float(x))
        return np.float32(7 if status == 0 else len(came) % 2 == 0)

    spmd.register_custom_call("who_comes", who_comes)
    path = tmp_path / "order.mlir"
    path.write_text(FILE.replace("FIRST", first))
    assert main(["test", str(path), "-j", "1", "--explore", "8"]) == status
    assert ("in the order of seed" in capsys.readouterr().out) == bool(status)
    if status == 0:
        assert len({tuple(came[at : at + 2]) for at in range(0, 16, 2)}) == 2
