"""Modules that start functions with shardings as the processes of a grid, and check what those give."""

from __future__ import annotations

from pathlib import Path

import pytest

import spmd
from launch.cli import main

_HEAD = """
sdy.mesh @mesh = <["x"=2, "y"=2]>
sdy.mesh @second = <[], device_ids=[1]>
"""


def _module(function: str, programs: str, body: str) -> spmd.Module:
    return spmd.parse(f"{_HEAD}{function}\nfunc.func @main() {{\n{body.replace('PROGRAMS', programs)}\nreturn\n}}")


_FUNCTION = """
func.func @part(%a: tensor<4xi64> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}, %b: tensor<4xi64>)
    -> (tensor<4xi64> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}, tensor<4xi64>) {
  %0 = stablehlo.add %a, %b {sdy.sharding = #sdy.sharding_per_value<[#sdy.sharding<@mesh, [{"x"}]>]>} : tensor<4xi64>
  %1 = sdy.all_reduce {"y"} %0 out_sharding=<@mesh, [{"x"}]> : tensor<4xi64>
  %2 = sdy.all_gather [{"x"}] %1 out_sharding=<@mesh, [{}]> : tensor<4xi64>
  return %1, %2 : tensor<4xi64>, tensor<4xi64>
}"""
_BODY = """
%0 = stablehlo.constant dense<[1, 2]> : tensor<2xi64>
%1 = stablehlo.constant dense<[3, 4]> : tensor<2xi64>
%b = stablehlo.constant dense<10> : tensor<4xi64>
%r:8 = "interpreter.run_parallel"(%0, %b, %0, %b, %1, %b, %1, %b) {programs = PROGRAMS}
    : (tensor<2xi64>, tensor<4xi64>, tensor<2xi64>, tensor<4xi64>, tensor<2xi64>, tensor<4xi64>, tensor<2xi64>,
       tensor<4xi64>) -> (tensor<2xi64>, tensor<4xi64>, tensor<2xi64>, tensor<4xi64>, tensor<2xi64>, tensor<4xi64>,
       tensor<2xi64>, tensor<4xi64>)
check.expect_eq_const %r#0, dense<[22, 24]> : tensor<2xi64>
check.expect_eq_const %r#4, dense<[26, 28]> : tensor<2xi64>
check.expect_eq_const %r#1, dense<[22, 24, 26, 28]> : tensor<4xi64>
check.expect_eq_const %r#7, dense<[22, 24, 26, 28]> : tensor<4xi64>
"""


@pytest.mark.parametrize("programs", ["[[@part, @part, @part, @part]]", "[[@part], [@part], [@part], [@part]]"])
def test_functions_with_shardings_run_on_their_blocks(programs: str) -> None:
    spmd.compile(_module(_FUNCTION, programs, _BODY))()


def test_what_runs_on_one_device_is_there_for_all() -> None:
    function = """
func.func @add(%a: tensor<2xi64>, %c: tensor<2xi64> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<2xi64> {
  %0 = stablehlo.add %a, %a {sdy.sharding = #sdy.sharding_per_value<[<@second, []>]>} : tensor<2xi64>
  %1 = stablehlo.subtract %0, %c : tensor<2xi64>
  return %1 : tensor<2xi64>
}"""
    body = """
%a = stablehlo.constant dense<[1, 2]> : tensor<2xi64>
%c = stablehlo.constant dense<[1]> : tensor<1xi64>
%r:4 = "interpreter.run_parallel"(%a, %c, %a, %c, %a, %c, %a, %c) {programs = PROGRAMS}
    : (tensor<2xi64>, tensor<1xi64>, tensor<2xi64>, tensor<1xi64>, tensor<2xi64>, tensor<1xi64>, tensor<2xi64>,
       tensor<1xi64>) -> (tensor<2xi64>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>)
check.expect_eq_const %r#0, dense<[1, 3]> : tensor<2xi64>
check.expect_eq_const %r#3, dense<[1, 3]> : tensor<2xi64>
"""
    spmd.compile(_module(function, "[[@add, @add, @add, @add]]", body))()


def test_a_grid_that_the_mesh_does_not_fit() -> None:
    body = """
%a = stablehlo.constant dense<[1, 2]> : tensor<2xi64>
%r:4 = "interpreter.run_parallel"(%a, %b, %a, %b) {programs = PROGRAMS}
    : (tensor<2xi64>, tensor<4xi64>, tensor<2xi64>, tensor<4xi64>)
    -> (tensor<2xi64>, tensor<4xi64>, tensor<2xi64>, tensor<4xi64>)
""".replace("%r", "%b = stablehlo.constant dense<10> : tensor<4xi64>\n%r")
    with pytest.raises(spmd.CompileError, match="the mesh's 4 devices"):
        spmd.compile(_module(_FUNCTION, "[[@part, @part]]", body))


def test_the_command_asks_for_one_of_the_functions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(str(_module(_FUNCTION, "[[@part, @part, @part, @part]]", _BODY)))
    assert main(["partition", str(path)]) == 2
    assert "--function" in capsys.readouterr().err
    assert main(["partition", str(path), "--function", "part"]) == 0
    assert "result 0: tensor<4xi64>" in capsys.readouterr().out
