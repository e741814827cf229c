"""XlaBuilder operation semantics: the worked examples of operations on arrays, and of tuples."""

from __future__ import annotations

import numpy as np
import pytest

import spmd
from spmd.builder import DotDimensionNumbers, FftType, GatherDimensionNumbers, Shape, XlaBuilder, ops
from tests.builder.support import Array, build, equal, evaluate, f32, run, s32, scalars

CUBE = f32([[[10, 11, 12], [15, 16, 17]], [[20, 21, 22], [25, 26, 27]],
            [[30, 31, 32], [35, 36, 37]], [[40, 41, 42], [45, 46, 47]]])  # fmt: skip
FLAT = f32([10, 11, 12, 15, 16, 17, 20, 21, 22, 25, 26, 27, 30, 31, 32, 35, 36, 37, 40, 41, 42, 45, 46, 47])
ROWS_OF_6 = [[10, 11, 12, 15, 16, 17], [20, 21, 22, 25, 26, 27], [30, 31, 32, 35, 36, 37], [40, 41, 42, 45, 46, 47]]
ROWS_OF_3 = [
    [10, 11, 12],
    [15, 16, 17],
    [20, 21, 22],
    [25, 26, 27],
    [30, 31, 32],
    [35, 36, 37],
    [40, 41, 42],
    [45, 46, 47],
]
TABLE = f32([[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]])


@pytest.mark.parametrize(
    ("operand", "type", "result"),
    [("f32[10]", "f16", "f16[10,2]"), ("f32[]", "f16", "f16[2]"), ("f16[10,2]", "f32", "f32[10]"),
     ("s32[]", "s8", "s8[4]"), ("s32[3]", "f32", "f32[3]")],
)  # fmt: skip
def test_bitcast_convert_type(operand: str, type: str, result: str) -> None:
    shape = Shape(operand)
    values = (np.arange(shape.size() * shape.element_type().itemsize, dtype=np.uint8) % 60).view(shape.element_type())
    array = values.reshape(shape.dimensions())
    got = evaluate(lambda _, x: ops.BitcastConvertType(x, type), array)
    assert Shape.array_shape(got.dtype, got.shape).brief == result
    assert got.tobytes() == array.tobytes()


def test_broadcast() -> None:
    got = evaluate(lambda b: ops.Broadcast(b.ConstantR0(2.0), [2, 3]))
    assert got.dtype == np.float32
    equal(got, [[2, 2, 2], [2, 2, 2]])
    equal(evaluate(lambda _, x: ops.Broadcast(x, [2, 2]), f32([1, 2])), np.tile(f32([1, 2]), (2, 2, 1)))


def test_clamp() -> None:
    equal(evaluate(lambda _, low, x, high: ops.Clamp(low, x, high), s32(0), s32([-1, 5, 9]), s32(6)), [0, 5, 6])


def test_collapse() -> None:
    equal(evaluate(lambda _, v: ops.Collapse(v, [0, 1, 2]), CUBE), FLAT)
    equal(evaluate(lambda _, v: ops.Collapse(v, [0, 1]), CUBE), ROWS_OF_3)
    equal(evaluate(lambda _, v: ops.Collapse(v, [1, 2]), CUBE), ROWS_OF_6)


def test_concatenate() -> None:
    equal(
        evaluate(lambda _, *parts: ops.Concatenate(parts, 0), f32([2, 3]), f32([4, 5]), f32([6, 7])), [2, 3, 4, 5, 6, 7]
    )
    a, b = f32([[1, 2], [3, 4], [5, 6]]), f32([[7, 8]])
    equal(evaluate(lambda _, *parts: ops.ConcatInDim(parts, 0), a, b), [[1, 2], [3, 4], [5, 6], [7, 8]])


def test_convert_element_type() -> None:
    got = evaluate(lambda _, a: ops.ConvertElementType(a, "f32"), s32([0, 1, 2]))
    assert got.dtype == np.float32
    equal(got, [0.0, 1.0, 2.0])
    # s32 to f32 rounds to nearest, ties to even
    equal(evaluate(lambda _, a: ops.ConvertElementType(a, "f32"), s32([2**24 + 1, 2**24 + 3])), [2.0**24, 2.0**24 + 4])


def test_custom_call() -> None:
    def myfunc(x: Array, y: Array, attributes: object) -> Array:
        equal((x, y), [[1, 2], [[10, 20, 30], [40, 50, 60]]])
        z = np.zeros((3, 3), np.float32)
        z[0, 0] = x[1] + y[1, 0]
        return z

    spmd.register_custom_call("myfunc", myfunc)
    x, y = f32([1, 2]), f32([[10, 20, 30], [40, 50, 60]])
    got = evaluate(lambda _, x, y: ops.CustomCall("myfunc", [x, y], Shape("f32[3,3]")), x, y)
    assert got[0, 0] == 42


def test_dot() -> None:
    vector, matrix, other = f32([1, 2, 3]), f32([[1, 2, 3], [4, 5, 6]]), f32([[1, 0], [0, 1], [2, 2]])
    equal(evaluate(lambda _, x, y: ops.Dot(x, y), vector, vector), 14)
    equal(evaluate(lambda _, x, y: ops.Dot(x, y), matrix, vector), [14, 32])
    equal(evaluate(lambda _, x, y: ops.Dot(x, y), matrix, other), [[7, 8], [16, 17]])


def test_dot_general_contracting() -> None:
    lhs, rhs = f32([[1, 2, 3], [4, 5, 6]]), f32([[1, 1, 1], [2, 2, 2]])
    dnums = DotDimensionNumbers()
    dnums.add_lhs_contracting_dimensions(1)
    dnums.add_rhs_contracting_dimensions(1)
    equal(evaluate(lambda _, x, y: ops.DotGeneral(x, y, dnums), lhs, rhs), [[6, 12], [15, 30]])


def test_dot_general_batch() -> None:
    lhs, rhs = f32([[[1, 2], [3, 4]], [[5, 6], [7, 8]]]), f32([[[1, 0], [0, 1]], [[1, 0], [0, 1]]])
    dnums = DotDimensionNumbers()
    dnums.add_lhs_contracting_dimensions(2)
    dnums.add_rhs_contracting_dimensions(1)
    dnums.add_lhs_batch_dimensions(0)
    dnums.add_rhs_batch_dimensions(0)
    equal(evaluate(lambda _, x, y: ops.DotGeneral(x, y, dnums), lhs, rhs), lhs)


@pytest.mark.parametrize("batch", [(2,), (2, 3)])
def test_dot_general_is_a_batch_matmul(batch: tuple[int, ...]) -> None:
    count = int(np.prod(batch))
    lhs = np.arange(count * 20, dtype=np.float32).reshape(*batch, 4, 5)
    rhs = np.arange(count * 30, dtype=np.float32).reshape(*batch, 5, 6)
    places = list(range(len(batch)))
    numbers = DotDimensionNumbers([len(batch) + 1], [len(batch)], places, places)
    equal(evaluate(lambda _, x, y: ops.DotGeneral(x, y, numbers), lhs, rhs), lhs @ rhs)


def test_dynamic_slice() -> None:
    one = evaluate(lambda b, a: ops.DynamicSlice(a, [b.ConstantR0(2)], [2]), f32([0, 1, 2, 3, 4]))
    equal(one, [2, 3])
    equal(evaluate(lambda _, b, s: ops.DynamicSlice(b, s, [2, 2]), TABLE, s32([2, 1])), [[7, 8], [10, 11]])


def test_dynamic_slice_stays_inside() -> None:
    equal(evaluate(lambda _, a, s: ops.DynamicSlice(a, s, [2]), f32([0, 1, 2, 3, 4]), s32([9])), [3, 4])
    equal(evaluate(lambda _, a, s: ops.DynamicSlice(a, s, [2]), f32([0, 1, 2, 3, 4]), s32([-9])), [0, 1])


def test_dynamic_update_slice() -> None:
    a, u = f32([0, 1, 2, 3, 4]), f32([5, 6])
    equal(evaluate(lambda b, a, u: ops.DynamicUpdateSlice(a, u, [b.ConstantR0(2)]), a, u), [0, 1, 5, 6, 4])
    update = f32([[12, 13], [14, 15], [16, 17]])
    got = evaluate(lambda _, b, u, s: ops.DynamicUpdateSlice(b, u, s), TABLE, update, s32([1, 1]))
    equal(got, [[0, 1, 2], [3, 12, 13], [6, 14, 15], [9, 16, 17]])


def test_sign() -> None:
    got = evaluate(lambda _, x: ops.Sign(x), f32([-7, -0.0, np.nan, 0.0, 7]))
    np.testing.assert_array_equal(got, f32([-1, -0.0, np.nan, 0.0, 1]))
    assert np.signbit(got).tolist()[:2] == [True, True]
    assert not np.signbit(got[3])


def test_imag_and_real_of_floats() -> None:
    equal(evaluate(lambda _, x: ops.Imag(x), f32([1, 2])), [0, 0])
    equal(evaluate(lambda _, x: ops.Real(x), f32([1, 2])), [1, 2])


def test_total_order() -> None:
    """-NaN < -Inf < -Finite < -0 < +0 < +Finite < +Inf < +NaN."""
    chain = f32([-np.nan, -np.inf, -3, -0.0, 0.0, 3, np.inf, np.nan])
    chain[0] = np.copysign(np.float32(np.nan), np.float32(-1))
    chain[-1] = np.copysign(np.float32(np.nan), np.float32(1))
    below, equal_, above = np.tri(8, k=-1, dtype=bool).T, np.eye(8, dtype=bool), np.tri(8, k=-1, dtype=bool)
    expected = {"Lt": below, "Le": below | equal_, "Eq": equal_, "Ne": ~equal_, "Ge": above | equal_, "Gt": above}
    for name, want in expected.items():
        compare = getattr(ops, f"{name}TotalOrder")
        got = evaluate(lambda _, x, y, compare=compare: compare(x, y), chain[:, None], chain[None, :])
        equal(got, want)


def test_comparisons_are_ieee_754() -> None:
    x = f32([np.nan, 0.0, -0.0])
    equal(evaluate(lambda _, x, y: ops.Eq(x, y), x, f32([np.nan, -0.0, 0.0])), [False, True, True])
    equal(evaluate(lambda _, x, y: ops.Ne(x, y), x, f32([np.nan, -0.0, 0.0])), [True, False, False])


def test_remainder_has_the_sign_of_the_dividend() -> None:
    equal(evaluate(lambda _, x, y: ops.Rem(x, y), s32([7, -7, 7, -7]), s32([3, 3, -3, -3])), [1, -1, 1, -1])


@pytest.mark.parametrize("length", [16, 17])
def test_fft_lengths_16_and_17_have_one_output_shape(length: int) -> None:
    signal = np.sin(np.arange(length)).astype(np.float32)
    spectrum = evaluate(lambda _, x: ops.Fft(x, FftType.RFFT, [length]), signal)
    assert spectrum.shape == (9,)
    back = evaluate(lambda _, x: ops.Fft(x, FftType.IRFFT, [length]), spectrum)
    assert back.shape == (length,)
    np.testing.assert_allclose(back, signal, atol=1e-6)


def test_gather_of_slices() -> None:
    """Five slices of [8,6] from [16,11]: out[G, O0, O1] = in[X + O0, Y + O1]."""
    operand = np.arange(16 * 11, dtype=np.float32).reshape(16, 11)
    starts = np.array([[0, 0], [8, 5], [3, 2], [1, 4], [7, 0]], dtype=np.int64)
    got = evaluate(lambda _, x, i: ops.Gather(x, i, [1, 2], [], [8, 6], [0, 1]), operand, starts)
    equal(got, np.stack([operand[x : x + 8, y : y + 6] for x, y in starts]))


def test_gather_of_slices_by_a_matrix_of_indices() -> None:
    operand = np.arange(16 * 11, dtype=np.float32).reshape(16, 11)
    starts = np.stack(np.meshgrid(np.arange(4), np.arange(5), indexing="ij"), axis=-1)
    got = evaluate(lambda _, x, i: ops.Gather(x, i, [2, 3], [], [8, 6], [0, 1]), operand, starts)
    assert got.shape == (4, 5, 8, 6)
    equal(got, [[operand[x : x + 8, y : y + 6] for x, y in row] for row in starts])


def test_gather_nd() -> None:
    """Rows: out[G0, G1, O0] = in[indices[G0, G1, 0], O0], slice sizes [1, 11]."""
    operand = np.arange(16 * 11, dtype=np.float32).reshape(16, 11)
    starts = np.array([[0, 15, 3], [7, 7, 1]], dtype=np.int64)[..., None]
    got = evaluate(lambda _, x, i: ops.Gather(x, i, [2], [0], [1, 11], [0]), operand, starts)
    equal(got, operand[starts[..., 0]])


def test_gather_with_an_implicit_index_dimension() -> None:
    """index_vector_dim 2 on indices [6,7]: as if they were [6,7,1]."""
    operand = np.arange(20, dtype=np.float32)
    starts = np.arange(42).reshape(6, 7) % 20
    got = evaluate(lambda _, x, i: ops.Gather(x, i, [], [0], [1], [0], 2), operand, starts)
    equal(got, operand[starts])


def test_gather_maps_offset_dimensions_in_order() -> None:
    """Four offset dimensions of a rank 6 operand whose dimensions 0 and 2 are collapsed go to 1, 3, 4, 5."""
    operand = np.arange(2 * 3 * 2 * 3 * 2 * 3, dtype=np.float32).reshape(2, 3, 2, 3, 2, 3)
    numbers = GatherDimensionNumbers([0, 1, 2, 3], [0, 2], [0, 2], 0)
    got = evaluate(lambda _, x, i: ops.Gather(x, i, numbers, [1, 3, 1, 3, 2, 3]), operand, s32([1, 0]))
    equal(got, operand[1, :, 0])


def test_get_tuple_element() -> None:
    v, s = np.arange(10, dtype=np.float32), s32(5)
    built = build(lambda _, v, s: ops.GetTupleElement(ops.Tuple([v, s]), 1), v, s)
    assert built.program_shape().result_shape == Shape("s32[]")
    equal(run(built, v, s), 5)


def test_iota() -> None:
    equal(evaluate(lambda b: b.Iota(Shape("s32[4,8]"), 0)), [[row] * 8 for row in range(4)])
    equal(evaluate(lambda b: b.Iota(Shape("s32[4,8]"), 1)), [list(range(8))] * 4)


def test_iota_of_floats_is_the_converted_iota() -> None:
    equal(evaluate(lambda b: b.Iota(Shape("f32[5]"), 0)), [0.0, 1.0, 2.0, 3.0, 4.0])


def test_reshape_in_order() -> None:
    equal(evaluate(lambda _, v: ops.Reshape(v, [24]), CUBE), FLAT)
    equal(evaluate(lambda _, v: ops.Reshape(v, [8, 3]), CUBE), ROWS_OF_3)
    equal(evaluate(lambda _, v: ops.Reshape(v, [0, 1, 2], [24]), CUBE), FLAT)
    equal(evaluate(lambda _, v: ops.Reshape(v, [0, 1, 2], [8, 3]), CUBE), ROWS_OF_3)


def test_reshape_out_of_order() -> None:
    equal(
        evaluate(lambda _, v: ops.Reshape(v, [1, 2, 0], [24]), CUBE),
        [10, 20, 30, 40, 11, 21, 31, 41, 12, 22, 32, 42, 15, 25, 35, 45, 16, 26, 36, 46, 17, 27, 37, 47],
    )
    equal(
        evaluate(lambda _, v: ops.Reshape(v, [1, 2, 0], [8, 3]), CUBE),
        [
            [10, 20, 30],
            [40, 11, 21],
            [31, 41, 12],
            [22, 32, 42],
            [15, 25, 35],
            [45, 16, 26],
            [36, 46, 17],
            [27, 37, 47],
        ],
    )
    equal(
        evaluate(lambda _, v: ops.Reshape(v, [1, 2, 0], [2, 6, 2]), CUBE),
        [[[10, 20], [30, 40], [11, 21], [31, 41], [12, 22], [32, 42]],
         [[15, 25], [35, 45], [16, 26], [36, 46], [17, 27], [37, 47]]],
    )  # fmt: skip


def test_reshape_of_one_element() -> None:
    equal(evaluate(lambda _, v: ops.Reshape(v, [0, 1], []), f32([[5]])), 5)
    equal(evaluate(lambda _, v: ops.Reshape(v, []), f32([[5]])), 5)
    equal(evaluate(lambda _, v: ops.Reshape(v, [], [1, 1]), f32(5)), [[5]])
    equal(evaluate(lambda _, v: ops.Reshape(v, [1, 1]), f32(5)), [[5]])


def test_rev() -> None:
    equal(evaluate(lambda _, v: ops.Rev(v, [0, 2]), CUBE), CUBE[::-1, :, ::-1])


def test_select() -> None:
    v1, v2 = s32([1, 2, 3, 4]), s32([100, 200, 300, 400])
    choose = lambda _, p, x, y: ops.Select(p, x, y)  # noqa: E731
    equal(evaluate(choose, np.array([True, False, False, True]), v1, v2), [1, 200, 300, 4])
    equal(evaluate(choose, np.array(True), v1, v2), [1, 2, 3, 4])


def test_select_of_tuples() -> None:
    def choose(_: XlaBuilder, pred: object, x: object, y: object) -> object:
        return ops.Select(pred, ops.Tuple([x, y]), ops.Tuple([y, x]))

    equal(evaluate(choose, np.array(False), f32(1), f32(2)), [2, 1])


def test_set_dimension_size() -> None:
    v = np.arange(1, 11, dtype=np.float32)
    add = scalars("add", ["f32", "f32"], ops.Add)
    multiply = scalars("multiply", ["f32", "f32"], ops.Mul)

    def reduced(size: int, computation: object, start: float) -> object:
        def body(b: XlaBuilder, v: object) -> object:
            padded = ops.SetDimensionSize(v, b.ConstantR0(size), 0)
            return ops.Reduce(padded, b.ConstantR0(start), computation, [0])

        return evaluate(body, v)

    equal(reduced(5, add, 0.0), 1 + 2 + 3 + 4 + 5)
    equal(reduced(5, multiply, 1.0), 1 * 2 * 3 * 4 * 5)
    equal(reduced(6, add, 0.0), 1 + 2 + 3 + 4 + 5 + 6)


def test_slice() -> None:
    equal(evaluate(lambda _, a: ops.Slice(a, [2], [4]), f32([0, 1, 2, 3, 4])), [2, 3])
    equal(evaluate(lambda _, b: ops.Slice(b, [2, 1], [4, 3]), TABLE), [[7, 8], [10, 11]])


def test_sort_of_three_operands() -> None:
    comparator = scalars("lt", ["s32", "s32", "s32", "s32", "f32", "f32"], lambda x, y, *_: ops.Lt(x, y))
    got = evaluate(lambda _, *operands: ops.Sort(operands, comparator, 0), s32([3, 1]), s32([42, 50]), f32([-3.0, 1.1]))
    equal(got, [s32([1, 3]), s32([50, 42]), f32([1.1, -3.0])])


def test_sort_along_each_dimension() -> None:
    comparator = scalars("lt", ["f32", "f32"], ops.Lt)
    matrix = f32([[3, 1, 2], [0, 5, 1]])
    equal(evaluate(lambda _, x: ops.Sort([x], comparator, 0), matrix), np.sort(matrix, axis=0))
    equal(evaluate(lambda _, x: ops.Sort([x], comparator, 1), matrix), np.sort(matrix, axis=1))
    equal(evaluate(lambda _, x: ops.Sort([x], comparator), matrix), np.sort(matrix, axis=-1))


def test_a_stable_sort_keeps_the_order_of_equals() -> None:
    comparator = scalars("lt", ["s32", "s32", "s32", "s32"], lambda x, y, *_: ops.Lt(x, y))
    keys = s32([1, 0] * 8)
    got = evaluate(lambda b, x: ops.Sort([x, b.Iota(Shape("s32[16]"))], comparator, 0, True), keys)
    equal(got, [np.sort(keys), np.argsort(keys, kind="stable").astype(np.int32)])


@pytest.mark.parametrize("largest", [True, False])
def test_top_k_gives_values_and_indices_in_order(largest: bool) -> None:
    row = f32([[1, 5, 5, 0, 3], [9, 2, 2, 9, 7]])
    values, indices = evaluate(lambda _, x: ops.TopK(x, 3, largest), row)
    assert indices.dtype == np.int32
    if largest:
        equal((values, indices), [[[5, 5, 3], [9, 9, 7]], [[1, 2, 4], [0, 3, 4]]])
    else:
        equal((values, indices), [[[0, 1, 3], [2, 2, 7]], [[3, 0, 4], [1, 2, 4]]])


def test_transpose_is_the_reshape_in_the_same_order() -> None:
    permutation = [1, 2, 0]
    one = evaluate(lambda _, v: ops.Transpose(v, permutation), CUBE)
    two = evaluate(lambda _, v: ops.Reshape(v, permutation, [CUBE.shape[d] for d in permutation]), CUBE)
    assert all(CUBE.shape[permutation[i]] == one.shape[i] for i in range(3))
    equal(one, two)


def test_tuple() -> None:
    v, s = np.arange(10, dtype=np.float32), s32(5)
    built = build(lambda _, v, s: ops.Tuple([v, s]), v, s)
    assert built.program_shape().result_shape.brief == "(f32[10], s32[])"
    equal(run(built, v, s), [v, s])
