"""Every op's rule: what differs between processes is stacked, and each gets what it gets alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spmd.types import ELEMENT_TYPES
from tests.backends.modules import dense, monoid, op, region
from tests.backends.test_contraction import dot_text, draw_dot
from tests.backends.test_convolution import defined, draw_convolution
from tests.backends.test_indexing import draw_gather, draw_numbers, scatter_text
from tests.compiler.stacking import assert_stacks
from tests.effort import examples

SOME = settings(max_examples=examples(25))
HURTING = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42, 3.4e38, -1.5, 0.1, 7.0, 2.5, -0.5], np.float32)


def normal(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)


def scalar(value: float, dtype: type = np.float32) -> np.ndarray:
    return np.array(value, dtype)


def whole(*shape: int) -> np.ndarray:
    """Small integers, of which sums of products are exact."""
    return np.random.default_rng(len(shape)).integers(-3, 4, shape).astype(np.float32)


def ordering(compare: str) -> str:
    """A region that compares its two arguments."""
    return region(2, "f32", f"%c = stablehlo.compare {compare} : (tensor<f32>, tensor<f32>) -> tensor<i1>", "%c", "i1")


ADD = monoid("add", "f32")
#: Op without its types, its arguments, its results.
OPS = {
    "add": ('"stablehlo.add"(%0, %1)', [HURTING, HURTING[::-1].copy()], [("f32", (12,))]),
    "tanh of a scalar": ('"stablehlo.tanh"(%0)', [scalar(0.3)], [("f32", ())]),
    "add of scalars": ('"stablehlo.add"(%0, %1)', [scalar(0.3), scalar(2)], [("f32", ())]),
    "clamp by scalars": ('"stablehlo.clamp"(%0, %1, %2)', [scalar(-1), HURTING, scalar(1)], [("f32", (12,))]),
    "clamp by arrays": ('"stablehlo.clamp"(%0, %1, %2)', [-abs(normal(6)), normal(6), abs(normal(6))], [("f32", (6,))]),
    "select by a scalar": (
        '"stablehlo.select"(%0, %1, %2)', [np.array(True), normal(2, 3), -normal(2, 3)], [("f32", (2, 3))],
    ),
    "compare": (
        '"stablehlo.compare"(%0, %1) {comparison_direction = #stablehlo<comparison_direction LT>}',
        [HURTING, HURTING[::-1].copy()], [("i1", (12,))],
    ),
    "complex": ('"stablehlo.complex"(%0, %1)', [HURTING, HURTING[::-1].copy()], [("complex<f32>", (12,))]),
    "bitcast to bytes": ('"stablehlo.bitcast_convert"(%0)', [HURTING], [("i8", (12, 4))]),
    "map": (
        '"stablehlo.map"(%0, %1) ' + monoid("multiply", "f32") + " {dimensions = array<i64: 0, 1>}",
        [normal(2, 3), normal(2, 3)], [("f32", (2, 3))],
    ),
    "broadcast_in_dim": (
        '"stablehlo.broadcast_in_dim"(%0) {broadcast_dimensions = array<i64: 2, 0>}', [normal(1, 3)],
        [("f32", (3, 2, 4))],
    ),
    "broadcast of a scalar": (
        '"stablehlo.broadcast_in_dim"(%0) {broadcast_dimensions = array<i64>}', [scalar(2)], [("f32", (3, 2))],
    ),
    "broadcast": ('"stablehlo.broadcast"(%0) {broadcast_sizes = array<i64: 2, 1>}', [normal(3)], [("f32", (2, 1, 3))]),
    "transpose": (
        '"stablehlo.transpose"(%0) {permutation = array<i64: 2, 0, 1>}', [normal(2, 3, 4)], [("f32", (4, 2, 3))],
    ),
    "reshape": ('"stablehlo.reshape"(%0)', [normal(2, 6)], [("f32", (3, 4))]),
    "reshape to a scalar": ('"stablehlo.reshape"(%0)', [normal(1, 1)], [("f32", ())]),
    "reverse": ('"stablehlo.reverse"(%0) {dimensions = array<i64: 1>}', [normal(2, 3)], [("f32", (2, 3))]),
    "slice": (
        '"stablehlo.slice"(%0) {start_indices = array<i64: 0, 1>, limit_indices = array<i64: 2, 6>, '
        "strides = array<i64: 1, 2>}", [normal(3, 7)], [("f32", (2, 3))],
    ),
    "slice to nothing": (
        '"stablehlo.slice"(%0) {start_indices = array<i64: 2>, limit_indices = array<i64: 2>, '
        "strides = array<i64: 1>}", [normal(3)], [("f32", (0,))],
    ),
    "concatenate": (
        '"stablehlo.concatenate"(%0, %1) {dimension = 1 : i64}', [normal(2, 3), normal(2, 1)], [("f32", (2, 4))],
    ),
    "pad": (
        '"stablehlo.pad"(%0, %1) {edge_padding_low = array<i64: 1, -1>, edge_padding_high = array<i64: 0, 2>, '
        "interior_padding = array<i64: 2, 0>}", [normal(2, 3), scalar(9)], [("f32", (5, 4))],
    ),
    "reduce": (
        '"stablehlo.reduce"(%0, %1) ' + ADD + " {dimensions = array<i64: 1>}", [normal(2, 5), scalar(0)],
        [("f32", (2,))],
    ),
    "reduce to a scalar": (
        '"stablehlo.reduce"(%0, %1) ' + monoid("maximum", "f32") + " {dimensions = array<i64: 0>}",
        [HURTING, scalar(-3)], [("f32", ())],
    ),
    "reduce_window": (
        '"stablehlo.reduce_window"(%0, %1) ' + monoid("maximum", "f32") + " {window_dimensions = array<i64: 1, 2>, "
        "window_strides = array<i64: 1, 2>, base_dilations = array<i64: 2, 1>, window_dilations = array<i64: 1, 2>, "
        "padding = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}", [normal(2, 6), scalar(-9)], [("f32", (4, 3))],
    ),
    "select_and_scatter": (
        '"stablehlo.select_and_scatter"(%0, %1, %2) <{window_dimensions = array<i64: 2>, '
        f"window_strides = array<i64: 2>, padding = {dense([(0, 0)])}}}> ("
        + ordering("GE, %a0, %a1")[1:-1] + ", " + ADD[1:-1] + ")", [normal(6), normal(3), scalar(0)], [("f32", (6,))],
    ),
    "sort": (
        '"stablehlo.sort"(%0) '
        + ordering("LT, %a0, %a1, TOTALORDER")
        + " {dimension = 0 : i64, is_stable = true}", [HURTING], [("f32", (12,))],
    ),
    "get_dimension_size": ('"stablehlo.get_dimension_size"(%0) {dimension = 1 : i64}', [normal(2, 3)], [("i32", ())]),
    "dynamic_slice": (
        '"stablehlo.dynamic_slice"(%0, %1, %2) {slice_sizes = array<i64: 2, 3>}',
        [normal(4, 5), scalar(1, np.int32), scalar(-1, np.int32)], [("f32", (2, 3))],
    ),
    "dynamic_slice far outside": (
        '"stablehlo.dynamic_slice"(%0, %1) {slice_sizes = array<i64: 2>}',
        [normal(300), scalar(2**64 - 3, np.uint64)], [("f32", (2,))],
    ),
    "dynamic_slice by bytes": (
        '"stablehlo.dynamic_slice"(%0, %1) {slice_sizes = array<i64: 2>}',
        [normal(300), scalar(125, np.int8)], [("f32", (2,))],
    ),
    "dynamic_update_slice": (
        '"stablehlo.dynamic_update_slice"(%0, %1, %2, %3)',
        [normal(4, 5), normal(2, 3), scalar(3, np.int64), scalar(-1, np.int64)], [("f32", (4, 5))],
    ),
    "torch_index_select": (
        '"stablehlo.torch_index_select"(%0, %1) {dim = 1 : i64, batch_dims = 0 : i64}',
        [normal(3, 4), np.array([[0, 3, 1]], np.int32)], [("f32", (3, 1, 3))],
    ),
    "cholesky": ('"stablehlo.cholesky"(%0) {lower = true}', [np.eye(3, dtype=np.float32) * 4], [("f32", (3, 3))]),
    "triangular_solve": (
        '"stablehlo.triangular_solve"(%0, %1) <{left_side = true, lower = true, unit_diagonal = false, '
        "transpose_a = #stablehlo<transpose TRANSPOSE>}>", [np.eye(3) * 4 + 1, normal(3, 2, dtype=np.float64)],
        [("f64", (3, 2))],
    ),
    "fft": (
        '"stablehlo.fft"(%0) {fft_type = #stablehlo<fft_type RFFT>, fft_length = array<i64: 6>}', [normal(2, 6)],
        [("complex<f32>", (2, 4))],
    ),
    "batch_norm_inference": (
        '"stablehlo.batch_norm_inference"(%0, %1, %2, %3, %4) {epsilon = 1.0e-3 : f32, feature_index = 1 : i64}',
        [normal(4, 2, 3), normal(2), normal(2), normal(2), abs(normal(2))], [("f32", (4, 2, 3))],
    ),
    "dot": ('"stablehlo.dot"(%0, %1)', [whole(2, 3), whole(3, 4)], [("f32", (2, 4))]),
    "dot of vectors": ('"stablehlo.dot"(%0, %1)', [whole(3), whole(3)], [("f32", ())]),
    "einsum": (
        '"stablehlo.einsum"(%0, %1) {einsum_config = "abc,dc->dab"}', [whole(2, 3, 4), whole(5, 4)],
        [("f32", (5, 2, 3))],
    ),
    "chlo.erf": ('"chlo.erf"(%0)', [HURTING], [("f32", (12,))]),
    "chlo.broadcast_add": ('"chlo.broadcast_add"(%0, %1)', [normal(2, 1), normal(3)], [("f32", (2, 3))]),
    "chlo.broadcast_add along": (
        '"chlo.broadcast_add"(%0, %1) {broadcast_dimensions = array<i64: 0>}', [normal(2, 3), normal(2)],
        [("f32", (2, 3))],
    ),
    "chlo.top_k": ('"chlo.top_k"(%0) {k = 2 : i64}', [normal(2, 5)], [("f32", (2, 2)), ("i32", (2, 2))]),
    "rng_bit_generator": (
        '"stablehlo.rng_bit_generator"(%0) {rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>}',
        [np.array([1, 2], np.uint64)], [("ui64", (2,)), ("ui32", (3,))],
    ),
}  # fmt: skip
#: Ops that are run process by process where an argument differs that they take once.
TURNS = {"reduce", "reduce to a scalar", "reduce_window", "select_and_scatter", "rng_bit_generator"}


@pytest.mark.sampled(15)
@pytest.mark.parametrize("name", OPS)
def test_an_op(name: str) -> None:
    text, arrays, results = OPS[name]
    assert_stacks(op(text, arrays, *results), *arrays, serial=name in TURNS)


@given(st.data())
@SOME
def test_products(data: st.DataObject) -> None:
    numbers, lhs, rhs, equation = draw_dot(data)
    x, y = whole(*lhs), whole(*rhs)
    shape = np.einsum(equation, x, y).shape
    assert_stacks(op(dot_text(numbers), [x, y], ("f32", shape)), x, y)


#: Sizes at which a product of all processes' rows sums in another order than each one's.
UNLIKE = [(36, 64, 19, "f64"), (77, 70, 1, "f32"), (7, 34, 5, "f32"), (1, 34, 12, "f64"), (2, 73, 10, "f32")]


@pytest.mark.parametrize(("rows", "depth", "columns", "element"), UNLIKE)
def test_reproducible_products_have_the_bits_of_each_process(rows: int, depth: int, columns: int, element: str) -> None:
    rng, dtype = np.random.default_rng(0), ELEMENT_TYPES[element].dtype
    for transposed in (False, True):
        numbers = f"lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [{int(transposed)}]"
        text = f'"stablehlo.dot_general"(%0, %1) {{dot_dimension_numbers = #stablehlo.dot<{numbers}>}}'
        x = rng.normal(size=(rows, depth)).astype(dtype)
        w = rng.normal(size=(columns, depth) if transposed else (depth, columns)).astype(dtype)
        assert_stacks(op(text, [x, w], (element, (rows, columns))), x, w, reproducible=True)


def test_reproducible_convolutions_have_the_bits_of_each_process() -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=shape).astype(np.float32) for shape in ((2, 9, 4), (3, 4, 6)))
    text = '"stablehlo.convolution"(%0, %1) {dimension_numbers = #stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>, '
    text += "feature_group_count = 1 : i64, batch_group_count = 1 : i64}"
    assert_stacks(op(text, [x, w], ("f32", (2, 7, 6))), x, w, serial=None, reproducible=True)


@given(st.data())
@SOME
def test_convolutions(data: st.DataObject) -> None:
    c, x, w = draw_convolution(data)
    text = op(f'"stablehlo.convolution"(%0, %1) {{{c.text()}}}', [x, w], ("f32", defined(c, x, w).shape))
    assert_stacks(text, x, w, serial=c.batch_groups > 1)


@given(st.data())
@SOME
def test_gathers(data: st.DataObject) -> None:
    assert_stacks(*draw_gather(data))


@pytest.mark.parametrize("body", [monoid("add", "i32"), region(2, "i32", "", "%a1")])
@given(st.data())
@SOME
def test_scatters(body: str, data: st.DataObject) -> None:
    n = draw_numbers(data)
    x = np.arange(int(np.prod(n.shape)), dtype=np.int32).reshape(n.shape)
    updates = np.arange(100, 100 + int(np.prod(n.table)), dtype=np.int32).reshape(n.table)
    assert_stacks(op(scatter_text(n, body), [x, n.indices, updates], ("i32", n.shape)), x, n.indices, updates)


@pytest.mark.parametrize(("name", "others", "results"), [("training", 2, 2), ("grad", 4, 2)])
def test_statistics_are_those_of_each_process(name: str, others: int, results: int) -> None:
    arrays = [normal(16, 2, 3), *(abs(normal(2)) + k for k in range(min(others, 3)))]
    if name == "grad":
        arrays.append(normal(16, 2, 3) * 2)
    operands = ", ".join(f"%{index}" for index in range(len(arrays)))
    text = f'"stablehlo.batch_norm_{name}"({operands}) {{epsilon = 1.0e-3 : f32, feature_index = 1 : i64}}'
    features = [("f32", (2,))] * results
    assert_stacks(op(text, arrays, ("f32", (16, 2, 3)), *features), *arrays, tolerance=1e-4)
