"""Transposes that are only read by what folds go behind it; the values stay."""

import numpy as np
import pytest

import spmd
from spmd.compiler.transforms.simplify import remove_dead
from spmd.compiler.transforms.transpose_folding import fold_transposes
from spmd.compiler.transforms.transpose_sinking import sink_transposes
from tests.loops import counted_loop

HEAD = "func.func @main(%x: tensor<4x3x5xf32>, %b: tensor<5xf32>, %s: tensor<f32>) -> "
TURNED = "%t = stablehlo.transpose %x, dims = [2, 0, 1] : (tensor<4x3x5xf32>) -> tensor<5x4x3xf32>"
SCALED = f"""{TURNED}
  %w = stablehlo.broadcast_in_dim %b, dims = [0] : (tensor<5xf32>) -> tensor<5x4x3xf32>
  %two = stablehlo.constant dense<2.0> : tensor<5x4x3xf32>
  %m = stablehlo.multiply %t, %w : tensor<5x4x3xf32>
  %c = stablehlo.clamp %s, %m, %s : (tensor<f32>, tensor<5x4x3xf32>, tensor<f32>) -> tensor<5x4x3xf32>
  %a = stablehlo.add %m, %two : tensor<5x4x3xf32>
  %e = stablehlo.subtract %a, %c : tensor<5x4x3xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>"""


def reduced(dims: str, result: str) -> str:
    reduce = f"""%r = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = {dims}
    : (tensor<5x4x3xf32>, tensor<f32>) -> tensor<{result}xf32>"""
    return f"{HEAD} tensor<{result}xf32> {{\n{SCALED}\n{reduce}\nreturn %r : tensor<{result}xf32>\n}}"


MULTIPLIED = f"""{HEAD} tensor<4x3xf32> {{
{SCALED}
%r = stablehlo.dot_general %e, %b, contracting_dims = [0] x [0] : (tensor<5x4x3xf32>, tensor<5xf32>) -> tensor<4x3xf32>
return %r : tensor<4x3xf32>
}}"""


def transposes(module: spmd.Module) -> int:
    function = module.function("main")
    sink_transposes(function.body)
    fold_transposes(function.body)
    remove_dead(function.body)
    spmd.verify(module)
    return sum(op.name == "stablehlo.transpose" for op in function.walk())


@pytest.mark.parametrize(
    ("program", "left"),
    [
        (reduced("[0]", "4x3"), 0),
        (reduced("[1, 2]", "5"), 0),
        (reduced("[2]", "5x4"), 1),  # what is left is in another order
        (MULTIPLIED, 0),
        (MULTIPLIED.replace("%zero =", "%o = stablehlo.reverse %e, dims = [0] : tensor<5x4x3xf32>\n%zero ="), 1),
        (MULTIPLIED.replace("%w = stablehlo.broadcast_in_dim %b, dims = [0] : (tensor<5xf32>)",
                            "%w = stablehlo.exponential %t : tensor<5x4x3xf32>\n%v = stablehlo.broadcast_in_dim %b, "
                            "dims = [0] : (tensor<5xf32>)"), 0),
    ],
)  # fmt: skip
def test_what_is_folded_is_read_as_it_lies(program: str, left: int) -> None:
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal(shape).astype(np.float32) for shape in ((4, 3, 5), (5,), ())]
    (expected,) = spmd.compile(spmd.parse(program), backends=("numpy",))(*arrays)
    module = spmd.parse(program)
    assert transposes(module) == left
    (result,) = spmd.compile(module, backends=("numpy",))(*arrays)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    (native,) = spmd.compile(spmd.parse(program))(*arrays)
    np.testing.assert_allclose(native, expected, rtol=1e-5, atol=1e-5)


def test_what_cannot_be_turned_keeps_its_order() -> None:
    program = f"""func.func @main(%x: tensor<4x3x5xf32>, %y: tensor<5x4x3xf32>) -> tensor<5xf32> {{
      {TURNED}
      %a = stablehlo.add %t, %y : tensor<5x4x3xf32>
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %r = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [1, 2]
        : (tensor<5x4x3xf32>, tensor<f32>) -> tensor<5xf32>
      return %r : tensor<5xf32>
    }}"""
    assert transposes(spmd.parse(program)) == 1


SUMMED = """%zero = stablehlo.constant dense<0.0> : tensor<f32>
      %u = stablehlo.reduce(%t init: %zero) applies stablehlo.add across dimensions = [1, 2]
        : (tensor<5x4x3xf32>, tensor<f32>) -> tensor<5xf32>"""


def test_none_is_taken_into_a_loop() -> None:
    program = f"""func.func @main(%x: tensor<4x3x5xf32>) -> tensor<5xf32> {{
      {TURNED}
      %first = stablehlo.constant dense<0.0> : tensor<5xf32>
    {counted_loop("tensor<5xf32>", SUMMED, 9, "%first")}
      return %r#1 : tensor<5xf32>
    }}"""
    assert transposes(spmd.parse(program)) == 1
