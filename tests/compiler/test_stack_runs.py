"""Grids that a program runs itself become calls of stacked functions; those that cannot are left, with the reason."""

from pathlib import Path

import numpy as np
import pytest

import spmd
from launch.conformance import Case, judge
from spmd.compiler.pipeline.options import Options
from spmd.compiler.stack.runs import RUN, stack_runs

PROGRAM = """
func.func @sum(%x: tensor<2xf32>, %k: !stablehlo.token) -> (tensor<2xf32>, tensor<ui32>, !stablehlo.token) {
  %0 = "stablehlo.all_reduce"(%x) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2xf32>) -> tensor<2xf32>
  %1 = stablehlo.replica_id : tensor<ui32>
  return %0, %1, %k : tensor<2xf32>, tensor<ui32>, !stablehlo.token
}
func.func @main() -> (tensor<2xf32>, tensor<2xf32>, tensor<ui32>) {
  %x = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %y = stablehlo.constant dense<[3.0, 5.0]> : tensor<2xf32>
  %k = stablehlo.create_token : !stablehlo.token
  %r:6 = "interpreter.run_parallel"(%x, %k, %y, %k) {programs = [[@sum], [@sum]]}
    : (tensor<2xf32>, !stablehlo.token, tensor<2xf32>, !stablehlo.token)
    -> (tensor<2xf32>, tensor<ui32>, !stablehlo.token, tensor<2xf32>, tensor<ui32>, !stablehlo.token)
  check.expect_eq_const %r#0, dense<[4.0, 7.0]> : tensor<2xf32>
  return %r#0, %r#3, %r#4 : tensor<2xf32>, tensor<2xf32>, tensor<ui32>
}"""


def test_a_grid_of_one_program() -> None:
    stacked, refused = stack_runs(spmd.parse(PROGRAM), Options())
    spmd.verify(stacked)
    assert not refused
    assert RUN not in str(stacked.function("main"))
    results = spmd.compile(stacked)()
    assert [np.asarray(result).tolist() for result in results] == [[4, 7], [4, 7], 1]


def of_two_programs(change: str = "") -> str:
    """The second process runs a program of its own."""
    other = PROGRAM.split("func.func @main")[0].replace("@sum", "@other").replace("return %0", f"{change}return %0")
    text = PROGRAM.replace("[[@sum], [@sum]]", "[[@sum], [@other]]")
    return text.replace("func.func @main", other + "func.func @main")


@pytest.mark.parametrize(
    ("change", "second"), [("", [4, 7]), ("%n = stablehlo.negate %0 : tensor<2xf32>\n  ", [-4, -7])]
)
def test_a_grid_of_different_programs(change: str, second: list[float]) -> None:
    text = of_two_programs(change)
    if change:
        text = text.replace("tensor<2xf32>\n  return %0, %1", "tensor<2xf32>\n  return %n, %1")
    stacked, refused = stack_runs(spmd.parse(text), Options())
    spmd.verify(stacked)
    assert not refused and RUN not in str(stacked.function("main"))
    assert [np.asarray(result).tolist() for result in spmd.compile(stacked)()] == [[4, 7], second, 1]


def test_a_grid_of_programs_that_may_not_meet_is_left() -> None:
    text = of_two_programs().replace("[[0, 1]]", "[[1, 0]]", 1)
    stacked, refused = stack_runs(spmd.parse(text), Options())
    assert RUN in str(stacked.function("main"))
    assert "with different process groups" in str(refused[0])


@pytest.mark.parametrize("mode", ["threads", "stacked", "auto"])
def test_conformance_files_in_every_mode(mode: str) -> None:
    case = Case(Path("test.mlir"), 0, PROGRAM)
    assert judge(case, mode=mode).problem is None
    wrong = Case(case.path, 0, PROGRAM.replace("dense<[4.0, 7.0]>", "dense<[4.0, 8.0]>"))
    assert "8" in str(judge(wrong, mode=mode).problem)


@pytest.mark.parametrize("mode", ["threads", "stacked", "auto"])
def test_started_functions_with_shardings_in_every_mode(mode: str) -> None:
    """They are partitioned before they are stacked: their arguments are blocks."""
    text = """sdy.mesh @mesh = <["x"=2]>
    func.func @total(%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<f32> {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
      return %0 : tensor<f32>
    }
    func.func @main() {
      %a = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
      %b = stablehlo.constant dense<[3.0, 4.0]> : tensor<2xf32>
      %r:2 = "interpreter.run_parallel"(%a, %b) {programs = [[@total, @total]]}
        : (tensor<2xf32>, tensor<2xf32>) -> (tensor<f32>, tensor<f32>)
      check.expect_eq_const %r#0, dense<10.0> : tensor<f32>
      check.expect_eq_const %r#1, dense<10.0> : tensor<f32>
      return
    }"""
    assert judge(Case(Path("test.mlir"), 0, text), mode=mode).problem is None
