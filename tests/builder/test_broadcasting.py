"""Broadcasting semantics, section by section: every example whose values the document gives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spmd.builder import F32, BuilderError, Shape, XlaBuilder, ops
from tests.builder.support import Array, equal, evaluate, f32

MATRIX = f32([[1, 2, 3], [4, 5, 6]])
VECTOR = f32([7, 8, 9])


def add(lhs: Array, rhs: Array, dimensions: Sequence[int] = ()) -> Array:
    return evaluate(lambda _, x, y: ops.Add(x, y, dimensions), lhs, rhs)


def refused(lhs: Sequence[int], rhs: Sequence[int], dimensions: Sequence[int], reason: str) -> None:
    """Adding arrays of these sizes is an error that names the operation, and says why."""
    builder = XlaBuilder("refused")
    x, y = (builder.Parameter(number, Shape.array_shape(F32, sizes)) for number, sizes in enumerate((lhs, rhs)))
    with pytest.raises(BuilderError, match=rf"Add: argument .*{reason}"):
        ops.Add(x, y, dimensions)


def test_a_vector_is_added_to_every_row() -> None:
    equal(add(MATRIX, VECTOR, [1]), [[8, 10, 12], [11, 13, 15]])
    equal(add(VECTOR, MATRIX, [1]), [[8, 10, 12], [11, 13, 15]])


def test_ranks_that_differ_need_broadcast_dimensions() -> None:
    refused([2, 3], [3], [], "different ranks")
    refused([3], [2, 3], [], "different ranks")


def test_a_scalar_goes_with_any_array() -> None:
    equal(add(MATRIX, f32(7)), [[8, 9, 10], [11, 12, 13]])
    equal(add(f32(7), MATRIX), [[8, 9, 10], [11, 12, 13]])


def test_a_vector_beside_a_square_matrix_goes_either_way() -> None:
    zeros = np.zeros((3, 3), np.float32)
    equal(add(zeros, VECTOR, [1]), [[7, 8, 9], [7, 8, 9], [7, 8, 9]])
    equal(add(zeros, VECTOR, [0]), [[7, 7, 7], [8, 8, 8], [9, 9, 9]])


def test_the_matched_dimension_has_the_same_size() -> None:
    refused([2, 3], [3], [0], "got 3 and 2 for dimension 0 of rhs and dimension 0")


def test_a_matrix_matches_two_dimensions_of_a_cuboid() -> None:
    cuboid = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    matrix = np.arange(12, dtype=np.float32).reshape(3, 4) * 100
    equal(add(cuboid, matrix, [1, 2]), cuboid + matrix)


@pytest.mark.parametrize("dimension", range(4))
def test_a_vector_matches_any_one_dimension(dimension: int) -> None:
    array = np.zeros((2, 3, 4, 5), np.float32)
    vector = np.arange(array.shape[dimension], dtype=np.float32)
    shape = [-1 if d == dimension else 1 for d in range(4)]
    equal(add(array, vector, [dimension]), array + vector.reshape(shape))


@pytest.mark.parametrize("dimensions", [(2, 3), (1, 2), (0, 3)])
def test_a_matrix_matches_any_two_dimensions_in_order(dimensions: tuple[int, int]) -> None:
    array = np.zeros((2, 3, 4, 5), np.float32)
    sizes = [array.shape[d] for d in dimensions]
    matrix = np.arange(sizes[0] * sizes[1], dtype=np.float32).reshape(sizes)
    shape = [array.shape[d] if d in dimensions else 1 for d in range(4)]
    equal(add(array, matrix, dimensions), array + matrix.reshape(shape))


def test_broadcast_dimensions_strictly_increase() -> None:
    refused([2, 3, 4, 5], [4, 3], [2, 1], "strictly increasing")
    refused([2, 3, 3, 5], [3, 3], [1, 1], "strictly increasing")


@pytest.mark.parametrize(
    ("lhs", "rhs", "result"),
    [
        ((2, 1), (2, 3), (2, 3)),
        ((1, 2, 5), (7, 2, 5), (7, 2, 5)),
        ((7, 2, 5), (7, 1, 5), (7, 2, 5)),
        ((2, 1), (1, 3), (2, 3)),
    ],
)
def test_degenerate_dimensions(lhs: tuple[int, ...], rhs: tuple[int, ...], result: tuple[int, ...]) -> None:
    one = np.arange(np.prod(lhs), dtype=np.float32).reshape(lhs)
    two = np.arange(np.prod(rhs), dtype=np.float32).reshape(rhs) * 10
    got = add(one, two)
    assert got.shape == result
    equal(got, one + two)


def test_sizes_that_differ_and_are_not_1_are_incompatible() -> None:
    refused([7, 2, 5], [7, 2, 6], [], "sizes of dimension 2 must be equal, or one of them 1, got 5 and 6")


def test_composition_of_a_vector_and_a_degenerate_matrix() -> None:
    equal(add(f32([1, 2, 3, 4]), f32([[5, 6]]), [0]), [[6, 7], [7, 8], [8, 9], [9, 10]])


def test_composition_of_a_matrix_and_a_degenerate_cuboid() -> None:
    cuboid = np.arange(12, dtype=np.float32).reshape(4, 3, 1)
    matrix = f32([[100, 200]])
    got = add(matrix, cuboid, [1, 2])
    assert got.shape == (4, 3, 2)
    equal(got, cuboid + matrix)


def test_nothing_is_guessed() -> None:
    refused([2, 3], [2, 3], [1], "operands of equal rank")
    refused([2, 3], [3], [2], "must be in \\[0, 2\\)")
    refused([2, 3], [3], [-1], "must be in \\[0, 2\\)")
    refused([2, 3], [3], [0, 1], "of rank 1, got 2")
    refused([2, 3], [], [0], "of rank 0, got 1")
    refused([4, 2, 3], [2, 3], [], "different ranks")


@given(st.data())
def test_any_allowed_broadcast_is_numpys_on_the_placed_shape(data: st.DataObject) -> None:
    """Raising the lower rank by hand, then NumPy's degenerate broadcasting, gives the same."""
    high = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    chosen = sorted(data.draw(st.sets(st.integers(0, len(high) - 1), max_size=len(high) - 1)))
    low = [data.draw(st.sampled_from(sorted({1, high[d]}))) for d in chosen]
    placed = [low[chosen.index(d)] if d in chosen else 1 for d in range(len(high))]
    one = np.arange(np.prod(high), dtype=np.int32).reshape(high)
    two = np.arange(np.prod(low), dtype=np.int32).reshape(low) * 7
    got = evaluate(lambda _, x, y: ops.Sub(x, y, chosen), one, two, hlo=False)
    equal(got, one - two.reshape(placed))
