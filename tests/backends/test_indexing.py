"""Gather and scatter of random dimension numbers, against the reference interpreter; duplicates and edges by NumPy."""

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spmd.types import ELEMENT_TYPES
from tests.backends.modules import assert_as_reference, here, ints, monoid, op, pair_kept, region
from tests.effort import examples

SOME = settings(max_examples=examples(60))


@dataclass
class Numbers:
    """Random dimension numbers that gather and scatter share: an operand, its slices and where they start."""

    shape: tuple[int, ...]
    sizes: list[int]
    indices: np.ndarray
    vector_dim: int
    mapped: list[int]
    dropped: list[int]
    batching: list[int]
    index_batching: list[int]
    offset_dims: list[int]
    table: tuple[int, ...]

    @property
    def in_one_order(self) -> bool:
        """Whether updates go window by window in the order of their elements too, as the interpreter does them."""
        wide = any(self.sizes[axis] > 1 for axis in self.mapped)
        return not wide or self.offset_dims == list(range(len(self.table)))[len(self.table) - len(self.offset_dims) :]


def draw_numbers(data: st.DataObject) -> Numbers:
    rank = data.draw(st.integers(1, 4))
    shape = tuple(data.draw(st.integers(1, 4)) for _ in range(rank))
    axes = data.draw(st.permutations(range(rank)))
    batching = sorted(axes[: data.draw(st.integers(0, min(2, rank - 1)))])
    rest = [axis for axis in axes if axis not in batching]
    mapped = rest[: data.draw(st.integers(0, len(rest)))]
    dropped = sorted(axis for axis in rest if data.draw(st.booleans()))
    sizes = [1 if k in batching or k in dropped else data.draw(st.integers(1, shape[k])) for k in range(rank)]
    free = [data.draw(st.integers(1, 3)) for _ in range(data.draw(st.integers(0, 2)))]
    batch = data.draw(st.permutations([("b", k) for k in batching] + [("f", k) for k in range(len(free))]))
    batch_shape = [shape[k] if kind == "b" else free[k] for kind, k in batch]
    implicit = len(mapped) == 1 and data.draw(st.booleans())
    vector_dim = len(batch_shape) if implicit else data.draw(st.integers(0, len(batch_shape)))
    index_shape = list(batch_shape)
    if not implicit:
        index_shape.insert(vector_dim, len(mapped))
    positions = [batch.index(("b", k)) for k in batching]
    index_batching = [place + (not implicit and place >= vector_dim) for place in positions]
    seed = data.draw(st.integers(0, 2**16))
    indices = np.random.default_rng(seed).integers(-1, 5, index_shape).astype(np.int64)
    kept = [size for k, size in enumerate(sizes) if k not in dropped and k not in batching]
    result_rank = len(batch_shape) + len(kept)
    offset_dims = sorted(data.draw(st.permutations(range(result_rank)))[: len(kept)])
    offsets, batches = iter(kept), iter(batch_shape)
    table = tuple(next(offsets) if axis in offset_dims else next(batches) for axis in range(result_rank))
    return Numbers(shape, sizes, indices, vector_dim, mapped, dropped, batching, index_batching, offset_dims, table)


def gather_text(n: Numbers) -> str:
    return f""""stablehlo.gather"(%0, %1) {{dimension_numbers = #stablehlo.gather<offset_dims = {n.offset_dims},
        collapsed_slice_dims = {n.dropped}, operand_batching_dims = {n.batching},
        start_indices_batching_dims = {n.index_batching}, start_index_map = {n.mapped},
        index_vector_dim = {n.vector_dim}>, slice_sizes = {ints(n.sizes)}, indices_are_sorted = false}}"""


def draw_gather(data: st.DataObject) -> tuple[str, np.ndarray, np.ndarray]:
    """A gather as a program, and its arguments."""
    n = draw_numbers(data)
    x = np.arange(int(np.prod(n.shape)), dtype=np.float32).reshape(n.shape)
    return op(gather_text(n), [x, n.indices], ("f32", n.table)), x, n.indices


@given(st.data())
@SOME
def test_gather(data: st.DataObject) -> None:
    assert_as_reference(*draw_gather(data))


def scatter_text(n: Numbers, body: str, inputs: int = 1) -> str:
    names = ", ".join(f"%{index}" for index in range(2 * inputs + 1))
    return f""""stablehlo.scatter"({names}) <{{scatter_dimension_numbers = #stablehlo.scatter<
        update_window_dims = {n.offset_dims}, inserted_window_dims = {n.dropped}, input_batching_dims = {n.batching},
        scatter_indices_batching_dims = {n.index_batching}, scatter_dims_to_operand_dims = {n.mapped},
        index_vector_dim = {n.vector_dim}>, indices_are_sorted = false, unique_indices = false}}> {body}"""


ASSIGN = region(2, "i32", "", "%a1")
#: old * 3 + update: its result depends on the order of duplicates.
ORDERED = region(
    2,
    "i32",
    "%k = stablehlo.constant dense<3> : tensor<i32>\n%m = stablehlo.multiply %a0, %k : tensor<i32>\n"
    "%s = stablehlo.add %m, %a1 : tensor<i32>",
    "%s",
)


@pytest.mark.parametrize(
    "body",
    [monoid("add", "i32"), monoid("maximum", "i32"), monoid("subtract", "i32"), ASSIGN, ORDERED],
    ids=["add", "maximum", "subtract", "assign", "any"],
)
@given(st.data())
@settings(max_examples=examples(30))
def test_scatter_skips_what_is_outside_and_keeps_the_order(body: str, data: st.DataObject) -> None:
    n = draw_numbers(data)
    assume(n.in_one_order)
    x = np.arange(int(np.prod(n.shape)), dtype=np.int32).reshape(n.shape)
    updates = np.arange(100, 100 + int(np.prod(n.table)), dtype=np.int32).reshape(n.table)
    arrays = [x, n.indices, updates]
    assert_as_reference(op(scatter_text(n, body), arrays, ("i32", n.shape)), *arrays)


@given(st.data())
@settings(max_examples=examples(25))
def test_scatter_of_two_operands(data: st.DataObject) -> None:
    """The region sees the elements of both: the larger first element takes the second along."""
    n = draw_numbers(data)
    assume(n.in_one_order)
    x = np.arange(int(np.prod(n.shape)), dtype=np.int32).reshape(n.shape)
    updates = (np.arange(int(np.prod(n.table)), dtype=np.int32) * 7 % 13).reshape(n.table)
    arrays = [x, -x, n.indices, updates, updates + 50]
    text = op(scatter_text(n, pair_kept("GE", "i32"), inputs=2), arrays, ("i32", n.shape), ("i32", n.shape))
    assert_as_reference(text, *arrays)


ROWS = Numbers((40, 3), [1, 3], np.zeros((30, 1), np.int64), 1, [0], [0], [], [], [1], (30, 3))


@pytest.mark.parametrize("element", ["f32", "f64", "i32", "bf16", "f16", "i8", "complex<f32>"])
def test_sums_of_many_rows(element: str) -> None:
    from spmd.types import ELEMENT_TYPES

    rng, dtype = np.random.default_rng(0), ELEMENT_TYPES[element].dtype
    indices = rng.integers(0, 40, (30, 1))
    x, updates = (rng.integers(-4, 5, shape).astype(dtype) for shape in ((40, 3), (30, 3)))
    want = x.astype(np.complex128)
    np.add.at(want, indices[:, 0], updates.astype(np.complex128))
    text = op(scatter_text(ROWS, monoid("add", element)), [x, indices, updates], (element, (40, 3)))
    (got,) = here(text, x, indices, updates)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got.astype(np.complex128), want)


def test_nobody_writes_into_an_argument() -> None:
    x, indices, updates = np.zeros((40, 3), np.float32), np.zeros((30, 1), np.int64), np.ones((30, 3), np.float32)
    text = op(scatter_text(ROWS, monoid("add", "f32")), [x, indices, updates], ("f32", (40, 3)))
    (got,) = here(text, x, indices, updates)
    assert got[0].tolist() == [30, 30, 30]
    assert not x.any()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.uint64, np.int8])
def test_indices_of_every_integer_type(dtype: type) -> None:
    x = np.arange(5, dtype=np.float32)
    indices = np.array([[0], [4], [3]], dtype)
    indices[1] = np.iinfo(dtype).max
    text = """"stablehlo.gather"(%0, %1) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0],
        start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>}"""
    assert here(op(text, [x, indices], ("f32", (3,))), x, indices)[0].tolist() == [0, 4, 3]


def test_empty_gather_and_scatter() -> None:
    x, indices, updates = np.zeros((40, 3), np.float32), np.zeros((0, 1), np.int64), np.zeros((0, 3), np.float32)
    n = Numbers((40, 3), [1, 3], indices, 1, [0], [0], [], [], [1], (0, 3))
    (got,) = here(
        op(scatter_text(n, monoid("add", "f32")), [x, indices, updates], ("f32", (40, 3))), x, indices, updates
    )
    assert got.shape == (40, 3)


@pytest.mark.parametrize("body", ["add", "any"])
def test_scatter_into_a_scalar(body: str) -> None:
    n = Numbers((), [], np.zeros(0, np.int64), 0, [], [], [], [], [], ())
    x, update = np.asarray(np.int32(5)), np.asarray(np.int32(2))
    text = scatter_text(n, monoid("add", "i32") if body == "add" else ORDERED)
    (got,) = here(op(text, [x, n.indices, update], ("i32", ())), x, n.indices, update)
    assert int(got) == (7 if body == "add" else 17)


@pytest.mark.parametrize(("shape", "offsets"), [((4, 1, 3), [1]), ((1, 4, 3), [0]), ((1, 3, 4), [1]), ((1, 1, 4), [])])
def test_elements_along_one_dimension_where_the_result_drops_another(
    shape: tuple[int, ...], offsets: list[int]
) -> None:
    """Single elements along the dimension of size 4, all of the others; every dimension of size 1 is collapsed."""
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    indices = np.array([[3, 0], [2, 9], [1, 1]], np.int32)
    axis = shape.index(4)
    collapsed = [k for k, size in enumerate(shape) if size in (1, 4)]
    plain = x.squeeze(tuple(k for k in collapsed if k != axis))
    want = np.moveaxis(plain, plain.shape.index(4), 0)
    want = want[np.clip(indices, 0, 3)]
    for offset in offsets:
        want = np.moveaxis(want, -1, offset)
    text = f""""stablehlo.gather"(%0, %1) {{slice_sizes = {ints([1 if n == 4 else n for n in shape])},
        dimension_numbers = #stablehlo.gather<offset_dims = {offsets}, collapsed_slice_dims = {collapsed},
        start_index_map = [{axis}], index_vector_dim = 2>}}"""
    text = op(text, [x, indices], ("i32", want.shape))
    np.testing.assert_array_equal(here(text, x, indices)[0], want)


@pytest.mark.parametrize("element", ["f32", "f64", "bf16", "f8E4M3FN"])
@pytest.mark.parametrize("shape", [(3, 2), (5, 40), (9, 1200)])
def test_scatter_among_zeros_of_two_signs(element: str, shape: tuple[int, int]) -> None:
    """The larger of +0 and -0 is +0; a sum is -0 where all is; rows that nobody updates stay as they are."""
    dtype = ELEMENT_TYPES[element].dtype
    rows = np.array([[0], [0], [1], [1], [1], [2], [2]] * 3, np.int64)
    zeros = np.array([0.0, -0.0], dtype)
    rng = np.random.default_rng(0)
    x, updates = rng.choice(zeros, shape), rng.choice(zeros, (len(rows), shape[1]))
    numbers = scatter_rows(shape)
    for name in ("add", "maximum", "minimum"):
        (got,) = here(op(f'"stablehlo.scatter"(%0, %1, %2) {numbers} {monoid(name, element)}', [x, rows, updates],
                         (element, shape)), x, rows, updates)  # fmt: skip
        want = np.signbit(x.astype(np.float32))
        for row, update in zip(rows[:, 0], np.signbit(updates.astype(np.float32)), strict=True):
            want[row] = want[row] | update if name == "minimum" else want[row] & update
        np.testing.assert_array_equal(np.signbit(got.astype(np.float32)), want, name)
        assert not got.astype(np.float32).any()


def scatter_rows(shape: tuple[int, int]) -> str:
    return """<{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0],
        scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}>"""


@pytest.mark.parametrize("name", ["add", "multiply"])
def test_updates_of_narrow_floats_are_rounded_once(name: str) -> None:
    """However many there are: as a reduction of the same elements."""
    for count in (3, 5000):
        x = np.full((2, 1), 1, ml_dtypes.bfloat16)
        updates = np.full((count, 1), 1.0078125 if name == "multiply" else 0.00390625, ml_dtypes.bfloat16)
        if name == "multiply":
            updates[count // 2 :] = 0.99609375
        rows = np.ones((count, 1), np.int64)
        text = op(f'"stablehlo.scatter"(%0, %1, %2) {scatter_rows((2, 1))} {monoid(name, "bf16")}', [x, rows, updates],
                  ("bf16", (2, 1)))  # fmt: skip
        wide = np.float32(1)
        for update in updates.astype(np.float32)[:, 0]:
            wide = wide + update if name == "add" else wide * update
        np.testing.assert_array_equal(here(text, x, rows, updates)[0], np.array([[1], [wide]]).astype(x.dtype))
