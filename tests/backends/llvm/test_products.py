"""Products in native code: tiles in registers, BLAS, and the layouts that either takes."""

import numpy as np
import pytest

import spmd
from spmd.backends.llvm.matmul import blas
from spmd.backends.llvm.matmul.matrices import product_of

SIZES = [(1, 1, 2), (5, 33, 3), (12, 32, 7), (13, 31, 16), (25, 65, 2), (1, 100, 9), (40, 1, 5), (3, 0, 4), (0, 3, 4)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("rows", "columns", "depth"), [*SIZES, (4, 5, 0), (300, 200, 100)])
@pytest.mark.parametrize("turned", ["", "lhs", "rhs"])
def test_products_of_all_layouts(dtype: type, rows: int, columns: int, depth: int, turned: str) -> None:
    rng = np.random.default_rng(0)
    lhs, rhs = rng.standard_normal((rows, depth)).astype(dtype), rng.standard_normal((depth, columns)).astype(dtype)
    left = lhs.T.copy() if turned == "lhs" else lhs
    right = rhs.T.copy() if turned == "rhs" else rhs
    element = "f32" if dtype is np.float32 else "f64"

    def tensor(shape: tuple[int, ...]) -> str:
        return f"tensor<{'x'.join(map(str, shape))}x{element}>"

    text = f"""func.func @main(%a: {tensor(left.shape)}, %b: {tensor(right.shape)}) -> {tensor((rows, columns))} {{
  %0 = stablehlo.dot_general %a, %b,
    contracting_dims = [{0 if turned == "lhs" else 1}] x [{1 if turned == "rhs" else 0}]
    : ({tensor(left.shape)}, {tensor(right.shape)}) -> {tensor((rows, columns))}
  return %0 : {tensor((rows, columns))}
}}"""
    (got,) = spmd.compile(spmd.parse(text))(left, right)
    np.testing.assert_allclose(got, lhs @ rhs, rtol=1e-4 if dtype is np.float32 else 1e-11, atol=1e-5)


def test_batches_anywhere_in_the_operands() -> None:
    x, y = np.random.default_rng(0).standard_normal((2, 3, 5, 4, 6), np.float32)
    text = """func.func @main(%a: tensor<3x5x4x6xf32>, %b: tensor<3x5x4x6xf32>) -> tensor<3x4x5x5xf32> {
  %0 = stablehlo.dot_general %a, %b, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3]
    : (tensor<3x5x4x6xf32>, tensor<3x5x4x6xf32>) -> tensor<3x4x5x5xf32>
  return %0 : tensor<3x4x5x5xf32>
}"""
    (got,) = spmd.compile(spmd.parse(text))(x, y)
    np.testing.assert_allclose(got, np.einsum("aibk,ajbk->abij", x, y), rtol=1e-4, atol=1e-5)


def test_native_products_are_calls_of_the_library_that_numpy_calls() -> None:
    """On NumPy's wheels; elsewhere SciPy's pointers serve, and only closeness is promised."""
    if blas.routine("sgemm").integer != "i64":
        pytest.skip("NumPy was not built with its wheels' OpenBLAS")
    lhs, rhs = np.random.default_rng(0).standard_normal((2, 200, 200)).astype(np.float32)
    text = """func.func @main(%a: tensor<200x200xf32>, %b: tensor<200x200xf32>) -> tensor<200x200xf32> {
      %p = stablehlo.dot %a, %b : (tensor<200x200xf32>, tensor<200x200xf32>) -> tensor<200x200xf32>
      return %p : tensor<200x200xf32>
    }"""
    np.testing.assert_array_equal(spmd.compile(spmd.parse(text))(lhs, rhs)[0], lhs @ rhs)


@pytest.mark.parametrize("name", ["sgemm", "dgemm"])
def test_scipy_stands_in_where_numpy_has_another_library(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "_numpy_library", lambda: None)
    blas.routine.cache_clear()
    assert blas.routine(name).integer == "i32"
    dtype = {"sgemm": np.float32, "dgemm": np.float64}[name]
    lhs, rhs = np.random.default_rng(0).standard_normal((2, 200, 200)).astype(dtype)
    element = {"sgemm": "f32", "dgemm": "f64"}[name]
    matrix = f"tensor<200x200x{element}>"
    text = f"""func.func @main(%a: {matrix}, %b: {matrix}) -> {matrix} {{
      %p = stablehlo.dot %a, %b : ({matrix}, {matrix}) -> {matrix}
      return %p : {matrix}
    }}"""
    result = spmd.compile(spmd.parse(text))(lhs, rhs)[0]
    blas.routine.cache_clear()
    np.testing.assert_allclose(result, lhs @ rhs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("turned", [False, True])
def test_batching_dimensions_are_one_loop_where_they_lie_so(turned: bool) -> None:
    batching = "[1, 0] x [1, 0]" if turned else "[0, 1] x [0, 1]"
    out = "4x3x5x5" if turned else "3x4x5x5"
    text = f"""func.func @main(%a: tensor<3x4x5x6xf32>, %b: tensor<3x4x6x5xf32>) -> tensor<{out}xf32> {{
      %0 = stablehlo.dot_general %a, %b, batching_dims = {batching}, contracting_dims = [3] x [2]
        : (tensor<3x4x5x6xf32>, tensor<3x4x6x5xf32>) -> tensor<{out}xf32>
      return %0 : tensor<{out}xf32>
    }}"""
    module = spmd.parse(text)
    product = product_of(module.functions[0].body.ops[0])
    assert product is not None
    assert product.batch == ((4, 3) if turned else (12,))
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-9, 9, shape).astype(np.float32) for shape in ((3, 4, 5, 6), (3, 4, 6, 5)))
    (got,) = spmd.compile(module)(x, y)
    np.testing.assert_array_equal(got, (x @ y).swapaxes(0, 1) if turned else x @ y)
