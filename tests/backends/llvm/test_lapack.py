"""Factorizations and triangular systems in native code: what they factorize comes back, and the NumPy back end agrees
on pivots, reports and layout. Cholesky and triangular_solve at large: tests/backends/test_linear_algebra.py."""

from itertools import product

import numpy as np
import pytest

import spmd
from spmd.backends.llvm.target import LlvmTarget
from tests.backends.modules import here, op
from tests.backends.together import Cases, Program, for_numpy, together

ELEMENTS = {"f32": (np.float32, "s", 2e-5), "f64": (np.float64, "d", 1e-12)}


def call(routine: str, element: str, operands: int, **options: str) -> str:
    """A call as JAX writes it; options are letters."""
    letter = ELEMENTS[element][1]
    config = ", ".join(f"{name} = {ord(value)} : ui8" for name, value in options.items())
    names = ", ".join(f"%{k}" for k in range(operands))
    return (
        f'"stablehlo.custom_call"({names}) {{call_target_name = "lapack_{letter}{routine}_ffi", '
        f"mhlo.backend_config = {{{config}}}}}"
    )


def native(text: str, *arrays: np.ndarray) -> Program:
    """A program whose one op must have a native form."""
    first = spmd.parse(text).functions[0].body.ops[0]
    assert LlvmTarget().supports(first)
    return Program(text, arrays)


def random(element: str, *shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(ELEMENTS[element][0])


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (5, 5), (70, 70), (3, 7), (9, 4), (6, 3, 3), (2, 3, 4, 6)])
@together
def test_lu(element: str, shape: tuple[int, ...]) -> Cases:
    a = random(element, *shape)
    *batch, rows, columns = shape
    steps = min(rows, columns)
    text = op(call("getrf", element, 1), [a], (element, shape), ("i32", (*batch, steps)), ("i32", batch))
    ours, theirs = yield native(text, a), for_numpy(text, a)
    lu, pivots, _ = ours
    np.testing.assert_array_equal(ours[1], theirs[1])
    np.testing.assert_array_equal(ours[2], np.zeros(batch))
    lower, upper = np.tril(lu[..., :steps], -1) + np.eye(rows, steps), np.triu(lu[..., :steps, :])
    exchanged = a.copy()
    for index in np.ndindex(*batch):
        for row, other in enumerate(pivots[index] - 1):
            exchanged[(*index, [row, other])] = exchanged[(*index, [other, row])]
    eps = ELEMENTS[element][2] * rows
    np.testing.assert_allclose(lower @ upper, exchanged, rtol=eps, atol=eps)


def test_lu_of_a_singular_matrix_reports_the_first_pivot_that_is_zero() -> None:
    a = np.array([[[1, 2], [2, 4]], [[0, 0], [0, 0]], [[1, 0], [0, 1]]], np.float32)
    text = op(call("getrf", "f32", 1), [a], ("f32", a.shape), ("i32", (3, 2)), ("i32", (3,)))
    np.testing.assert_array_equal(native(text, a).run()[2], [2, 1, 0])


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("uplo", ["L", "U"])
@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (65, 65), (5, 3, 3)])
@together
def test_cholesky_leaves_the_other_triangle(element: str, uplo: str, shape: tuple[int, ...]) -> Cases:
    size = shape[-1]
    a = random(element, *shape)
    a = a @ a.swapaxes(-1, -2) + np.eye(size, dtype=a.dtype)
    triangle = np.tril if uplo == "L" else np.triu
    spoiled = np.where(triangle(np.ones((size, size), bool)), a, np.nan).astype(a.dtype)
    text = op(call("potrf", element, 1, uplo=uplo), [a], (element, shape), ("i32", shape[:-2]))
    factor, info = yield native(text, spoiled)
    assert not info.any()
    assert np.isnan(factor[..., ~triangle(np.ones((size, size), bool))]).all()
    half = triangle(np.nan_to_num(factor))
    whole = half @ half.swapaxes(-1, -2) if uplo == "L" else half.swapaxes(-1, -2) @ half
    eps = ELEMENTS[element][2] * size
    np.testing.assert_allclose(whole, a, rtol=eps, atol=eps * size)


def test_cholesky_reports_the_minor_that_is_not_positive() -> None:
    a = np.stack([np.diag([1.0, -1.0, 1.0]), np.eye(3), np.diag([0.0, 1.0, 1.0])]).astype(np.float32)
    text = op(call("potrf", "f32", 1, uplo="L"), [a], ("f32", a.shape), ("i32", (3,)))
    np.testing.assert_array_equal(native(text, a).run()[1], [2, 0, 1])


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (7, 4), (70, 66), (5, 4, 2)])
@together
def test_qr(element: str, shape: tuple[int, ...]) -> Cases:
    a = random(element, *shape)
    *batch, rows, columns = shape
    text = op(call("geqrf", element, 1), [a], (element, shape), (element, (*batch, columns)))
    (factored, tau), by_numpy = yield native(text, a), for_numpy(text, a)
    eps = ELEMENTS[element][2] * rows
    for ours, theirs in zip((factored, tau), by_numpy, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=eps, atol=eps)
    text = op(call("orgqr", element, 2), [factored, tau], (element, shape))
    (q,) = yield native(text, factored, tau)
    np.testing.assert_allclose(q @ np.triu(factored[..., :columns, :]), a, rtol=eps, atol=eps)
    np.testing.assert_allclose(q.swapaxes(-1, -2) @ q, np.broadcast_to(np.eye(columns), (*batch, columns, columns)),
                               rtol=eps, atol=eps)  # fmt: skip


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("batch", [(), (4,)])
@pytest.mark.parametrize(("side", "uplo", "trans_x", "diag"), [*product("LR", "LU", "NTC", "NU")])
@together
def test_triangular_systems(side: str, uplo: str, trans_x: str, diag: str, batch: tuple[int, ...], width: int) -> Cases:
    size = 6
    a = random("f64", *batch, size, size) + 3 * np.eye(size)
    b = random("f64", *batch, *((size, width) if side == "L" else (width, size)))
    options = {"side": side, "uplo": uplo, "trans_x": trans_x, "diag": diag}
    (x,) = yield native(op(call("trsm", "f64", 2, **options), [a, b], ("f64", b.shape)), a, b)
    triangle = np.tril(a) if uplo == "L" else np.triu(a)
    if diag == "U":
        triangle = triangle - triangle * np.eye(size) + np.eye(size)
    if trans_x != "N":
        triangle = triangle.swapaxes(-1, -2)
    np.testing.assert_allclose(triangle @ x if side == "L" else x @ triangle, b, rtol=1e-9, atol=1e-9)


def test_what_a_user_registers_takes_the_place_of_a_routine() -> None:
    from spmd.backends.numpy import custom_call
    from spmd.dialects.custom_call_targets import REGISTERED

    name, a = "lapack_dpotrf_ffi", np.eye(2)
    text = op(call("potrf", "f64", 1, uplo="L"), [a], ("f64", a.shape), ("i32", ()))
    before = custom_call.TARGETS[name]
    spmd.register_custom_call(name, lambda a, attributes: (a + 1, np.int32(7)))
    try:
        factor, info = here(text, a)
    finally:
        custom_call.TARGETS[name] = before
        REGISTERED.discard(name)
    np.testing.assert_array_equal(factor, a + 1)
    assert info == 7
