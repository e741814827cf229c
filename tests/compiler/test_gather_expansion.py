"""Gathers of known places become slices: what they give stays the same."""

import numpy as np
import pytest

import spmd


def program(axis: int, places: list[int], element: str) -> str:
    shape, sizes = [70, 5, 6], [70, 5, 6]
    sizes[axis] = 1
    result = [len(places) if d == axis else size for d, size in enumerate(shape)]
    beside = [d for d in range(3) if d != axis]
    here, there = ("tensor<" + "x".join(map(str, each)) + "xf32>" for each in (shape, result))
    return f"""func.func @main(%x: {here}) -> {there} {{
      %i = stablehlo.constant dense<{[[place] for place in places]}> : tensor<{len(places)}x1x{element}>
      %r = "stablehlo.gather"(%x, %i) {{dimension_numbers = #stablehlo.gather<offset_dims = {beside},
          collapsed_slice_dims = [{axis}], start_index_map = [{axis}], index_vector_dim = 1>,
          slice_sizes = array<i64: {", ".join(map(str, sizes))}>}}
        : ({here}, tensor<{len(places)}x1x{element}>) -> {there}
      return %r : {there}
    }}"""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("element", ["i32", "ui8"])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("places", [[2], [2, 1, 0], [1, 2, 3, 1, 2], [4, 4], [0, 100, 3], [0, 1, 2, 3, 4, 0, 1, 2, 3]])
def test_known_places(places: list[int], axis: int, element: str) -> None:
    x = np.random.default_rng(0).standard_normal((70, 5, 6)).astype(np.float32)
    (mine,) = spmd.compile(spmd.parse(program(axis, places, element)))(x)
    np.testing.assert_array_equal(mine, x.take(places, axis, mode="clip"))


def test_places_before_the_first_are_the_first() -> None:
    x = np.random.default_rng(0).standard_normal((70, 5, 6)).astype(np.float32)
    (mine,) = spmd.compile(spmd.parse(program(1, [-7, 2, -1], "i32")))(x)
    np.testing.assert_array_equal(mine, x[:, [0, 2, 0]])
