"""Sorts: keys as JAX compares them, total order to the bit, stability, and comparators that are nobody's usual one."""

from functools import cmp_to_key

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spmd
from spmd.backends.numpy.sort_unstable import order_of_ranks
from spmd.types import ELEMENT_TYPES
from tests.backends.modules import assert_are_of_reference, here, main, op, type_of
from tests.backends.together import Cases, Program, drawn, together
from tests.effort import examples

SOME = settings(max_examples=examples(25))
NAN = {"f64": "0x7FF8000000000000", "f32": "0x7FC00000", "f16": "0x7E00", "bf16": "0x7FC0"}


def comparator(elements: list[str], lines: str, returned: str) -> str:
    """A region on %a0, %b0, %a1, %b1, ..., one pair an operand."""
    names = ", ".join(f"%{side}{k}: tensor<{element}>" for k, element in enumerate(elements) for side in "ab")
    return f"({{\n^bb0({names}):\n{lines}\nstablehlo.return {returned} : tensor<i1>\n}})"


def compare(name: str, direction: str, left: str, right: str, element: str, kind: str = "") -> str:
    kind = f", {kind}" if kind else ""
    types = f"(tensor<{element}>, tensor<{element}>) -> tensor<i1>"
    return f"{name} = stablehlo.compare {direction}, {left}, {right}{kind} : {types}"


def canonical(value: str, element: str) -> str:
    """The lines by which JAX makes zeros and NaNs one; the key is {value}k."""
    v = value
    return f"""{v}z = stablehlo.constant dense<0.0> : tensor<{element}>
      {v}n = stablehlo.constant dense<{NAN[element]}> : tensor<{element}>
      {compare(v + "e", "EQ", v, v + "z", element, "FLOAT")}
      {v}s = stablehlo.select {v}e, {v}z, {v} : tensor<i1>, tensor<{element}>
      {compare(v + "q", "NE", v, v, element, "FLOAT")}
      {v}k = stablehlo.select {v}q, {v}n, {v}s : tensor<i1>, tensor<{element}>\n"""


def sort(body: str, dimension: int, *arrays: np.ndarray, stable: bool = True) -> Program:
    names = ", ".join(f"%{k}" for k in range(len(arrays)))
    text = f'"stablehlo.sort"({names}) <{{dimension = {dimension} : i64, is_stable = {str(stable).lower()}}}> {body}'
    results = [(type_of(array)[7:-1].split("x")[-1], array.shape) for array in arrays]
    return Program(op(text, arrays, *results), arrays)


def run_sort(body: str, dimension: int, *arrays: np.ndarray) -> list[np.ndarray]:
    return sort(body, dimension, *arrays).run()


def specials(dtype: np.dtype, shape: tuple[int, ...], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    some = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1, -1, 2, 1e-3])
    return rng.choice(some, shape).astype(dtype)


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("element", NAN)
@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("values", ["special", "usual"])
@together
def test_canonical_order_is_stable(element: str, direction: str, axis: int, values: str) -> Cases:
    """NaNs last (first when descending) and zeros equal, each in their first order, to the bit."""
    dtype = ELEMENT_TYPES[element].dtype
    x = specials(dtype, (30, 40), 0)
    if values == "usual":
        x = np.random.default_rng(0).standard_normal((30, 40)).astype(dtype)
    lines = canonical("%a0", element) + canonical("%b0", element)
    lines += compare("%r", direction, "%a0k", "%b0k", element, "TOTALORDER")
    (got,) = yield sort(comparator([element], lines, "%r"), axis, x)
    key = np.where(np.isnan(x), np.inf, x.astype(np.float64)) + 0.0
    order = [np.isnan(x), key] if direction == "LT" else [~np.isnan(x), -key]
    places = np.lexsort(order[::-1], axis=axis)
    np.testing.assert_array_equal(bits(got), bits(np.take_along_axis(x, places, axis)))


@pytest.mark.parametrize("element", NAN)
@pytest.mark.parametrize("direction", ["LT", "GT"])
@together
def test_total_order(element: str, direction: str) -> Cases:
    """-NaN < -inf < ... < -0 < +0 < ... < inf < NaN."""
    x = specials(ELEMENT_TYPES[element].dtype, (50,), 1)
    body = comparator([element], compare("%r", direction, "%a0", "%b0", element, "TOTALORDER"), "%r")
    (got,) = yield sort(body, 0, x)
    signed = bits(x).astype(np.int64)
    sign = 1 << (8 * x.dtype.itemsize - 1)
    if element == "f64":
        signed = bits(x).view(np.int64)
        rank = np.where(signed < 0, -(2**63) - signed - 1, signed)
    else:
        rank = np.where(signed & sign, -(signed ^ sign) - 1, signed)
    want = x[np.argsort(rank, kind="stable")]
    np.testing.assert_array_equal(bits(got), bits(want if direction == "LT" else want[::-1]))


@pytest.mark.parametrize("element", ["f4E2M1FN", "f6E2M3FN", "f6E3M2FN", "f8E8M0FNU", "f8E4M3FNUZ", "f8E5M2FNUZ"])
@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize("partners", [0, 1])
@together
def test_types_whose_sign_is_not_the_top_bit(element: str, direction: str, partners: int) -> Cases:
    """Total order is by value; the one NaN of the FNUZ types is negative, that of f8E8M0FNU positive."""
    type = ELEMENT_TYPES[element]
    x = np.random.default_rng(0).permutation(np.arange(1 << type.bits, dtype=np.uint8)).view(type.dtype)
    arrays = [x] + [np.arange(x.size, dtype=np.int32)] * partners
    body = comparator(
        [element, "i32"][: 1 + partners], compare("%r", direction, "%a0", "%b0", element, "TOTALORDER"), "%r"
    )
    got = yield sort(body, 0, *arrays)
    values = x.astype(np.float64)
    values[np.isnan(values)] = np.inf if element == "f8E8M0FNU" else -np.inf
    order = np.lexsort([~np.signbit(values), values])
    order = order if direction == "LT" else order[::-1]
    np.testing.assert_array_equal(bits(got[0]), bits(x[order]))
    if partners:
        np.testing.assert_array_equal(got[1], order)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("element", ["i8", "ui8", "i32", "ui32", "i64", "ui64", "i4", "i1", "f32"])
@pytest.mark.parametrize("direction", ["LT", "GT", "LE", "GE"])
@together
@drawn(examples(8), size=st.integers(0, 70), height=st.integers(0, 3), seed=st.integers(0, 99))
def test_values_of_any_type_and_their_partner(element: str, direction: str, size: int, height: int, seed: int) -> Cases:
    dtype = ELEMENT_TYPES[element].dtype
    rng = np.random.default_rng(seed)
    low, high = (0, 2) if element == "i1" else (0, 9) if element.startswith("ui") else (-8, 8)
    x = rng.integers(low, high, (height, size)).astype(dtype)
    if element in ("i64", "ui64") and x.size:
        x[..., 0] = np.iinfo(dtype).max
    places = np.broadcast_to(np.arange(size, dtype=np.int32), x.shape).copy()
    body = comparator([element, "i32"], compare("%r", direction, "%a0", "%b0", element), "%r")
    one = comparator([element], compare("%r", direction, "%a0", "%b0", element), "%r")
    (values, partner), (alone,) = yield sort(body, 1, x, places), sort(one, 1, x)
    key = x.astype(object if "64" in element else np.int64)
    order = np.argsort(-key if direction[0] == "G" else key, axis=1, kind="stable")
    np.testing.assert_array_equal(partner, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))
    np.testing.assert_array_equal(alone, values)


@pytest.mark.parametrize("form", ["or and", "and or", "select", "select not equal"])
@pytest.mark.parametrize(("first", "second"), [("i32", "f32"), ("i8", "i8"), ("f64", "i64")])
@together
@drawn(examples(6), seed=st.integers(0, 99))
def test_several_keys(form: str, first: str, second: str, seed: int) -> Cases:
    """However the lexicographic order is written, and with one key ascending, the other descending."""
    lines = compare("%f", "LT", "%a0", "%b0", first) + "\n" + compare("%s", "GT", "%a1", "%b1", second) + "\n"
    lines += compare("%e", "EQ", "%a0", "%b0", first) + "\n" + compare("%d", "NE", "%b0", "%a0", first) + "\n"
    lines += {
        "or and": "%t = stablehlo.and %e, %s : tensor<i1>\n%r = stablehlo.or %f, %t : tensor<i1>",
        "and or": "%t = stablehlo.and %s, %e : tensor<i1>\n%r = stablehlo.or %t, %f : tensor<i1>",
        "select": "%r = stablehlo.select %e, %s, %f : tensor<i1>, tensor<i1>",
        "select not equal": "%r = stablehlo.select %d, %f, %s : tensor<i1>, tensor<i1>",
    }[form]
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 4, 60).astype(ELEMENT_TYPES[first].dtype)
    y = rng.integers(0, 4, 60).astype(ELEMENT_TYPES[second].dtype)
    places = np.arange(60, dtype=np.int32)
    got = yield sort(comparator([first, second, "i32"], lines, "%r"), 0, x, y, places)
    order = np.lexsort((-y, x))
    for result, operand in zip(got, (x, y, places), strict=True):
        np.testing.assert_array_equal(result, operand[order])


def test_a_key_that_is_computed() -> None:
    """By absolute value, which is no operand."""
    x = np.random.default_rng(0).standard_normal(50).astype(np.float32)
    lines = "%p = stablehlo.abs %a0 : tensor<f32>\n%q = stablehlo.abs %b0 : tensor<f32>\n"
    (got,) = run_sort(comparator(["f32"], lines + compare("%r", "LT", "%p", "%q", "f32"), "%r"), 0, x)
    np.testing.assert_array_equal(got, x[np.argsort(np.abs(x), kind="stable")])


@together
@drawn(examples(25), size=st.integers(1, 200), height=st.integers(1, 3), seed=st.integers(0, 99))
def test_any_comparator(size: int, height: int, seed: int) -> Cases:
    """Even numbers before odd ones, the even ones ascending, the odd ones by descending partner: as a list's sort."""
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 20, (height, size)).astype(np.int32), rng.integers(0, 5, (height, size)).astype(np.int32)
    lines = f"""%one = stablehlo.constant dense<1> : tensor<i32>
      %p = stablehlo.and %a0, %one : tensor<i32>
      %q = stablehlo.and %b0, %one : tensor<i32>
      {compare("%less", "LT", "%p", "%q", "i32")}
      {compare("%same", "EQ", "%p", "%q", "i32")}
      {compare("%odd", "EQ", "%p", "%one", "i32")}
      {compare("%up", "LT", "%a0", "%b0", "i32")}
      {compare("%down", "GT", "%a1", "%b1", "i32")}
      %inner = stablehlo.select %odd, %down, %up : tensor<i1>, tensor<i1>
      %both = stablehlo.and %same, %inner : tensor<i1>
      %r = stablehlo.or %less, %both : tensor<i1>"""
    values, partners = yield sort(comparator(["i32", "i32"], lines, "%r"), 1, x, y)

    def before(left: tuple[int, int], right: tuple[int, int]) -> bool:
        if left[0] % 2 != right[0] % 2:
            return left[0] % 2 < right[0] % 2
        return left[1] > right[1] if left[0] % 2 else left[0] < right[0]

    key = cmp_to_key(lambda left, right: -1 if before(left, right) else int(before(right, left)))
    for row in range(height):
        want = sorted(zip(x[row].tolist(), y[row].tolist(), strict=True), key=key)
        assert list(zip(values[row].tolist(), partners[row].tolist(), strict=True)) == want


def test_a_comparator_that_is_no_order_still_gives_a_permutation() -> None:
    x = np.random.default_rng(0).integers(0, 9, 77).astype(np.int32)
    lines = "%r = stablehlo.constant dense<true> : tensor<i1>"
    (got,) = run_sort(comparator(["i32"], lines, "%r"), 0, x)
    assert sorted(got.tolist()) == sorted(x.tolist())


def test_sorting_an_iota_gives_the_order() -> None:
    x = np.random.default_rng(0).integers(0, 9, (3, 50)).astype(np.float32)
    body = comparator(["f32", "i32"], compare("%r", "GT", "%a0", "%b0", "f32"), "%r")
    lines = f"""%i = stablehlo.iota dim = 1 : tensor<3x50xi32>
      %s:2 = "stablehlo.sort"(%0, %i) <{{dimension = 1 : i64, is_stable = true}}> {body}
        : (tensor<3x50xf32>, tensor<3x50xi32>) -> (tensor<3x50xf32>, tensor<3x50xi32>)"""
    (got,) = here(main(lines, [x], "%s#1 : tensor<3x50xi32>"), x)
    np.testing.assert_array_equal(got, np.argsort(-x, axis=1, kind="stable"))


@pytest.mark.parametrize("shape", [(5,), (16,), (17,), (100,), (256,), (3, 40), (40, 17)])
@pytest.mark.parametrize("distinct", [1, 2, 30])
@pytest.mark.parametrize("direction", ["LT", "GT"])
@together
def test_ties_of_a_small_unstable_sort_are_left_as_by_the_reference(
    shape: tuple[int, ...], distinct: int, direction: str
) -> Cases:
    keys = np.random.default_rng(0).integers(0, distinct, shape).astype(np.int32)
    places = np.arange(keys.size, dtype=np.int32).reshape(shape)
    body = comparator(["i32", "i32"], compare("%c", direction, "%a0", "%b0", "i32"), "%c")
    program = sort(body, len(shape) - 1, keys, places, stable=False)
    results = yield program
    assert_are_of_reference(results, program.text, keys, places)


def test_ties_hang_on_the_length_of_a_row_alone() -> None:
    keys = np.random.default_rng(0).integers(0, 3, (50, 30)).astype(np.int32)
    places = np.tile(np.arange(30, dtype=np.int32), (50, 1))
    body = comparator(["i32", "i32"], compare("%c", "LT", "%a0", "%b0", "i32"), "%c")
    text = f'"stablehlo.sort"(%0, %1) <{{dimension = 1 : i64, is_stable = false}}> {body}'

    def of_rows(rows: int) -> list[np.ndarray]:
        module = spmd.parse(op(text, [keys[:rows], places[:rows]], ("i32", (rows, 30)), ("i32", (rows, 30))))
        stacked = spmd.simulate(module, spmd.ProcessGrid(3, 1))(keys[None, :rows], places[None, :rows])
        results = spmd.compile(module)(keys[:rows], places[:rows])
        for one, several in zip(results, stacked, strict=True):
            np.testing.assert_array_equal(several, np.broadcast_to(one, several.shape))
        return [np.asarray(result) for result in results]

    for few, many in zip(of_rows(2), of_rows(50), strict=True):
        np.testing.assert_array_equal(few, many[:2])


@given(st.lists(st.integers(0, 40), min_size=17, max_size=300))
@SOME
def test_an_unstable_order_is_an_order(ranks: list[int]) -> None:
    for given_ranks in (ranks, sorted(ranks), sorted(ranks, reverse=True), sorted(ranks) + sorted(ranks, reverse=True)):
        row = np.array([given_ranks])
        (order,) = order_of_ranks(row, np.argsort(row, kind="stable"))
        assert sorted(order) == list(range(len(given_ranks)))
        assert row[0, order].tolist() == sorted(given_ranks)


@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize("element", ["complex<f32>", "complex<f64>"])
def test_complex_numbers_are_sorted_by_real_then_imaginary_part(element: str, direction: str) -> None:
    """Alone, and with what goes along."""
    rng = np.random.default_rng(0)
    x = (rng.integers(-3, 3, 40) * 100.5 + 1j * rng.integers(-3, 3, 40)).astype(ELEMENT_TYPES[element].dtype)
    places = np.arange(40, dtype=np.int32)
    sign = 1 if direction == "LT" else -1
    order = np.lexsort((sign * x.imag, sign * x.real))
    line = compare("%r", direction, "%a0", "%b0", element)
    attributes = "<{dimension = 0 : i64, is_stable = true}>"
    alone = f'"stablehlo.sort"(%0) {attributes} {comparator([element], line, "%r")}'
    np.testing.assert_array_equal(here(op(alone, [x], (element, (40,))), x)[0], x[order])
    both = f'"stablehlo.sort"(%0, %1) {attributes} {comparator([element, "i32"], line, "%r")}'
    values, sorted_places = here(op(both, [x, places], (element, (40,)), ("i32", (40,))), x, places)
    np.testing.assert_array_equal(values, x[order])
    np.testing.assert_array_equal(sorted_places, order)
