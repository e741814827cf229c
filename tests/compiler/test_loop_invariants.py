"""What a loop computes alike at each turn is computed before it where that is worth it, and if it has no effect."""

import numpy as np
import pytest

import spmd
from spmd.compiler.transforms.loop_invariants import hoist_invariants
from spmd.ir import Op

LOOP = """func.func @main(%x: tensor<8x8xf32>, %n: tensor<i32>, %v: tensor<8xf32>) -> tensor<8xf32> {{
  %r:3 = stablehlo.while(%i = %n, %a = %x, %y = %v) : tensor<i32>, tensor<8x8xf32>, tensor<8xf32>
  cond {{
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %more = stablehlo.compare GT, %i, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }} do {{
    %one = stablehlo.constant dense<1> : tensor<i32>
    %less = stablehlo.subtract %i, %one : tensor<i32>
    {body}
    %next = stablehlo.dot_general %m, %y, contracting_dims = [1] x [0]
      : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8xf32>
    stablehlo.return %less, %{kept}, %next : tensor<i32>, tensor<8x8xf32>, tensor<8xf32>
  }}
  return %r#2 : tensor<8xf32>
}}"""
SQUARE = """%m = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0]
      : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>"""
DOUBLE = "%m = stablehlo.add %a, %a : tensor<8x8xf32>"
SINE = "%s = stablehlo.sine %a : tensor<8x8xf32>\n    %m = stablehlo.add %s, %s : tensor<8x8xf32>"
NESTED = f"""%k, %m = stablehlo.while(%j = %one, %b = %a) : tensor<i32>, tensor<8x8xf32>
    cond {{
      %none = stablehlo.constant dense<0> : tensor<i32>
      %on = stablehlo.compare GT, %j, %none : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %on : tensor<i1>
    }} do {{
      {SQUARE.replace("%m", "%squared")}
      %down = stablehlo.subtract %j, %one : tensor<i32>
      %sum = stablehlo.add %b, %squared : tensor<8x8xf32>
      stablehlo.return %down, %sum : tensor<i32>, tensor<8x8xf32>
    }}"""


def hoisted(body: str, kept: str = "a") -> tuple[list[str], Op]:
    """The names of the ops that stand before the loop, and the loop."""
    function = spmd.parse(LOOP.format(body=body, kept=kept)).function("main")
    hoist_invariants(function.body)
    (loop,) = (op for op in function.body.ops if op.regions)
    before = function.body.ops[: function.body.ops.index(loop)]
    return [op.name.removeprefix("stablehlo.") for op in before], loop


@pytest.mark.parametrize(
    ("body", "expected"), [(SQUARE, ["dot_general"]), (SINE, ["sine", "add"]), (DOUBLE, []), (NESTED, ["dot_general"])]
)
def test_what_is_dear_and_alike_goes_before_the_loop(body: str, expected: list[str]) -> None:
    assert hoisted(body)[0] == expected


def test_what_changes_stays() -> None:
    names, loop = hoisted(SQUARE, kept="m")
    assert names == []
    assert "stablehlo.dot_general" in {op.name for op in loop.regions[1].block.ops}


def test_what_has_an_effect_stays() -> None:
    call = "stablehlo.custom_call @noise(%a) {has_side_effect = true} : (tensor<8x8xf32>) -> tensor<8x8xf32>"
    assert hoisted(f"%m = {call}")[0] == []


@pytest.mark.parametrize("body", [SQUARE, SINE, DOUBLE, NESTED])
@pytest.mark.parametrize("kept", ["a", "m"])
@pytest.mark.parametrize("turns", [0, 1, 3])
def test_results_are_those_of_each_turn(body: str, kept: str, turns: int) -> None:
    x = np.random.default_rng(turns).standard_normal((8, 8)).astype(np.float32) / 4
    (got,) = spmd.compile(spmd.parse(LOOP.format(body=body, kept=kept)))(x, np.int32(turns), x[0])
    a, y = x.astype(np.float64), x[0].astype(np.float64)
    for _ in range(turns):
        m = {SQUARE: a @ a, SINE: 2 * np.sin(a), DOUBLE: a + a, NESTED: a + a @ a}[body]
        a, y = (m if kept == "m" else a), m @ y
    np.testing.assert_allclose(got, y, rtol=1e-4, atol=1e-6)
