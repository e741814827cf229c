"""Programs in integers modulo primes and in wider floats: rounding is told from mistakes, and who is nearer is said."""

from pathlib import Path

import numpy as np
import pytest

import partitioner
import spmd
from launch.cli import main
from tests.comparison.test_compare import GRID, MODEL

SUM = """func.func @main(%x: tensor<4096xf32>, %y: tensor<4096xf32>) -> tensor<f32> {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %p = stablehlo.multiply %x, %y : tensor<4096xf32>
{body}
  return %r : tensor<f32>
}}"""
#: One after another, so that rounding errors add up.
RUNNING = """  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %n = stablehlo.constant dense<4096> : tensor<i32>
  %k, %r = stablehlo.while(%i = %c0, %s = %zero) : tensor<i32>, tensor<f32>
  cond {
    %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  } do {
    %e = stablehlo.dynamic_slice %p, %i, sizes = [1] : (tensor<4096xf32>, tensor<i32>) -> tensor<1xf32>
    %v = stablehlo.reshape %e : (tensor<1xf32>) -> tensor<f32>
    %t = stablehlo.add %s, %v : tensor<f32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %t : tensor<i32>, tensor<f32>
  }"""
PRODUCT = """  %r = stablehlo.dot_general %x, %y, contracting_dims = [0] x [0]
    : (tensor<4096xf32>, tensor<4096xf32>) -> tensor<f32>"""
INPUTS = [np.full(4096, 0.1, np.float32), np.linspace(0, 1, 4096, dtype=np.float32)]


def program(body: str) -> spmd.Module:
    return spmd.parse(SUM.format(body=body))


def test_a_sum_in_another_order_is_rounding() -> None:
    found = spmd.compare(program(RUNNING), program(PRODUCT), INPUTS, tolerance=1e-9, exact=True)
    assert found.first is not None and found.exact is not None
    assert found.exact.same_formula and found.exact.same_wide and found.equal
    assert found.exact.nearer == "right", found
    assert "the difference is rounding" in str(found)


def test_a_mistake_as_small_as_rounding_is_none() -> None:
    """One element of 4,096 is left out: in floats that is nearly nothing, modulo primes it is another number."""
    wrong = program(RUNNING.replace("dense<4096>", "dense<4095>"))
    found = spmd.compare(wrong, program(PRODUCT), INPUTS, exact=True)
    assert found.exact is not None and not found.exact.same_formula and not found.equal


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("one", "other", "formula", "wide"),
    [
        ("stablehlo.negate %s", "stablehlo.subtract %z, %s", True, True),
        ("stablehlo.divide %s, %q", "stablehlo.multiply %s, %h", True, True),
        ("stablehlo.exponential %d", "stablehlo.multiply %e, %e", False, True),
        ("stablehlo.exponential %d", "stablehlo.exponential %s", False, False),
        ("stablehlo.maximum %s, %z", "stablehlo.maximum %z, %s", True, True),
        ("stablehlo.tanh %d", "stablehlo.tanh %b", True, True),
        ("stablehlo.convert %s", "stablehlo.add %s, %i", False, False),
    ],
)
def test_what_is_the_same_formula(one: str, other: str, formula: bool, wide: bool) -> None:
    text = """func.func @main(%s: tensor<5xf32>, %n: tensor<5xi32>) -> tensor<5xf32> {{
      %z = stablehlo.constant dense<0.0> : tensor<5xf32>
      %q = stablehlo.constant dense<4.0> : tensor<5xf32>
      %h = stablehlo.constant dense<0.25> : tensor<5xf32>
      %b = stablehlo.add %s, %s : tensor<5xf32>
      %two = stablehlo.constant dense<2.0> : tensor<5xf32>
      %d = stablehlo.multiply %s, %two : tensor<5xf32>
      %e = stablehlo.exponential %s : tensor<5xf32>
      %i = stablehlo.convert %n : (tensor<5xi32>) -> tensor<5xf32>
      %r = {} : tensor<5xf32>
      return %r : tensor<5xf32>
    }}"""
    inputs = [np.float32([0.3, -1.2, 2.0, 0.0, 0.7]), np.int32([-3, 0, 5, 7, -1])]
    found = spmd.compare(spmd.parse(text.format(one)), spmd.parse(text.format(other)), inputs, exact=True)
    assert found.exact is not None
    assert (found.exact.same_formula, found.exact.same_wide) == (formula, wide), found


def test_negative_integers_are_residues() -> None:
    body = "func.func @main(%n: tensor<4xi32>) -> tensor<4xf32> {{ {} return %r : tensor<4xf32> }}"
    square = """%f = stablehlo.convert %n : (tensor<4xi32>) -> tensor<4xf32>
      %r = stablehlo.multiply %f, %f : tensor<4xf32>"""
    minus = """%m = stablehlo.negate %n : tensor<4xi32> %f = stablehlo.convert %m : (tensor<4xi32>) -> tensor<4xf32>
      %r = stablehlo.multiply %f, %f : tensor<4xf32>"""
    inputs = [np.int32([-3, 0, 5, -100_000])]
    found = spmd.compare(spmd.parse(body.format(square)), spmd.parse(body.format(minus)), inputs, exact=True)
    assert found.exact is not None and found.exact.same_formula


def test_a_partitioned_program_is_the_same_formula() -> None:
    split = str(partitioner.partition(spmd.parse(MODEL), GRID).module)
    found = spmd.compare(spmd.parse(MODEL), spmd.parse(split), grid=GRID, exact=True)
    assert found.exact is not None and found.exact.same_formula, found


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / "running.mlir", tmp_path / "product.mlir"]
    for path, body in zip(paths, (RUNNING, PRODUCT), strict=True):
        path.write_text(SUM.format(body=body))
    command = ["compare", *map(str, paths), "--tolerance", "1e-9"]
    assert main(command) == 1
    assert main([*command, "--exact"]) == 0
    assert "the difference is rounding" in capsys.readouterr().out
