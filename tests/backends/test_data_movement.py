"""Ops that move elements, against NumPy's own definitions and the reference interpreter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spmd
from tests.backends.modules import assert_as_reference, here, ints, op
from tests.effort import examples

SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)
SOME = settings(max_examples=examples(40))


def counted(shape: tuple[int, ...], dtype: str = "i4") -> np.ndarray:
    return np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)


@given(SHAPES, st.data())
@SOME
def test_transpose(shape: tuple[int, ...], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    x = counted(shape)
    want = x.transpose(order)
    (got,) = here(op(f'"stablehlo.transpose"(%0) {{permutation = {ints(order)}}}', [x], ("i32", want.shape)), x)
    np.testing.assert_array_equal(got, want)


@given(SHAPES, st.data())
@SOME
def test_slice_and_reverse(shape: tuple[int, ...], data: st.DataObject) -> None:
    starts = [data.draw(st.integers(0, size)) for size in shape]
    limits = [data.draw(st.integers(start, size)) for start, size in zip(starts, shape, strict=True)]
    strides = [data.draw(st.integers(1, 3)) for _ in shape]
    axes = data.draw(st.sets(st.integers(0, max(len(shape) - 1, 0)))) if shape else set()
    x = counted(shape)
    part = x[tuple(map(slice, starts, limits, strides))]
    bounds = f"start_indices = {ints(starts)}, limit_indices = {ints(limits)}, strides = {ints(strides)}"
    text = f'"stablehlo.slice"(%0) {{{bounds}}}'
    np.testing.assert_array_equal(here(op(text, [x], ("i32", part.shape)), x)[0], part)
    text = f'"stablehlo.reverse"(%0) {{dimensions = {ints(sorted(axes))}}}'
    np.testing.assert_array_equal(here(op(text, [x], ("i32", shape)), x)[0], np.flip(x, tuple(axes)))


@given(SHAPES, st.data())
@SOME
def test_broadcast_in_dim(shape: tuple[int, ...], data: st.DataObject) -> None:
    rank = len(shape) + data.draw(st.integers(0, 2))
    places = data.draw(st.permutations(range(rank)))[: len(shape)]
    result = [data.draw(st.integers(0, 3)) for _ in range(rank)]
    for size, place in zip(shape, places, strict=True):
        result[place] = data.draw(st.integers(0, 3)) if size == 1 else size
    x = counted(shape)
    wide = [1] * rank
    for size, place in zip(shape, places, strict=True):
        wide[place] = size
    want = np.broadcast_to(x.transpose(np.argsort(places)).reshape(wide), result)
    text = f'"stablehlo.broadcast_in_dim"(%0) {{broadcast_dimensions = {ints(places)}}}'
    np.testing.assert_array_equal(here(op(text, [x], ("i32", result)), x)[0], want)


def padded(x: np.ndarray, value: int, low: list[int], high: list[int], interior: list[int]) -> np.ndarray:
    """The specification's own words: elements go to low + index * (interior + 1), if that is inside."""
    shape = [
        lo + max((size - 1) * (inner + 1) + 1, 0) + hi
        for size, lo, hi, inner in zip(x.shape, low, high, interior, strict=True)
    ]
    result = np.full(shape, value, x.dtype)
    for index in np.ndindex(*x.shape):
        place = tuple(lo + i * (inner + 1) for i, lo, inner in zip(index, low, interior, strict=True))
        if all(0 <= p < size for p, size in zip(place, shape, strict=True)):
            result[place] = x[index]
    return result


@given(SHAPES, st.data())
@SOME
def test_pad_with_negative_edges_and_interior(shape: tuple[int, ...], data: st.DataObject) -> None:
    interior = [data.draw(st.integers(0, 2)) for _ in shape]
    low = [data.draw(st.integers(-3, 3)) for _ in shape]
    dilated = [max((size - 1) * (inner + 1) + 1, 0) for size, inner in zip(shape, interior, strict=True)]
    high = [data.draw(st.integers(max(-4, -(size + lo)), 3)) for size, lo in zip(dilated, low, strict=True)]
    if any(size + lo + hi < 0 for size, lo, hi in zip(dilated, low, high, strict=True)):
        return
    x, value = counted(shape), np.int32(-1)
    want = padded(x, -1, low, high, interior)
    text = (
        f'"stablehlo.pad"(%0, %1) {{edge_padding_low = {ints(low)}, edge_padding_high = {ints(high)}, '
        f"interior_padding = {ints(interior)}}}"
    )
    np.testing.assert_array_equal(here(op(text, [x, value], ("i32", want.shape)), x, value)[0], want)


@given(SHAPES.filter(len), st.lists(st.integers(0, 3), min_size=1, max_size=4), st.data())
@SOME
def test_concatenate(shape: tuple[int, ...], sizes: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    arrays = [counted((*shape[:axis], size, *shape[axis + 1 :])) for size in sizes]
    want = np.concatenate(arrays, axis)
    names = ", ".join(f"%{index}" for index in range(len(arrays)))
    text = f'"stablehlo.concatenate"({names}) {{dimension = {axis} : i64}}'
    np.testing.assert_array_equal(here(op(text, arrays, ("i32", want.shape)), *arrays)[0], want)


@given(SHAPES, st.data())
@SOME
def test_slices_at_places_known_when_they_run_are_clamped(shape: tuple[int, ...], data: st.DataObject) -> None:
    sizes = [data.draw(st.integers(0, size)) for size in shape]
    starts = [np.int64(data.draw(st.integers(-6, 6))) for _ in shape]
    x, update = counted(shape), -1 - counted(tuple(sizes))
    places = [int(np.clip(s, 0, full - size)) for s, full, size in zip(starts, shape, sizes, strict=True)]
    index = tuple(slice(place, place + size) for place, size in zip(places, sizes, strict=True))
    names = "".join(f", %{k + 1}" for k in range(len(shape)))
    text = f'"stablehlo.dynamic_slice"(%0{names}) {{slice_sizes = {ints(sizes)}}}'
    np.testing.assert_array_equal(here(op(text, [x, *starts], ("i32", sizes)), x, *starts)[0], x[index])
    names = "".join(f", %{k + 2}" for k in range(len(shape)))
    want = x.copy()
    want[index] = update
    text = f'"stablehlo.dynamic_update_slice"(%0, %1{names})'
    before = x.copy()
    np.testing.assert_array_equal(here(op(text, [x, update, *starts], ("i32", shape)), x, update, *starts)[0], want)
    np.testing.assert_array_equal(x, before)


def test_iota_wraps_and_rounds() -> None:
    for element, dtype in (("i8", "i1"), ("ui8", "u1"), ("f32", "f4"), ("i64", "i8")):
        (got,) = here(op('"stablehlo.iota"() {iota_dimension = 1 : i64}', [], (element, (2, 300))))
        np.testing.assert_array_equal(got, np.broadcast_to(np.arange(300).astype(dtype), (2, 300)))
    text = '"stablehlo.iota"() {iota_dimension = 0 : i64}'
    (got,) = here(op(text, [], ("complex<f32>", (3,))))
    assert got.tolist() == [0, 1, 2]
    (got,) = here(op(text, [], ("i4", (10,))))
    assert got.astype(int).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, -8, -7]


@pytest.mark.filterwarnings("error")
def test_iota_past_the_largest_number_is_infinity_without_a_warning() -> None:
    (got,) = here(op('"stablehlo.iota"() {iota_dimension = 0 : i64}', [], ("f16", (65540,))))
    assert np.flatnonzero(np.isinf(got)).tolist() == list(range(65520, 65540))


def selected(x: np.ndarray, index: np.ndarray, axis: int, batch: int) -> np.ndarray:
    """take, the first `batch` dimensions together."""
    if not batch:
        return np.take(x, index, axis)
    return np.stack([selected(part, places, axis - 1, batch - 1) for part, places in zip(x, index, strict=True)])


@given(st.data())
@SOME
def test_torch_index_select(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 4))
    shape = tuple(data.draw(st.integers(1, 4)) for _ in range(rank))
    dim = data.draw(st.integers(0, rank - 1))
    batch = data.draw(st.integers(0, dim))
    extra = data.draw(st.lists(st.integers(0, 3), max_size=2))
    x = counted(shape)
    index = np.array(data.draw(st.lists(st.integers(0, shape[dim] - 1), min_size=500, max_size=500)), np.int32)[
        : int(np.prod((*shape[:batch], *extra)))
    ].reshape((*shape[:batch], *extra))
    want = selected(x, index, dim, batch)
    text = f'"stablehlo.torch_index_select"(%0, %1) {{dim = {dim} : i64, batch_dims = {batch} : i64}}'
    np.testing.assert_array_equal(here(op(text, [x, index], ("i32", want.shape)), x, index)[0], want)


def test_padding_alone_of_what_was_concatenated() -> None:
    x, outside = counted((1, 3)), np.int32(7)
    text = """func.func @main(%x: tensor<1x3xi32>, %z: tensor<i32>) -> tensor<1x1xi32> {
      %a = stablehlo.slice %x [0:1, 0:1] : (tensor<1x3xi32>) -> tensor<1x1xi32>
      %b = stablehlo.slice %x [0:1, 2:3] : (tensor<1x3xi32>) -> tensor<1x1xi32>
      %c = stablehlo.concatenate %a, %b, dim = 1 : (tensor<1x1xi32>, tensor<1x1xi32>) -> tensor<1x2xi32>
      %p = stablehlo.pad %c, %z, low = [0, 1], high = [0, 2], interior = [0, 0]
        : (tensor<1x2xi32>, tensor<i32>) -> tensor<1x5xi32>
      %r = stablehlo.slice %p [0:1, 4:5] : (tensor<1x5xi32>) -> tensor<1x1xi32>
      return %r : tensor<1x1xi32>
    }"""
    np.testing.assert_array_equal(here(text, x, outside)[0], [[7]])


def test_dimension_sizes() -> None:
    x = counted((3, 5))
    assert_as_reference(op('"stablehlo.get_dimension_size"(%0) {dimension = 1 : i64}', [x], ("i32", ())), x)


def test_a_constant_is_not_handed_out_for_writing() -> None:
    """What a program returns is the caller's: writing into it must not change what the next call returns."""
    text = "func.func @main() -> tensor<3xi32> {\n%0 = stablehlo.constant dense<[1, 2, 3]> : tensor<3xi32>\n"
    program = spmd.compile(spmd.parse(text + "return %0 : tensor<3xi32>\n}"))
    (first,) = program()
    first[...] = 7
    assert program()[0].tolist() == [1, 2, 3]
