"""How far products and convolutions of f32 are off, in units of 2^-24 of the norms of what is multiplied."""

import numpy as np
import pytest

import spmd
from spmd.support.arrays import Array

#: What rounding once, to nearest, is off at most.
HALF = 2.0**-24
SHAPES = [(2, 200_000, 2), (3, 100_000, 3), (16, 10_000, 16), (17, 5000, 3), (8, 300, 8), (5, 1024, 40), (1, 9000, 7)]
PRECISIONS = ["", ", precision = [DEFAULT, DEFAULT]", ", precision = [HIGHEST, HIGHEST]"]


def numbers(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def error(got: Array, left: Array, right: Array) -> float:
    """The largest error of `left @ right`, in halves of units in the last place of the norms' product."""
    wide = left.astype(np.float64), right.astype(np.float64)
    norms = np.linalg.norm(wide[0], axis=1)[:, None] * np.linalg.norm(wide[1], axis=0)
    return float(np.max(np.abs(got - wide[0] @ wide[1]) / norms) / HALF)


def bound(length: int) -> float:
    """Blocks of 32: a few roots of a block's part of the sum. In one chain it would be about one, however long."""
    return 3.2 * float(np.sqrt(32 / length))


@pytest.mark.parametrize(("rows", "length", "columns"), SHAPES)
def test_long_sums_keep_their_digits(rows: int, length: int, columns: int) -> None:
    x, y = numbers(1, rows, length), numbers(2, length, columns)
    types = f"tensor<{rows}x{length}xf32>", f"tensor<{length}x{columns}xf32>", f"tensor<{rows}x{columns}xf32>"
    lines = [
        f"%r{k} = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]{each} : "
        f"({types[0]}, {types[1]}) -> {types[2]}"
        for k, each in enumerate(PRECISIONS)
    ]
    body = "\n".join(lines)
    text = f"""func.func @main(%x: {types[0]}, %y: {types[1]}) -> ({", ".join([types[2]] * 3)}) {{
      {body}
      return %r0, %r1, %r2 : {", ".join([types[2]] * 3)}
    }}"""
    for backends in (("llvm", "numpy"), ("numpy",)):
        plain, default, highest = spmd.compile(spmd.parse(text), backends=backends, threads=1)(x, y)
        np.testing.assert_array_equal(plain, default)
        exact = (x.astype(np.float64) @ y.astype(np.float64)).astype(np.float32)
        np.testing.assert_array_max_ulp(highest, exact, 1)
        if backends == ("llvm", "numpy"):  # the other's is NumPy's own
            assert error(plain, x, y) <= bound(length)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("features", [3, 64, 512])
def test_convolutions_keep_their_digits(features: int, threads: int) -> None:
    """Of 3 by 3 places, whose innermost loop goes over a row of them."""
    image, kernel = numbers(3, 1, 8, 8, features), numbers(4, 3, 3, features, 32)
    one, other, result = f"tensor<1x8x8x{features}xf32>", f"tensor<3x3x{features}x32xf32>", "tensor<1x6x6x32xf32>"
    text = f"""func.func @main(%x: {one}, %w: {other}) -> ({result}, {result}) {{
      %r = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {{stride = [1, 1]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
        : ({one}, {other}) -> {result}
      %h = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {{stride = [1, 1]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64,
        precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}}
        : ({one}, {other}) -> {result}
      return %r, %h : {result}, {result}
    }}"""
    plain, highest = spmd.compile(spmd.parse(text), threads=threads)(image, kernel)
    places = [image[0, i : i + 6, j : j + 6] for i in range(3) for j in range(3)]
    left, right = np.stack(places, 2).reshape(36, -1), kernel.reshape(-1, 32)
    assert error(plain.reshape(36, 32), left, right) <= max(bound(left.shape[1]), 2.0 if features == 3 else 0)
    exact = (left.astype(np.float64) @ right.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_max_ulp(highest.reshape(36, 32), exact, 1)
