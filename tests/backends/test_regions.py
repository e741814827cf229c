"""Regions are recognized by what they compute, not by how they are written."""

from typing import Any

import numpy as np
import pytest

import spmd
from spmd.backends.numpy.comparators import sort_keys
from spmd.backends.numpy.regions import binary_of, extremum_of, monoid_of, monoids_of, returned_argument
from spmd.compiler.lower import Lowering
from spmd.compiler.options import Options
from spmd.ir import Op


def parsed(text: str) -> tuple[Op, Lowering]:
    """The first op with a region in the only function of a program, and a context to make kernels in."""
    from collectives.grid import ProcessGrid

    module = spmd.parse(text)
    op = next(op for op in module.functions[0].body.ops if op.regions)
    return op, Lowering(module, Options(grid=ProcessGrid(1, 1)))


def reduction(lines: str, element: str = "f32", outside: str = "") -> Op:
    return parsed(f"""func.func @main(%x: tensor<4x{element}>, %z: tensor<{element}>) -> tensor<{element}> {{
      {outside}
      %r = "stablehlo.reduce"(%x, %z) <{{dimensions = array<i64: 0>}}> ({{
      ^bb0(%a: tensor<{element}>, %b: tensor<{element}>):
        {lines}
        stablehlo.return %o : tensor<{element}>
      }}) : (tensor<4x{element}>, tensor<{element}>) -> tensor<{element}>
      return %r : tensor<{element}>
    }}""")[0]


@pytest.mark.parametrize("operands", ["%a, %b", "%b, %a"])
@pytest.mark.parametrize("kind", ["add", "multiply", "maximum", "minimum", "and", "or", "xor"])
def test_monoids(kind: str, operands: str) -> None:
    monoid = monoid_of(reduction(f"%o = stablehlo.{kind} {operands} : tensor<i32>", "i32").regions[0])
    assert monoid is not None
    assert monoid.kind == kind
    x = np.array([5, 12], np.int32)
    np.testing.assert_array_equal(monoid.ufunc(monoid.identity, x), x)


@pytest.mark.parametrize("element", ["f32", "bf16", "i4", "ui8", "i1", "complex<f32>", "f8E4M3FN"])
@pytest.mark.parametrize("kind", ["add", "multiply", "maximum", "minimum"])
def test_identities_are_neutral(element: str, kind: str) -> None:
    monoid = monoid_of(reduction(f"%o = stablehlo.{kind} %a, %b : tensor<{element}>", element).regions[0])
    assert monoid is not None
    x = np.array([0, 1]).astype(monoid.compute)
    np.testing.assert_array_equal(monoid.ufunc(x, monoid.identity), x)
    assert np.asarray(monoid.identity).dtype == monoid.compute


def test_what_does_nothing_to_a_scalar_is_seen_through() -> None:
    lines = """%c = stablehlo.convert %a : tensor<f32>
        %d = stablehlo.reshape %b : (tensor<f32>) -> tensor<f32>
        %o = stablehlo.add %d, %c : tensor<f32>"""
    assert monoid_of(reduction(lines).regions[0]) is not None


def test_what_is_no_monoid() -> None:
    assert monoid_of(reduction("%o = stablehlo.subtract %a, %b : tensor<f32>").regions[0]) is None
    assert binary_of(reduction("%o = stablehlo.subtract %a, %b : tensor<f32>").regions[0]) == "subtract"
    assert binary_of(reduction("%o = stablehlo.subtract %b, %a : tensor<f32>").regions[0]) is None
    assert monoid_of(reduction("%o = stablehlo.add %a, %a : tensor<f32>").regions[0]) is None
    outside = "%k = stablehlo.constant dense<1.0> : tensor<f32>"
    assert monoid_of(reduction("%o = stablehlo.add %a, %k : tensor<f32>", outside=outside).regions[0]) is None


def test_arguments_returned_as_they_are() -> None:
    assert returned_argument(reduction("%o = stablehlo.convert %b : tensor<f32>").regions[0]) == 1
    assert returned_argument(reduction("%o = stablehlo.convert %a : tensor<f32>").regions[0]) == 0
    assert returned_argument(reduction("%o = stablehlo.add %a, %b : tensor<f32>").regions[0]) is None


def pairs(lines: str, returned: str, value: str = "f32") -> tuple[Op, Lowering]:
    return parsed(f"""func.func @main(%x: tensor<4x{value}>, %y: tensor<4xi32>, %z: tensor<{value}>, %w: tensor<i32>)
        -> tensor<i32> {{
      %r:2 = "stablehlo.reduce"(%x, %y, %z, %w) <{{dimensions = array<i64: 0>}}> ({{
      ^bb0(%v: tensor<{value}>, %i: tensor<i32>, %u: tensor<{value}>, %j: tensor<i32>):
        %g = stablehlo.compare GT, %v, %u : (tensor<{value}>, tensor<{value}>) -> tensor<i1>
        %l = stablehlo.compare GE, %u, %v : (tensor<{value}>, tensor<{value}>) -> tensor<i1>
        %e = stablehlo.compare EQ, %v, %u : (tensor<{value}>, tensor<{value}>) -> tensor<i1>
        %n = stablehlo.compare NE, %v, %v : (tensor<{value}>, tensor<{value}>) -> tensor<i1>
        {lines}
        stablehlo.return {returned} : tensor<{value}>, tensor<i32>
      }}) : (tensor<4x{value}>, tensor<4xi32>, tensor<{value}>, tensor<i32>) -> (tensor<{value}>, tensor<i32>)
      return %r#1 : tensor<i32>
    }}""")


def found(lines: str, returned: str, value: str = "f32") -> Any:
    op, context = pairs(lines, returned, value)
    return extremum_of(op, 0, context)


def test_extrema_in_several_hands() -> None:
    minimum = """%m = stablehlo.minimum %i, %j : tensor<i32>
        %s = stablehlo.select %g, %i, %j : tensor<i1>, tensor<i32>
        %t = stablehlo.select %e, %m, %s : tensor<i1>, tensor<i32>
        %k = stablehlo.select %g, %v, %u : tensor<i1>, tensor<f32>"""
    extremum = found(minimum, "%k, %t")
    assert (extremum.kind, extremum.tie, extremum.propagates_nan) == ("maximum", "low", False)
    last = """%s = stablehlo.select %g, %i, %j : tensor<i1>, tensor<i32>
        %k = stablehlo.maximum %v, %u : tensor<f32>"""
    extremum = found(last, "%k, %s")
    assert (extremum.kind, extremum.tie) == ("maximum", "last")
    first = """%p = stablehlo.not %l : tensor<i1>
        %q = stablehlo.or %g, %e : tensor<i1>
        %h = stablehlo.or %q, %n : tensor<i1>
        %s = stablehlo.select %h, %i, %j : tensor<i1>, tensor<i32>
        %k = stablehlo.select %h, %v, %u : tensor<i1>, tensor<f32>"""
    extremum = found(first, "%k, %s")
    assert (extremum.kind, extremum.tie, extremum.propagates_nan) == ("maximum", "first", True)
    least = """%s = stablehlo.select %l, %i, %j : tensor<i1>, tensor<i32>
        %k = stablehlo.minimum %u, %v : tensor<f32>"""
    assert found(least, "%k, %s").kind == "minimum"


def test_what_is_no_extremum() -> None:
    other = """%s = stablehlo.select %g, %j, %i : tensor<i1>, tensor<i32>
        %k = stablehlo.maximum %v, %u : tensor<f32>"""
    assert found(other, "%k, %s") is None
    mixed = """%c = stablehlo.compare LT, %v, %j : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %s = stablehlo.select %c, %i, %j : tensor<i1>, tensor<i32>
        %k = stablehlo.maximum %v, %u : tensor<i32>"""
    assert found(mixed, "%k, %s", "i32") is None


def test_independent_monoids() -> None:
    op, _ = pairs("%k = stablehlo.add %v, %u : tensor<f32>\n%s = stablehlo.maximum %j, %i : tensor<i32>", "%k, %s")
    monoids = monoids_of(op.regions[0])
    assert monoids is not None
    assert [monoid.kind for monoid in monoids] == ["add", "maximum"]
    op, _ = pairs("%k = stablehlo.add %v, %u : tensor<f32>\n%s = stablehlo.add %j, %j : tensor<i32>", "%k, %s")
    assert monoids_of(op.regions[0]) is None


def comparator(lines: str) -> Any:
    op, _ = parsed(f"""func.func @main(%x: tensor<4xf32>, %y: tensor<4xi32>) -> tensor<4xi32> {{
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
