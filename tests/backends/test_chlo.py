"""CHLO: implicit broadcasting, special values, top_k, ragged_dot, scan."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spmd
from spmd.backends.numpy.elementwise_integer import high_product
from spmd.types import ELEMENT_TYPES
from tests.backends.programs import apply, values_of
from tests.effort import examples


def run(text: str, *arguments: np.ndarray) -> tuple[np.ndarray, ...]:
    return spmd.compile(spmd.parse(text))(*arguments)


# --- implicit broadcasting -------------------------------------------------------------------------------------------


def broadcast(name: str, x: str, y: str, result: str, attributes: str = "") -> str:
    return f"""func.func @main(%x: {x}, %y: {y}) -> {result} {{
      %r = "chlo.broadcast_{name}"(%x, %y) {{{attributes}}} : ({x}, {y}) -> {result}
      return %r : {result}
    }}"""


def test_trailing_dimensions_broadcast_as_in_numpy() -> None:
    x, y = np.arange(6, dtype=np.float32).reshape(2, 1, 3), np.arange(4, dtype=np.float32).reshape(4, 1)
    text = broadcast("subtract", "tensor<2x1x3xf32>", "tensor<4x1xf32>", "tensor<2x4x3xf32>")
    np.testing.assert_array_equal(run(text, x, y)[0], x - y)


def test_broadcast_dimensions_place_the_smaller_operand() -> None:
    x, y = np.arange(6, dtype=np.int32).reshape(2, 3), np.int32([10, 20])
    attributes = "broadcast_dimensions = array<i64: 0>"
    text = broadcast("add", "tensor<2x3xi32>", "tensor<2xi32>", "tensor<2x3xi32>", attributes)
    assert run(text, x, y)[0].tolist() == [[10, 11, 12], [23, 24, 25]]


def test_scalars_and_empty_tensors_broadcast() -> None:
    text = broadcast("maximum", "tensor<f32>", "tensor<0x2xf32>", "tensor<0x2xf32>")
    assert run(text, np.float32(1), np.zeros((0, 2), np.float32))[0].shape == (0, 2)


def test_compare_select_and_complex() -> None:
    direction = "comparison_direction = #chlo<comparison_direction GT>"
    text = broadcast("compare", "tensor<3xi32>", "tensor<i32>", "tensor<3xi1>", direction)
    assert run(text, np.int32([1, 2, 3]), np.int32(2))[0].tolist() == [False, False, True]
    text = broadcast("complex", "tensor<2xf32>", "tensor<1xf32>", "tensor<2xcomplex<f32>>")
    assert run(text, np.float32([1, 2]), np.float32([5]))[0].tolist() == [1 + 5j, 2 + 5j]
    text = """func.func @main(%p: tensor<i1>, %x: tensor<2x1xf32>, %y: tensor<3xf32>) -> tensor<2x3xf32> {
      %r = chlo.broadcast_select %p, %x, %y : (tensor<i1>, tensor<2x1xf32>, tensor<3xf32>) -> tensor<2x3xf32>
      return %r : tensor<2x3xf32>
    }"""
    x, y = np.float32([[1], [2]]), np.float32([3, 4, 5])
    assert run(text, np.True_, x, y)[0].tolist() == [[1, 1, 1], [2, 2, 2]]
    assert run(text, np.False_, x, y)[0].tolist() == [[3, 4, 5]] * 2


def test_broadcasting_of_dynamic_shapes() -> None:
    text = broadcast("multiply", "tensor<?x3xf32>", "tensor<?xf32>", "tensor<?x3xf32>")
    x, y = np.ones((2, 3), np.float32), np.float32([1, 2, 3])
    assert run(text, x, y)[0].tolist() == [[1, 2, 3]] * 2


# --- functions -------------------------------------------------------------------------------------------------------


def test_special_values() -> None:
    inf, nan = np.inf, np.nan
    cases = {
        "erf": ([0, inf, -inf, nan], [0, 1, -1, nan]),
        "erfc": ([0, inf, -inf, nan], [1, 0, 2, nan]),
        "erf_inv": ([0, 1, -1, 1.5, nan], [0, inf, -inf, nan, nan]),
        "lgamma": ([1, 2, 0, -1, inf, -inf, nan], [0, 0, inf, inf, inf, inf, nan]),
        "digamma": ([0, -1, -7, inf, nan], [nan, nan, nan, inf, nan]),
        "bessel_i1e": ([0, inf, -inf], [0, 0, 0]),
        "atanh": ([0, 1, -1, 2], [0, inf, -inf, nan]),
        "acosh": ([1, inf, 0.5, -2], [0, inf, nan, nan]),
        "cosh": ([0, inf, -inf], [1, inf, inf]),
        "sinh": ([0, inf, -inf], [0, inf, -inf]),
        "square": ([-3, inf], [9, inf]),
    }
    for dtype in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16):
        for name, (x, want) in cases.items():
            got = apply("chlo." + name, np.array(x, dtype)).astype(np.float64)
            np.testing.assert_array_equal(np.where(np.abs(got) < 1e-6, 0, got), want, err_msg=f"{name} {dtype}")


def test_the_far_ends_of_f64() -> None:
    assert not apply("chlo.erfc", np.array([28, 1e10, 1e39, 1e200, 1e308])).any()
    tiny = np.array([5e-324, -5e-324, 1e-310, 2.3e-308])
    np.testing.assert_allclose(apply("chlo.lgamma", tiny), -np.log(np.abs(tiny)), rtol=1e-15)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_signs_of_zeros(dtype: type) -> None:
    zeros = np.array([0.0, -0.0], dtype)
    assert np.signbit(apply("chlo.bessel_i1e", zeros)).tolist() == [False, True]
    assert np.signbit(apply("chlo.next_after", zeros, zeros[::-1].copy())).tolist() == [True, False]


def test_zeta_and_polygamma() -> None:
    pi = np.pi
    x, q = np.array([2.0, 1, 0.5, 2, 3, 2.5]), np.array([1.0, 2, 1, 0, -1, -0.5])
    np.testing.assert_allclose(
        apply("chlo.zeta", x, q), [pi**2 / 6, np.inf, np.nan, np.inf, np.nan, np.nan], rtol=1e-15
    )
    n, x = np.array([0.0, 1, 2, 1.5, -1]), np.ones(5)
    want = [-np.euler_gamma, pi**2 / 6, -2 * 1.2020569031595942, np.nan, np.nan]
    np.testing.assert_allclose(apply("chlo.polygamma", n, x), want, rtol=1e-14)


def test_next_after() -> None:
    x = np.float32([0, 0, 1, 1, -0.0, np.nan, np.inf])
    y = np.float32([1, -1, 2, 0, 0, 1, 0])
    got = apply("chlo.next_after", x, y)
    np.testing.assert_array_equal(got, np.nextafter(x, y))
    assert not np.signbit(got[4])
    bf16 = ml_dtypes.bfloat16
    assert float(apply("chlo.next_after", np.array([1], bf16), np.array([2], bf16))[0]) == 1 + 2**-7


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
@settings(max_examples=examples(40))
def test_mulhi_is_the_upper_half_of_the_product(x: int, y: int) -> None:
    with np.errstate(all="ignore"):
        assert int(high_product(np.dtype(np.int64))(np.int64([x]), np.int64([y]))[0]) == (x * y) >> 64
        u, v = x % 2**64, y % 2**64
        assert int(high_product(np.dtype(np.uint64))(np.uint64([u]), np.uint64([v]))[0]) == (u * v) >> 64
    for bits in (8, 16, 32):
        a, b = (np.array([value]).astype(f"i{bits // 8}") for value in (x, y))
        assert int(apply("chlo.mulhi", a, b)[0]) == (int(a[0]) * int(b[0])) >> bits


def test_predicates() -> None:
    x = np.float32([np.inf, -np.inf, np.nan, 1])
    for dtype in (np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2):
        assert apply("chlo.is_inf", x.astype(dtype), result="i1").tolist() == [True, True, False, False]
        assert apply("chlo.is_pos_inf", x.astype(dtype), result="i1").tolist() == [True, False, False, False]
        assert apply("chlo.is_neg_inf", x.astype(dtype), result="i1").tolist() == [False, True, False, False]


def test_constants() -> None:
    text = """func.func @main(%x: tensor<2x3xf32>) -> (tensor<2xi32>, tensor<2x3xf32>) {
      %c = chlo.constant dense<[1, 2]> : tensor<2xi32>
      %l = "chlo.constant_like"(%x) {value = 2.5 : f32} : (tensor<2x3xf32>) -> tensor<2x3xf32>
      return %c, %l : tensor<2xi32>, tensor<2x3xf32>
    }"""
    constant, like = run(text, np.zeros((2, 3), np.float32))
    assert constant.tolist() == [1, 2] and like.tolist() == [[2.5] * 3] * 2


def test_the_kernel_of_asin_and_acos() -> None:
    z = np.array([0.3 + 0.4j, -2 + 0.1j, 1.5 - 3j, 0.9999 + 1e-9j])
    w = apply("chlo._asin_acos_kernel", z)
    np.testing.assert_allclose(np.arctan2(z.real, w.real) + 1j * np.sign(z.imag) * w.imag, np.arcsin(z), rtol=1e-12)
    np.testing.assert_allclose(np.arctan2(w.real, z.real) - 1j * np.sign(z.imag) * w.imag, np.arccos(z), rtol=1e-7)


# --- top_k -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("element", ["i8", "ui16", "i32", "ui64", "f16", "bf16", "f32", "f64", "f8E5M2", "i4"])
@pytest.mark.parametrize(("shape", "k"), [((7,), 3), ((3, 200), 4), ((2, 0, 5), 2), ((4, 6), 6), ((5,), 0)])
def test_top_k_is_a_stable_descending_sort(element: str, shape: tuple[int, ...], k: int) -> None:
    x = values_of(ELEMENT_TYPES[element], np.random.default_rng(0), shape)
    size = "".join(f"{extent}x" for extent in shape)
    short = "".join(f"{extent}x" for extent in (*shape[:-1], k))
    types = f"tensor<{short}{element}>, tensor<{short}i32>"
    text = f"""func.func @main(%x: tensor<{size}{element}>) -> ({types}) {{
      %v, %i = chlo.top_k(%x, k = {k}) : tensor<{size}{element}> -> ({types})
      return %v, %i : {types}
    }}"""
    values, indices = run(text, x)
    wide = x.astype(np.float64) if x.dtype.kind not in "iu" else x
    if x.dtype.kind in "iu" or element == "i4":
        order = np.argsort(-wide.astype(object), axis=-1, kind="stable")[..., :k]
    else:
        bits = wide.view(np.int64)
        total = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
        order = np.argsort(-total, axis=-1, kind="stable")[..., :k]
    assert indices.dtype == np.int32 and indices.tolist() == order.tolist()
    assert values.tobytes() == np.take_along_axis(x, order, -1).tobytes()


# --- ragged_dot ------------------------------------------------------------------------------------------------------

MODES = """ragged_dot_dimension_numbers = #chlo.ragged_dot<
  lhs_batching_dimensions = {lb}, rhs_batching_dimensions = {rb},
  lhs_contracting_dimensions = {lc}, rhs_contracting_dimensions = {rc},
  lhs_ragged_dimensions = {ragged}, rhs_group_dimensions = {group}>"""


def ragged(
    lhs: np.ndarray, rhs: np.ndarray, sizes: np.ndarray, shape: tuple[int, ...], **numbers: list[int]
) -> np.ndarray:
    def of(x: np.ndarray, element: str) -> str:
        return "tensor<" + "".join(f"{extent}x" for extent in x.shape) + element + ">"

    result = "tensor<" + "".join(f"{extent}x" for extent in shape) + "f32>"
    types = f"{of(lhs, 'f32')}, {of(rhs, 'f32')}, {of(sizes, 'i64')}"
    text = f"""func.func @main(%l: {of(lhs, "f32")}, %r: {of(rhs, "f32")}, %s: {of(sizes, "i64")}) -> {result} {{
      %o = "chlo.ragged_dot"(%l, %r, %s) {{{MODES.format(**numbers)}}} : ({types}) -> {result}
      return %o : {result}
    }}"""
    return run(text, lhs, rhs, sizes)[0]


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_ragged_rows_meet_their_groups_matrix() -> None:
    lhs, rhs, sizes = normal(0, 7, 5), normal(1, 3, 5, 2), np.int64([2, 0, 4])
    got = ragged(lhs, rhs, sizes, (7, 2), lb=[], rb=[], lc=[1], rc=[1], ragged=[0], group=[0])
    want = np.concatenate([lhs[:2] @ rhs[0], lhs[2:6] @ rhs[2], np.zeros((1, 2))])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_ragged_rows_with_sizes_of_each_batch() -> None:
    lhs, rhs, sizes = normal(0, 2, 5, 3), normal(1, 2, 2, 3, 4), np.int64([[2, 3], [4, 0]])
    got = ragged(lhs, rhs, sizes, (2, 5, 4), lb=[0], rb=[1], lc=[2], rc=[2], ragged=[1], group=[0])
    want = np.zeros((2, 5, 4))
    for batch, row in enumerate(sizes):
        for group, (start, end) in enumerate(zip(np.cumsum(row) - row, np.cumsum(row), strict=True)):
            want[batch, start:end] = lhs[batch, start:end] @ rhs[group, batch]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_ragged_contraction_gives_one_product_a_group() -> None:
    lhs, rhs, sizes = normal(0, 4, 6), normal(1, 6, 3), np.int64([1, 5])
    got = ragged(lhs, rhs, sizes, (2, 4, 3), lb=[], rb=[], lc=[1], rc=[0], ragged=[1], group=[])
    np.testing.assert_allclose(got, [lhs[:, :1] @ rhs[:1], lhs[:, 1:] @ rhs[1:]], rtol=1e-5, atol=1e-6)


def test_ragged_batch_is_a_batched_dot() -> None:
    lhs, rhs, sizes = normal(0, 3, 4, 6), normal(1, 3, 6, 2), np.int64([1, 2])
    got = ragged(lhs, rhs, sizes, (3, 4, 2), lb=[0], rb=[0], lc=[2], rc=[1], ragged=[0], group=[])
    np.testing.assert_allclose(got, lhs @ rhs, rtol=1e-5, atol=1e-6)


# --- scan ------------------------------------------------------------------------------------------------------------


def scanned(body: str, element: str, reverse: bool) -> str:
    attributes = " attributes {is_reverse = true}" if reverse else ""
    return f"""func.func @main(%x: tensor<2x5x{element}>, %i: tensor<2x{element}>)
        -> (tensor<2x5x{element}>, tensor<2x{element}>) {{
      %o, %c = chlo.scan(%x) inits(%i) dimension=1{attributes} {{
      ^bb0(%a: tensor<2x{element}>, %b: tensor<2x{element}>):
        {body}
      }} : (tensor<2x5x{element}>, tensor<2x{element}>) -> (tensor<2x5x{element}>, tensor<2x{element}>)
      return %o, %c : tensor<2x5x{element}>, tensor<2x{element}>
    }}"""


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum"])
def test_scan_of_a_running_operation(name: str, reverse: bool) -> None:
    body = f"""%r = stablehlo.{name} %b, %a : tensor<2xf32>
        stablehlo.return %r, %r : tensor<2xf32>, tensor<2xf32>"""
    x, initial = normal(2, 2, 5), normal(3, 2)
    outputs, carry = run(scanned(body, "f32", reverse), x, initial)
    ordered = x[:, ::-1] if reverse else x
    begun = np.concatenate([initial[:, None], ordered], 1)
    want = getattr(np, name).accumulate(begun, 1)[:, 1:]
    np.testing.assert_array_equal(outputs, want[:, ::-1] if reverse else want)
    np.testing.assert_array_equal(carry, want[:, -1])


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_a_running_extremum_orders_zeros_by_their_signs(name: str) -> None:
    body = f"""%r = stablehlo.{name} %a, %b : tensor<2xf32>
        stablehlo.return %r, %r : tensor<2xf32>, tensor<2xf32>"""
    x = np.float32([[-0.0, 0.0, -0.0, 0.0, -0.0], [0.0, -0.0, np.nan, 0.0, 1.0]])
    initial = np.float32([-0.0, 0.0])
    outputs, carry = run(scanned(body, "f32", False), x, initial)
    sign = 1 if name == "maximum" else -1
    first = [-0.0, 0.0, 0.0, 0.0, 0.0] if name == "maximum" else [-0.0] * 5
    want = np.float32([first, [0.0, 0.0 * sign, np.nan, np.nan, np.nan]])
    np.testing.assert_array_equal(outputs, want)
    np.testing.assert_array_equal(np.signbit(outputs[:, :2]), np.signbit(want[:, :2]))
    np.testing.assert_array_equal(np.signbit(outputs[0]), np.signbit(want[0]))
    np.testing.assert_array_equal(carry, want[:, -1])


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_of_any_other_body(reverse: bool) -> None:
    body = """%p = stablehlo.multiply %a, %a : tensor<2xf32>
        %r = stablehlo.subtract %p, %b : tensor<2xf32>
        stablehlo.return %p, %r : tensor<2xf32>, tensor<2xf32>"""
    x, carry = normal(4, 2, 5), normal(5, 2)
    outputs, last = run(scanned(body, "f32", reverse), x, carry)
    for step in range(4, -1, -1) if reverse else range(5):
        carry = x[:, step] * x[:, step] - carry
    np.testing.assert_array_equal(outputs, x * x)
    np.testing.assert_array_equal(last, carry)
