"""Subnormal numbers in native products: zero at the default precision, kept at a higher one, kept by all else."""

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import spmd
from spmd.backends.llvm.jit.processor import host

TINY = np.float32(2.0**-130)

on_x86 = pytest.mark.skipif(not host().triple.startswith("x86_64"), reason="others take no longer for subnormals")


def product(size: int, batch: int, precision: str, threads: int = 1) -> spmd.Executable:
    """Products of `batch` pairs of square matrices, and twice the left ones, which are no product's."""
    tensor = f"tensor<{batch}x{size}x{size}xf32>"
    config = f", precision = [{precision}, {precision}]" if precision else ""
    text = f"""func.func @main(%a: {tensor}, %b: {tensor}) -> ({tensor}, {tensor}) {{
      %p = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1]{config}
        : ({tensor}, {tensor}) -> {tensor}
      %t = stablehlo.add %a, %a : {tensor}
      return %p, %t : {tensor}, {tensor}
    }}"""
    return spmd.compile(spmd.parse(text), threads=threads)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("size", "batch"), [(3, 1), (40, 7), (200, 1), (200, 6)])
@pytest.mark.parametrize(
    ("precision", "kept"), [pytest.param("", 0, marks=on_x86), pytest.param("DEFAULT", 0, marks=on_x86), ("HIGHEST", 1)]
)
def test_subnormals_in_products(size: int, batch: int, precision: str, kept: int, threads: int) -> None:
    left = np.full((batch, size, size), TINY)
    right = np.broadcast_to(np.float32(2.0**100) * np.eye(size, dtype=np.float32), left.shape).copy()
    with threadpool_limits(1):  # threads of BLAS's own have modes of their own
        of_products, twice = product(size, batch, precision, threads)(left, right)
    np.testing.assert_array_equal(of_products, np.full_like(left, kept * TINY * 2.0**100))
    np.testing.assert_array_equal(twice, np.full_like(left, 2 * TINY))


@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize(("precision", "kept"), [pytest.param("DEFAULT", 0, marks=on_x86), ("HIGH", 1)])
def test_subnormals_in_convolutions(window: int, precision: str, kept: int) -> None:
    image, kernel = np.full((1, 5, 2), TINY), np.full((window, 2, 3), 2.0**100, np.float32)
    places = 6 - window
    text = f"""func.func @main(%a: tensor<1x5x2xf32>, %k: tensor<{window}x2x3xf32>) -> tensor<1x{places}x3xf32> {{
      %c = stablehlo.convolution(%a, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {{}}
        {{batch_group_count = 1 : i64, feature_group_count = 1 : i64,
         precision_config = [#stablehlo<precision {precision}>, #stablehlo<precision {precision}>]}}
        : (tensor<1x5x2xf32>, tensor<{window}x2x3xf32>) -> tensor<1x{places}x3xf32>
      return %c : tensor<1x{places}x3xf32>
    }}"""
    (result,) = spmd.compile(spmd.parse(text))(image, kernel)
    np.testing.assert_array_equal(result, np.full((1, places, 3), kept * 2 * window * TINY * 2.0**100, np.float32))


def test_the_threads_mode_comes_back() -> None:
    """What Python computes afterwards keeps its subnormals, as do the caller's own products."""
    a = np.ones((1, 8, 8), np.float32)
    product(8, 1, "DEFAULT")(a, a)
    assert np.float32(2.0**-100) * np.float32(2.0**-30) == TINY
