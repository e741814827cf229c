"""Comparators of sorts are recognized by what they compare, not by how they are written."""

from typing import Any

import spmd
from spmd.analysis.comparators import sort_keys
from spmd.ir import Op


def parsed(text: str) -> Op:
    """The first op with a region in the only function of a program."""
    return next(op for op in spmd.parse(text).functions[0].body.ops if op.regions)


def comparator(lines: str) -> Any:
    op = parsed(f"""func.func @main(%x: tensor<4xf32>, %y: tensor<4xi32>) -> tensor<4xi32> {{
      %k = stablehlo.constant dense<1> : tensor<i32>
      %r:2 = "stablehlo.sort"(%x, %y) <{{dimension = 0 : i64}}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
        {lines}
        stablehlo.return %o : tensor<i1>
      }}) : (tensor<4xf32>, tensor<4xi32>) -> (tensor<4xf32>, tensor<4xi32>)
      return %r#1 : tensor<4xi32>
    }}""")
    return sort_keys(op.regions[0])


def test_keys_of_comparators() -> None:
    floats, ints = "(tensor<f32>, tensor<f32>) -> tensor<i1>", "(tensor<i32>, tensor<i32>) -> tensor<i1>"
    (key,) = comparator(f"%o = stablehlo.compare LT, %c, %d : {ints}")
    assert (key.operand, key.descending) == (1, False)
    (key,) = comparator(f"%o = stablehlo.compare LT, %d, %c : {ints}")
    assert (key.operand, key.descending) == (1, True)
    (key,) = comparator(f"%o = stablehlo.compare GT, %b, %a, TOTALORDER : {floats}")
    assert (key.operand, key.descending, key.total_order, key.canonical) == (0, False, True, False)
    (key,) = comparator(f"%m = stablehlo.add %c, %k : tensor<i32>\n%n = stablehlo.add %k, %d : tensor<i32>\n"
                        f"%o = stablehlo.compare LT, %m, %n : {ints}")  # fmt: skip
    assert key.operand is None
    for lines in (
        f"%o = stablehlo.compare EQ, %a, %b : {floats}",
        f"%o = stablehlo.compare LT, %c, %k : {ints}",
        f"%m = stablehlo.add %c, %d : tensor<i32>\n%o = stablehlo.compare LT, %m, %d : {ints}",
        f"%m = stablehlo.negate %c : tensor<i32>\n%o = stablehlo.compare LT, %m, %d : {ints}",
    ):
        assert comparator(lines) is None
