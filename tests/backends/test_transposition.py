"""Transposes that move memory: the same elements as NumPy's view, in C order, however the array is cut."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spmd
from spmd.backends.numpy import transposition


@pytest.mark.parametrize(
    ("shape", "permutation"),
    [
        ((256, 300), (1, 0)),
        ((5, 200, 170), (0, 2, 1)),
        ((2, 300, 3, 64), (0, 2, 3, 1)),
        ((3, 3, 100, 100), (0, 2, 3, 1)),
        ((70, 64, 32), (2, 1, 0)),
        ((40000, 3), (1, 0)),
        ((0, 300, 300), (0, 2, 1)),
        ((300, 0), (1, 0)),
    ],
)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.complex128])
def test_every_way_of_copying_gives_the_view_in_c_order(
    shape: tuple[int, ...], permutation: tuple[int, ...], dtype: type
) -> None:
    array = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    copy = transposition.transposer(shape, permutation, np.dtype(dtype))
    for given_array in (array, np.asfortranarray(array)):
        moved = copy(given_array)
        assert moved.flags.c_contiguous
        np.testing.assert_array_equal(moved, array.transpose(permutation))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.data(), st.integers(4, 12))
@settings(max_examples=150, deadline=None)
def test_strips_of_any_size_cover_the_array(shape: list[int], data: st.DataObject, log_strip: int) -> None:
    permutation = data.draw(st.sampled_from(list(itertools.permutations(range(len(shape))))))
    array = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transposition, "_STRIP_BYTES", 1 << log_strip)
        patch.setattr(transposition, "_FEWEST_ROWS", 2)
        patch.setattr(transposition, "_NEAR", 1)
        patch.setattr(transposition, "_LINE", 9)
        moved = transposition.transposer(shape, permutation, array.dtype)(array)
    np.testing.assert_array_equal(moved, array.transpose(permutation))


def test_a_transpose_is_a_view_for_products_and_moves_memory_for_results() -> None:
    text = """
func.func @main(%x: tensor<300x200xf32>, %y: tensor<300x7xf32>) -> (tensor<200x7xf32>, tensor<200x300xf32>) {
  %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<300x200xf32>) -> tensor<200x300xf32>
  %p = stablehlo.dot_general %t, %y, contracting_dims = [1] x [0] : (tensor<200x300xf32>, tensor<300x7xf32>) -> tensor<200x7xf32>
  %n = stablehlo.negate %t : tensor<200x300xf32>
  return %p, %n : tensor<200x7xf32>, tensor<200x300xf32>
}"""  # noqa: E501 - a program stands as it is printed
    random = np.random.default_rng(1)
    x, y = random.standard_normal((300, 200), np.float32), random.standard_normal((300, 7), np.float32)
    product, negated = spmd.compile(spmd.parse(text), backends=("llvm", "numpy"))(x, y)
    np.testing.assert_allclose(product, x.T @ y, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(negated, -x.T)
    assert negated.flags.c_contiguous
