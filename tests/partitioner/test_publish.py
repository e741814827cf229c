"""The global program with rules, and with propagated shardings, written on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import partitioner
import spmd
from launch.cli import main
from partitioner.publish import with_propagated, with_rules
from tests.partitioner.running import run_parts

_PROGRAM = """
sdy.mesh @mesh = <["x"=4, "y"=2]>
func.func private @relu(%a: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %b = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<8x16xf32>
  %m = stablehlo.maximum %a, %b : tensor<8x16xf32>
  return %m : tensor<8x16xf32>
}
func.func @main(%x: tensor<8x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
                %w: tensor<32x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>})
    -> (tensor<8x16xf32>, tensor<16xf32>) {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<8x32xf32>, tensor<32x16xf32>) -> tensor<8x16xf32>
  %1 = call @relu(%0) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %2 = sdy.sharding_constraint %1 <@mesh, [{"x":(1)2}, {"y", ?}]> : tensor<8x16xf32>
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %3 = stablehlo.reduce(%2 init: %c) applies stablehlo.add across dimensions = [0]
      : (tensor<8x16xf32>, tensor<f32>) -> tensor<16xf32>
  %p = sdy.manual_computation(%2) in_shardings=[<@mesh, [{"x", ?}, {?}]>] out_shardings=[<@mesh, [{"x", ?}, {?}]>]
      manual_axes={"x"} (%q: tensor<2x16xf32>) {
    %s = stablehlo.sine %q : tensor<2x16xf32>
    sdy.return %s : tensor<2x16xf32>
  } : (tensor<8x16xf32>) -> tensor<8x16xf32>
  return %p, %3 : tensor<8x16xf32>, tensor<16xf32>
}
"""


def test_every_op_carries_its_rule() -> None:
    text = str(with_rules(spmd.parse(_PROGRAM)))
    for rule in (
        "{sdy.sharding_rule = #sdy.op_sharding_rule<([i, k], [k, j])->([i, j]) {i=8, j=16, k=32} reduction={k}>}",
        "#sdy.op_sharding_rule<([i, j], [])->([j]) {i=8, j=16} reduction={i}>",
        "#sdy.op_sharding_rule<([], [])->([])>",  # the sum inside of the reduction
        "#sdy.op_sharding_rule<([])->([i, j]) {i=8, j=16}>",
    ):
        assert rule in text
    assert "constant dense<0.000000e+00> {" not in text
    assert str(spmd.parse(text)) == text


def test_every_value_carries_what_propagation_came_to() -> None:
    text = str(with_propagated(spmd.parse(_PROGRAM)))
    for line in (
        "%0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0]"
        ' {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {"y"}]>]>}',
        'sdy.reshard %3 <@mesh, [{"x":(1)2}, {"y"}]>',
        'in_shardings=[<@mesh, [{"x"}, {"y"}]>] out_shardings=[<@mesh, [{"x"}, {"y"}]>] manual_axes={"x"}',
        '{sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {"y"}]>]>} : tensor<2x16xf32>',
        '-> (tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>},'
        ' tensor<16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}]>})',
    ):
        assert line in text
    assert str(spmd.parse(text)) == text


def test_the_propagated_program_is_the_same_program() -> None:
    propagated = str(with_propagated(spmd.parse(_PROGRAM)))
    random = np.random.default_rng(0)
    arguments = [random.integers(-3, 4, shape).astype(np.float32) for shape in ((8, 32), (32, 16))]
    for before, after in zip(run_parts(_PROGRAM, arguments, 8), run_parts(propagated, arguments, 8), strict=True):
        np.testing.assert_array_equal(before, after)


def test_a_program_of_strings_gets_a_mesh() -> None:
    text = """func.func @main(%a: tensor<8x4xf32> {mhlo.sharding = "{devices=[2,2]<=[4]}"}) -> tensor<8x4xf32> {
  %0 = stablehlo.sine %a : tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}"""
    propagated = str(with_propagated(spmd.parse(text)))
    assert "sdy.mesh @mesh = <[" in propagated
    assert "mhlo.sharding" not in propagated
    assert partitioner.partition(spmd.parse(propagated)).in_shardings[0].local_type.shape == (4, 2)


@pytest.mark.parametrize(("option", "shown"), [("--rules", "sdy.sharding_rule"), ("--propagate", "sdy.reshard")])
def test_the_command_prints_them(tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, shown: str) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(_PROGRAM)
    assert main(["partition", option, str(path)]) == 0
    assert shown in capsys.readouterr().out


def test_rules_may_be_conservative(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(
        "func.func @main(%a: tensor<8xf32>) -> tensor<4xf32> {\n"
        "%0 = stablehlo.slice %a [0:4] : (tensor<8xf32>) -> tensor<4xf32>\nreturn %0 : tensor<4xf32>\n}"
    )
    for options, shown in (([], "permutation={i}>"), (["--conservative"], "permutation={i} blocked_propagation={i}>")):
        assert main(["partition", "--rules", *options, str(path)]) == 0
        assert shown in capsys.readouterr().out
