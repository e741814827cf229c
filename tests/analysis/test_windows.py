"""Windows: the one reading of a reduce_window's attributes, and which of them are running totals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spmd
from spmd.analysis.windows import Windows, windows_of


@st.composite
def windows(draw: st.DrawFn) -> Windows:
    rank = draw(st.integers(1, 2))

    def each(values: st.SearchStrategy[int]) -> tuple[int, ...]:
        return draw(st.tuples(*[values] * rank))

    shape = each(st.integers(1, 4))
    running = draw(st.booleans())
    sizes = tuple(draw(st.sampled_from([1, size, size + 1])) for size in shape) if running else each(st.integers(1, 3))
    padding = tuple(
        draw(st.sampled_from([(0, 0), (size - 1, 0), (0, size - 1), (1, -1)])) if running else (1, 0) for size in sizes
    )
    ones = (1,) * rank
    steps = [ones if running else each(st.integers(1, 2)) for _ in range(3)]
    return Windows(shape, sizes, steps[0], steps[1], steps[2], padding)


def seen(windows: Windows) -> dict[tuple[int, ...], set[tuple[int, ...]]]:
    """For each window the elements of the operand in it, by walking over all of them."""
    grids = [
        np.arange(count)[:, None] * stride + np.arange(size) * dilation - low
        for count, stride, size, dilation, (low, _) in zip(
            windows.counts, windows.strides, windows.sizes, windows.window_dilations, windows.padding, strict=True
        )
    ]
    windows_seen: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for window in np.ndindex(windows.counts):
        axes = [
            [int(p) // base for p in grid[place] if p % base == 0 and 0 <= p // base < extent]
            for grid, place, base, extent in zip(grids, window, windows.base_dilations, windows.shape, strict=True)
        ]
        windows_seen[window] = {
            tuple(np.array(axes[k])[i] for k, i in enumerate(p)) for p in np.ndindex(*map(len, axes))
        }
    return windows_seen


@given(windows())
def test_running_totals_are_windows_that_hold_all_up_to_their_element(windows: Windows) -> None:
    running = windows.cumulative_axis()
    windows_seen = seen(windows)
    axes = [(axis, backwards) for axis in range(windows.rank) for backwards in (False, True)]
    fitting = {
        (axis, backwards)
        for axis, backwards in axes
        if windows.counts == windows.shape
        and all(
            elements
            == {
                (*place[:axis], k, *place[axis + 1 :])
                for k in (range(place[axis], windows.shape[axis]) if backwards else range(place[axis] + 1))
            }
            for place, elements in windows_seen.items()
        )
    }
    if running is not None:
        assert running in fitting
    elif all(size > 1 for size in windows.shape):
        assert not fitting or any(step != 1 for step in (*windows.base_dilations, *windows.strides))


@given(windows())
def test_a_dimension_that_passes_is_left_as_it_is(windows: Windows) -> None:
    for axis in range(windows.rank):
        if windows.passes(axis):
            assert windows.counts[axis] == windows.shape[axis]
            for place, elements in seen(windows).items():
                assert {element[axis] for element in elements} <= {place[axis]}


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("", Windows((4, 6), (2, 3), (1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)))),
        (", window_strides = array<i64: 2, 1>", Windows((4, 6), (2, 3), (2, 1), (1, 1), (1, 1), ((0, 0), (0, 0)))),
        (
            ", padding = dense<[[1, 0], [0, 2]]> : tensor<2x2xi64>",
            Windows((4, 6), (2, 3), (1, 1), (1, 1), (1, 1), ((1, 0), (0, 2))),
        ),
    ],
)
def test_what_is_not_given_has_its_default(attributes: str, expected: Windows) -> None:
    shape = "x".join(map(str, expected.counts))
    module = spmd.parse(
        f"""func.func @main(%0: tensor<4x6xf32>, %1: tensor<f32>) -> tensor<{shape}xf32> {{
          %2 = "stablehlo.reduce_window"(%0, %1) <{{window_dimensions = array<i64: 2, 3>{attributes}}}> ({{
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
            %c = stablehlo.add %a, %b : tensor<f32>
            stablehlo.return %c : tensor<f32>
          }}) : (tensor<4x6xf32>, tensor<f32>) -> tensor<{shape}xf32>
          return %2 : tensor<{shape}xf32>
        }}"""
    )
    assert windows_of(module.function("main").body.ops[0]) == expected
