"""Regions are recognized by what they compute, not by how they are written."""

from typing import Any

import numpy as np
import pytest

import spmd
from spmd.analysis.extrema import Extremum, extremum_of
from spmd.analysis.reducers import KINDS, Monoid, binary_of, identity, monoid_of, monoids_of, returned_argument
from spmd.ir import Op
from spmd.types import ELEMENT_TYPES, ElementType, storage_range


def parsed(text: str) -> Op:
    """The first op with a region in the only function of a program."""
    return next(op for op in spmd.parse(text).functions[0].body.ops if op.regions)


def reduction(lines: str, element: str = "f32", outside: str = "") -> Op:
    return parsed(f"""func.func @main(%x: tensor<4x{element}>, %z: tensor<{element}>) -> tensor<{element}> {{
      {outside}
      %r = "stablehlo.reduce"(%x, %z) <{{dimensions = array<i64: 0>}}> ({{
      ^bb0(%a: tensor<{element}>, %b: tensor<{element}>):
        {lines}
        stablehlo.return %o : tensor<{element}>
      }}) : (tensor<4x{element}>, tensor<{element}>) -> tensor<{element}>
      return %r : tensor<{element}>
    }}""")


@pytest.mark.parametrize("operands", ["%a, %b", "%b, %a"])
@pytest.mark.parametrize("kind", ["add", "multiply", "maximum", "minimum", "and", "or", "xor"])
def test_monoids(kind: str, operands: str) -> None:
    monoid = monoid_of(reduction(f"%o = stablehlo.{kind} {operands} : tensor<i32>", "i32").regions[0])
    assert monoid is not None
    assert monoid.kind == kind
    assert monoid.op == f"stablehlo.{kind}"


OPERATIONS = {
    "add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


@pytest.mark.sampled(44)
@pytest.mark.parametrize("element", ELEMENT_TYPES.values(), ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_identities_are_neutral(element: ElementType, kind: str) -> None:
    """Of every value of the types of up to 16 bits, and of both ends of the wider ones, down to the sign of a zero."""
    unit = identity(kind, element)
    if unit is None:
        assert element.numpy is None or element.is_complex or element.is_float
        return
    assert unit.dtype == element.dtype
    values = ends_of(element)
    wide = values.astype(element.dtype if element.is_complex or element.bits >= 32 else working_dtype(element))
    with np.errstate(all="ignore"):
        operation = OPERATIONS[kind] if not element.is_boolean or kind in ("and", "or", "xor") else LOGICAL[kind]
        got = operation(wide, unit.astype(wide.dtype)).astype(element.dtype)
    same = got.view(np.uint8) == values.view(np.uint8)
    nan = np.isnan(wide) if wide.dtype.kind in "fc" else np.zeros(wide.shape, bool)
    assert (same.reshape(len(values), -1).all(1) | nan).all()


LOGICAL = {
    "add": np.logical_or, "maximum": np.logical_or, "multiply": np.logical_and, "minimum": np.logical_and,
}  # fmt: skip


def working_dtype(element: ElementType) -> np.dtype:
    if element.is_float:
        return np.dtype(np.float32)
    return np.dtype(np.int8 if element.is_signed else np.uint8) if element.bits < 8 else element.dtype


def ends_of(element: ElementType) -> np.ndarray:
    """Every value of a narrow type; the ends and the special values of a wide one, none of them infinite if complex."""
    if element.is_boolean:
        return np.array([False, True])
    if element.is_complex:
        return np.array([0, 1, -2.5, 1e30, complex(1, -3), complex(-0.0, 1), complex(-1, 1e-30)], element.dtype)
    if element.is_float:
        if element.bits <= 16:
            return np.arange(1 << element.bits, dtype=f"u{element.dtype.itemsize}").view(element.dtype)
        limits = np.finfo(element.dtype)
        least = limits.smallest_subnormal
        return np.array([0.0, -0.0, 1, limits.max, limits.min, least, -least, np.inf, -np.inf, np.nan], element.dtype)
    low, high = storage_range(element)
    return np.array(sorted({low, low + 1, 0, 1, high - 1, high}), np.int64 if low < 0 else np.uint64).astype(
        element.dtype
    )


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


def pairs(lines: str, returned: str, value: str = "f32") -> Op:
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


def seen_as(lines: str, returned: str, value: str = "f32") -> Any:
    return extremum_of(pairs(lines, returned, value).regions[0])


#: What JAX and others write for the place of an extremum, what is returned of it, and what that is.
IN_SEVERAL_HANDS = [
    (
        """%m = stablehlo.minimum %i, %j : tensor<i32>
        %s = stablehlo.select %g, %i, %j : tensor<i1>, tensor<i32>
        %t = stablehlo.select %e, %m, %s : tensor<i1>, tensor<i32>
        %k = stablehlo.select %g, %v, %u : tensor<i1>, tensor<f32>""",
        "%t",
        ("maximum", "low", False),
    ),
    (
        """%s = stablehlo.select %g, %i, %j : tensor<i1>, tensor<i32>
        %k = stablehlo.maximum %v, %u : tensor<f32>""",
        "%s",
        ("maximum", "last", False),
    ),
    (
        """%p = stablehlo.not %l : tensor<i1>
        %q = stablehlo.or %g, %e : tensor<i1>
        %h = stablehlo.or %q, %n : tensor<i1>
        %s = stablehlo.select %h, %i, %j : tensor<i1>, tensor<i32>
        %k = stablehlo.select %h, %v, %u : tensor<i1>, tensor<f32>""",
        "%s",
        ("maximum", "first", True),
    ),
    (
        """%s = stablehlo.select %l, %i, %j : tensor<i1>, tensor<i32>
        %k = stablehlo.minimum %u, %v : tensor<f32>""",
        "%s",
        ("minimum", "first", False),
    ),
]


@pytest.mark.parametrize(("lines", "place", "known"), IN_SEVERAL_HANDS)
def test_extrema_in_several_hands(lines: str, place: str, known: tuple[str, str, bool]) -> None:
    extremum = seen_as(lines, f"%k, {place}")
    assert (extremum.kind, extremum.tie, extremum.propagates_nan) == known


def test_what_is_no_extremum() -> None:
    other = """%s = stablehlo.select %g, %j, %i : tensor<i1>, tensor<i32>
        %k = stablehlo.maximum %v, %u : tensor<f32>"""
    assert seen_as(other, "%k, %s") is None
    mixed = """%c = stablehlo.compare LT, %v, %j : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %s = stablehlo.select %c, %i, %j : tensor<i1>, tensor<i32>
        %k = stablehlo.maximum %v, %u : tensor<i32>"""
    assert seen_as(mixed, "%k, %s", "i32") is None


def test_independent_monoids() -> None:
    op = pairs("%k = stablehlo.add %v, %u : tensor<f32>\n%s = stablehlo.maximum %j, %i : tensor<i32>", "%k, %s")
    monoids = monoids_of(op.regions[0])
    assert monoids is not None
    assert [monoid.kind for monoid in monoids] == ["add", "maximum"]
    op = pairs("%k = stablehlo.add %v, %u : tensor<f32>\n%s = stablehlo.add %j, %j : tensor<i32>", "%k, %s")
    assert monoids_of(op.regions[0]) is None


def test_a_body_that_computes_in_another_type_is_no_monoid() -> None:
    """It rounds where the op alone does not; a convert to the same type does nothing."""
    promoting = """%c = stablehlo.convert %a : (tensor<bf16>) -> tensor<f32>
        %d = stablehlo.convert %b : (tensor<bf16>) -> tensor<f32>
        %s = stablehlo.add %c, %d : tensor<f32>
        %o = stablehlo.convert %s : (tensor<f32>) -> tensor<bf16>"""
    assert monoid_of(reduction(promoting, "bf16").regions[0]) is None
    plain = """%c = stablehlo.convert %b : tensor<bf16>
        %s = stablehlo.add %c, %a : tensor<bf16>
        %o = stablehlo.convert %s : tensor<bf16>"""
    assert monoid_of(reduction(plain, "bf16").regions[0]) == Monoid("add", ELEMENT_TYPES["bf16"])


def test_the_order_of_values_is_that_of_the_comparison() -> None:
    """FLOAT or TOTALORDER, the latter of NaNs and zeros by their signs."""
    lines = """%c = stablehlo.compare {direction}, %v, %u, {kind} : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %s = stablehlo.select %c, %i, %j : tensor<i1>, tensor<i32>
        %k = stablehlo.select %c, %v, %u : tensor<i1>, tensor<f32>"""
    for direction, kind, tie in (
        ("GT", "maximum", "last"), ("GE", "maximum", "first"), ("LT", "minimum", "last"), ("LE", "minimum", "first"),
    ):  # fmt: skip
        assert seen_as(lines.format(direction=direction, kind="FLOAT"), "%k, %s") == Extremum(kind, False, tie, False)
        assert seen_as(lines.format(direction=direction, kind="TOTALORDER"), "%k, %s") == Extremum(
            kind, True, tie, True
        )
    mixed = """%c = stablehlo.compare GT, %v, %u, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %s = stablehlo.select %c, %i, %j : tensor<i1>, tensor<i32>
        %k = stablehlo.select %g, %v, %u : tensor<i1>, tensor<f32>"""
    assert seen_as(mixed, "%k, %s") is None, "index and value in different orders of zeros and NaNs"


def test_argmax_as_jax_writes_it() -> None:
    lines = """%p = stablehlo.or %g, %n : tensor<i1>
        %q = stablehlo.compare LT, %i, %j, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %t = stablehlo.and %e, %q : tensor<i1>
        %h = stablehlo.or %p, %t : tensor<i1>
        %k = stablehlo.select %p, %v, %u : tensor<i1>, tensor<f32>
        %s = stablehlo.select %h, %i, %j : tensor<i1>, tensor<i32>"""
    assert seen_as(lines, "%k, %s") == Extremum("maximum", False, "low", True)
