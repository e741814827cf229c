"""Every operation in each form of its arguments: built, printed, verified, run, and run again from HLO text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy import special

import spmd
from collectives.grid import ProcessGrid
from spmd.builder import (
    ConvolutionDimensionNumbers,
    DotDimensionNumbers,
    GatherDimensionNumbers,
    Padding,
    PaddingConfig,
    PaddingConfigDimension,
    PrecisionConfig,
    ReplicaGroup,
    ScatterDimensionNumbers,
    Shape,
    XlaBuilder,
    XlaOp,
    make_convolution_dimension_numbers,
    make_padding_config,
    make_replica_groups,
    ops,
    window_padding_type_to_pad_values,
)
from spmd.builder.xla_op import OPERATIONS
from tests.backends.modules import reference
from tests.builder.support import Array, build, equal, evaluate, f32, run, run_replicas, s32, scalars

ADD = scalars("add", ["f32", "f32"], ops.Add)
NUMBERS = f32([-2.5, -1.5, -0.5, 0.0, 0.5, 0.75, 1.5, 2.5])
UNIT = f32([-0.9, -0.5, 0.0, 0.25, 0.9])
POSITIVE = f32([0.25, 0.5, 1.0, 2.0, 3.75])
INTEGERS = s32([-7, -1, 0, 1, 5, 2**31 - 1, -(2**31)])

UNARY: dict[str, tuple[Array, Callable[[Array], Array]]] = {
    "Abs": (NUMBERS, np.abs),
    "Acos": (UNIT, np.arccos),
    "Acosh": (POSITIVE + 1, np.arccosh),
    "Asin": (UNIT, np.arcsin),
    "Asinh": (NUMBERS, np.arcsinh),
    "Atan": (NUMBERS, np.arctan),
    "Atanh": (UNIT, np.arctanh),
    "Cbrt": (NUMBERS, np.cbrt),
    "Ceil": (NUMBERS, np.ceil),
    "Clz": (INTEGERS, lambda x: s32([32 - int(v).bit_length() if v >= 0 else 0 for v in x])),
    "Cos": (NUMBERS, np.cos),
    "Cosh": (NUMBERS, np.cosh),
    "Digamma": (POSITIVE, special.digamma),
    "Erf": (NUMBERS, special.erf),
    "ErfInv": (UNIT, special.erfinv),
    "Erfc": (NUMBERS, special.erfc),
    "Exp": (NUMBERS, np.exp),
    "Expm1": (NUMBERS, np.expm1),
    "Floor": (NUMBERS, np.floor),
    "Imag": (NUMBERS + 2j * NUMBERS, np.imag),
    "IsFinite": (f32([1, np.inf, -np.inf, np.nan]), np.isfinite),
    "Lgamma": (POSITIVE, special.gammaln),
    "Log": (POSITIVE, np.log),
    "Log1p": (UNIT, np.log1p),
    "Logistic": (NUMBERS, special.expit),
    "Neg": (NUMBERS, np.negative),
    "Not": (INTEGERS, np.invert),
    "PopulationCount": (INTEGERS, lambda x: s32([int(v).bit_count() for v in x.view(np.uint32)])),
    "Real": (NUMBERS + 2j * NUMBERS, np.real),
    "Reciprocal": (POSITIVE, np.reciprocal),
    "Round": (NUMBERS, lambda x: np.trunc(x + np.copysign(np.float32(0.5), x))),
    "RoundNearestEven": (NUMBERS, np.rint),
    "Rsqrt": (POSITIVE, lambda x: 1 / np.sqrt(x)),
    "Sign": (NUMBERS, np.sign),
    "Sin": (NUMBERS, np.sin),
    "Sinh": (NUMBERS, np.sinh),
    "Sqrt": (POSITIVE, np.sqrt),
    "Square": (NUMBERS, np.square),
    "Tan": (NUMBERS, np.tan),
    "Tanh": (NUMBERS, np.tanh),
}
#: Opcodes that HLO text has not.
NOT_IN_HLO = {"Atan", "Digamma", "ErfInv", "Erfc", "Lgamma"}


@pytest.mark.sampled(14)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    operand, expected = UNARY[name]
    got = evaluate(lambda _, x: OPERATIONS[name](x), operand, hlo=name not in NOT_IN_HLO)
    want = expected(operand)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize(
    "name", ["Abs", "Cos", "Exp", "Expm1", "Log", "Log1p", "Logistic", "Neg", "Sign", "Sin", "Sqrt", "Tanh"]
)
def test_unary_of_complex_numbers(name: str) -> None:
    operand = np.array([0.5 + 1j, -1.25 - 0.5j, 2j], np.complex64)
    expected = {"Logistic": special.expit, "Sign": lambda x: x / np.abs(x), **{n: f for n, (_, f) in UNARY.items()}}
    function = (lambda x: 1 / (1 + np.exp(-x))) if name == "Logistic" else expected[name]
    if name == "Sign":
        function = lambda x: x / np.abs(x)  # noqa: E731
    np.testing.assert_allclose(evaluate(lambda _, x: OPERATIONS[name](x), operand), function(operand), rtol=1e-5)


FLOATS = (f32([[-2.5, 1.5, 3.0], [4.0, -0.5, 2.0]]), f32([[1.5, 2.0, -1.0], [0.5, 0.25, 3.0]]))
WHOLE = (s32([[-7, 12, 3], [4, -1, 2]]), s32([[2, 5, 1], [3, 1, 7]]))
BINARY: dict[str, tuple[tuple[Array, Array], Callable[[Array, Array], Array]]] = {
    "Add": (FLOATS, np.add),
    "Sub": (FLOATS, np.subtract),
    "Mul": (FLOATS, np.multiply),
    "Div": (FLOATS, np.divide),
    "Rem": (FLOATS, np.fmod),
    "Pow": ((np.abs(FLOATS[0]), FLOATS[1]), np.power),
    "Max": (FLOATS, np.maximum),
    "Min": (FLOATS, np.minimum),
    "And": (WHOLE, np.bitwise_and),
    "Or": (WHOLE, np.bitwise_or),
    "Xor": (WHOLE, np.bitwise_xor),
    "ShiftLeft": (WHOLE, np.left_shift),
    "ShiftRightArithmetic": (WHOLE, np.right_shift),
    "ShiftRightLogical": (WHOLE, lambda x, y: (x.view(np.uint32) >> y.view(np.uint32)).view(np.int32)),
    "Atan2": (FLOATS, np.arctan2),
    "Complex": (FLOATS, lambda x, y: (x + 1j * y).astype(np.complex64)),
    "Eq": (WHOLE, np.equal),
    "Ne": (WHOLE, np.not_equal),
    "Ge": (WHOLE, np.greater_equal),
    "Gt": (WHOLE, np.greater),
    "Le": (WHOLE, np.less_equal),
    "Lt": (WHOLE, np.less),
    "EqTotalOrder": (FLOATS, np.equal),
    "NeTotalOrder": (FLOATS, np.not_equal),
    "GeTotalOrder": (FLOATS, np.greater_equal),
    "GtTotalOrder": (FLOATS, np.greater),
    "LeTotalOrder": (FLOATS, np.less_equal),
    "LtTotalOrder": (FLOATS, np.less),
}


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str) -> None:
    (lhs, rhs), expected = BINARY[name]
    want = expected(lhs, rhs)
    operation = OPERATIONS[name]
    got = evaluate(lambda _, x, y: operation(x, y), lhs, rhs)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=2e-6)
    # a vector along dimension 1, a scalar, a constant on either side
    np.testing.assert_allclose(
        evaluate(lambda _, x, y: operation(x, y, [1]), lhs, rhs[0]), expected(lhs, rhs[0]), rtol=2e-6
    )
    scalar = evaluate(lambda b, x: operation(x, b.Constant(rhs[0, 0])), lhs)
    np.testing.assert_allclose(scalar, expected(lhs, np.broadcast_to(rhs[0, 0], lhs.shape)), rtol=2e-6)
    number = evaluate(lambda _, x: operation(rhs[0, 0].item(), x), lhs)
    np.testing.assert_allclose(number, expected(np.full_like(lhs, rhs[0, 0]), lhs), rtol=2e-6)


def test_python_operators() -> None:
    def arithmetic(_: XlaBuilder, x: XlaOp, y: XlaOp) -> XlaOp:
        parts = [x + y, x - y, x * y, x / y, x % y, abs(x) ** y, -x, 1.0 - x, 2.0 * y, 1.0 / y, x + 1]
        return ops.Tuple([*parts, x < y, x <= y, x > y, x >= y, x == y, x != 1.5])

    x, y = FLOATS
    got = evaluate(arithmetic, x, y)
    want = [x + y, x - y, x * y, x / y, np.fmod(x, y), np.abs(x) ** y, -x, 1 - x, 2 * y, 1 / y, x + 1]
    for one, two in zip(got, [*want, x < y, x <= y, x > y, x >= y, x == y, x != 1.5], strict=True):
        np.testing.assert_allclose(one, two, rtol=2e-6)


def test_python_operators_on_integers() -> None:
    def bits(_: XlaBuilder, x: XlaOp, y: XlaOp, u: XlaOp) -> XlaOp:
        return ops.Tuple([x & y, x | y, x ^ y, ~x, x << y, x >> y, u >> 1, x & 3])

    x, y, u = *WHOLE, np.array([2**32 - 1, 8], np.uint32)
    equal(evaluate(bits, x, y, u), [x & y, x | y, x ^ y, ~x, x << y, x >> y, u >> np.uint32(1), x & 3])


def test_python_indexing() -> None:
    def index(_: XlaBuilder, x: XlaOp) -> XlaOp:
        return ops.Tuple(
            [
                x[1],
                x[-1, 0],
                x[:, 1:],
                x[..., 0],
                ops.Index(x, (None, 0)),
                x[::2],
                x[1:, -2],
                ops.Tuple([x, x[0]])[1],
                x @ x[0],
            ]
        )

    x = f32(np.arange(12).reshape(4, 3))
    want = [x[1], x[-1, 0], x[:, 1:], x[..., 0], x[None, 0], x[::2], x[1:, -2], x[0], x @ x[0]]
    equal(evaluate(index, x), want)


def test_truth_and_iteration_of_a_value_are_refused() -> None:
    builder = XlaBuilder("test")
    x = builder.ConstantR1([1.0, 2.0])
    with pytest.raises(TypeError, match="not known while the program is built"):
        bool(x == x)
    with pytest.raises(TypeError, match="cannot be iterated"):
        list(x)


CUBE = f32(np.arange(24).reshape(2, 3, 4))


def test_data_movement() -> None:
    def body(b: XlaBuilder, x: XlaOp) -> XlaOp:
        zero = b.ConstantR0(0.0)
        return ops.Tuple([
            ops.BroadcastInDim(x[:, :1], [2, 5, 3, 4], [0, 2, 3]),
            ops.Transpose(x),
            ops.Transpose(x, permutation=[1, 0, 2]),
            ops.Slice(x, [0, 1, 0], [2, 3, 4], [1, 1, 2]),
            ops.SliceInDim(x, 1, 4, stride=2, dimno=2),
            ops.Pad(x, zero, [(1, 0, 0), (0, -1, 1), (2, 2, 0)]),
            ops.PadInDim(x, zero, 1, 2, 1),
            ops.Pad(x, zero, PaddingConfig([PaddingConfigDimension(), PaddingConfigDimension(0, 1), (0, 0)])),
            ops.ConcatInDim([x, x], 2),
            ops.Reshape(x, new_sizes=[6, 4]),
            ops.Reshape(x, dimensions=[6, 4]),
            ops.GetDimensionSize(x, 1),
        ])  # fmt: skip

    interior = np.zeros((2, 5, 4), np.float32)
    interior[:, ::2] = CUBE
    want = [
        np.broadcast_to(CUBE[:, :1][:, None], (2, 5, 3, 4)),
        CUBE.T,
        CUBE.transpose(1, 0, 2),
        CUBE[:, 1:, ::2],
        CUBE[..., 1:4:2],
        np.pad(interior[:, :-1], [(1, 0), (0, 0), (2, 2)]),
        np.pad(CUBE, [(0, 0), (2, 1), (0, 0)]),
        np.pad(CUBE, [(0, 0), (0, 1), (0, 0)]),
        np.concatenate([CUBE, CUBE], 2),
        CUBE.reshape(6, 4),
        CUBE.reshape(6, 4),
        np.int32(3),
    ]
    equal(evaluate(body, CUBE), want)


def test_sort_and_clamp_forms() -> None:
    x = f32([[3, -1, 2], [0, 5, np.nan]])
    descending = scalars("gt", ["f32", "f32"], ops.Gt)
    equal(evaluate(lambda _, x: ops.Sort(x), x), np.sort(x))
    equal(evaluate(lambda _, x: ops.Sort(x, descending, 0), x[:1]), x[:1])
    equal(evaluate(lambda _, x: ops.Clamp(0.0, x, x * 0.0 + 2.0), x), np.clip(x, 0, 2))
    equal(evaluate(lambda _, low, x: ops.Clamp(low, x, 2.5), np.ones_like(x), x), np.clip(x, 1, 2.5))


def test_constants_and_iota_forms() -> None:
    def body(b: XlaBuilder) -> XlaOp:
        return b.Tuple(
            [
                b.Iota("s32", 4),
                ops.Iota(b, Shape("f32[2,3]"), 1),
                ops.Constant(b, 3),
                b.Constant(np.float64(2)),
                b.Constant((1.0, [True])),
            ]
        )

    equal(evaluate(body), [s32(range(4)), f32([[0, 1, 2]] * 2), s32(3), np.float64(2), f32(1), np.array([True])])


def test_constants_of_every_element_type() -> None:
    types = [
        np.int8,
        np.uint16,
        np.int64,
        np.float16,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.int4,
        np.complex128,
    ]
    values = [np.array([1, 2, 3]).astype(type) for type in types]
    equal(evaluate(lambda b: b.Tuple([b.Constant(value) for value in values])), values)


def test_gather_and_scatter_with_dimension_numbers() -> None:
    rows = s32([[2], [0]])
    table = f32(np.arange(12).reshape(4, 3))
    gather = GatherDimensionNumbers(offset_dims=[1], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=1)
    equal(
        evaluate(lambda _, x, i: ops.Gather(x, i, gather, [1, 3], indices_are_sorted=False), table, rows), table[[2, 0]]
    )
    equal(
        evaluate(lambda _, x, i: ops.Gather(x, i, dimension_numbers=gather, slice_sizes=[1, 3]), table, rows),
        table[[2, 0]],
    )
    scatter = ScatterDimensionNumbers([1], [0], [0], 1)
    add = scalars("add", ["f32", "f32"], ops.Add)
    updates = f32([[10, 20, 30], [40, 50, 60]])
    want = table.copy()
    want[[2, 0]] += updates

    def body(_: XlaBuilder, x: XlaOp, i: XlaOp, u: XlaOp) -> XlaOp:
        return ops.Scatter(x, i, u, add, scatter, unique_indices=True)

    equal(evaluate(body, table, rows, updates), want)


def test_arguments_in_the_order_of_xla_client() -> None:
    rows, table, updates = s32([[0], [2]]), f32(np.arange(12).reshape(4, 3)), f32([[10, 20, 30], [40, 50, 60]])
    gather = GatherDimensionNumbers([1], [0], [0], 1)
    scatter = ScatterDimensionNumbers([1], [0], [0], 1)
    built = build(lambda _, x, i: ops.Gather(x, i, gather, [1, 3], True), table, rows)
    assert [op["indices_are_sorted"] for op in built.block.ops] == [True]
    equal(run(built, table, rows), table[[0, 2]])
    built = build(lambda _, x, i, u: ops.Scatter(x, i, u, ADD, scatter, True, True), table, rows, updates)
    (op,) = built.block.ops
    assert (op["indices_are_sorted"], op["unique_indices"]) == (True, True)
    want = table.copy()
    want[[0, 2]] += updates
    equal(run(built, table, rows, updates), want)
    assert make_padding_config([(1, 2, 3)]).dimensions == [PaddingConfigDimension(1, 2, 3)]
    assert make_replica_groups([[0, 1]]) == [ReplicaGroup([0, 1])]
    assert make_replica_groups(None) == []
    assert window_padding_type_to_pad_values(Padding.SAME, [5, 6], [3, 2], [2, 1]) == [(1, 1), (0, 1)]
    labels = ("NHWC", "HWIO", "CNHW")
    numbers = ConvolutionDimensionNumbers(0, 3, [1, 2], 3, 2, [0, 1], 1, 0, [2, 3])
    assert make_convolution_dimension_numbers(labels, 2) == numbers
    image, kernel = f32(np.arange(50).reshape(1, 5, 5, 2)), f32(np.arange(8).reshape(2, 2, 2, 1))
    one, two = (build(lambda b, n=n: ops.ConvGeneralDilated(b.Constant(image), b.Constant(kernel), dimension_numbers=n))
                for n in (labels, numbers))  # fmt: skip
    equal(run(one), run(two))


def test_conditional_with_keywords() -> None:
    one = build(lambda _, x: x + 1.0, Shape("f32[]"), name="one")
    two = build(lambda _, x: x + 2.0, Shape("f32[]"), name="two")

    def body(b: XlaBuilder, x: XlaOp) -> XlaOp:
        yes = {"true_operand": x, "true_computation": one, "false_operand": x, "false_computation": two}
        first = ops.Conditional(b.ConstantR0(False), **yes)
        index = {"branch_index": b.ConstantR0(0), "branch_computations": [one, two], "branch_operands": [x, x]}
        return ops.Tuple([first, b.Conditional(**index)])

    equal(evaluate(body, f32(1)), [f32(3), f32(2)])


def test_variadic_scatter_and_reduce_window() -> None:
    def both(b: XlaBuilder, x: XlaOp, y: XlaOp, u: XlaOp, v: XlaOp) -> XlaOp:
        return ops.Tuple([ops.Add(x, u), ops.Mul(y, v)])

    kinds = [Shape.scalar_shape(type) for type in ("f32", "s32", "f32", "s32")]
    computation = build(both, *kinds, name="both")

    def body(b: XlaBuilder, x: XlaOp, y: XlaOp) -> XlaOp:
        changed = ops.Scatter([x, y], b.ConstantR1([1]), [x[2], y[2]], computation, 0, [], [0], [0])
        start = [b.ConstantR0(0.0), b.ConstantR0(1)]
        windows = ops.ReduceWindow([x, y], start, computation, [2], [1], "VALID")
        return ops.Tuple([changed[0], changed[1], windows[0], windows[1]])

    x, y = f32([1, 2, 3]), s32([4, 5, 6])
    equal(evaluate(body, x, y), [f32([1, 5, 3]), s32([4, 30, 6]), f32([3, 5]), s32([20, 30])])


@pytest.mark.parametrize(
    ("strides", "padding", "base", "spread"),
    [([1, 1], "SAME", None, None), ([2, 3], Padding.SAME, None, None), ([1, 2], [(1, 0), (2, -1)], None, None),
     ([1, 1], [(0, 0), (1, 1)], [2, 1], [1, 2]), (None, "VALID", None, None)],
)  # fmt: skip
def test_reduce_window_forms(strides: Any, padding: Any, base: Any, spread: Any) -> None:
    x = f32(np.arange(20).reshape(4, 5))

    def body(b: XlaBuilder) -> XlaOp:
        return ops.ReduceWindow(b.Constant(x), b.ConstantR0(0.0), ADD, [2, 3], strides, padding, base, spread)

    built = build(body)
    equal(run(built), reference(built.to_stablehlo().to_string(generic=True))[0])


def test_general_padding_in_the_order_of_either_document() -> None:
    x = f32(np.arange(6))
    later = evaluate(
        lambda b, x: ops.ReduceWindowWithGeneralPadding(x, b.ConstantR0(0.0), ADD, [2], [2], [1], [1], [(1, 1)]), x
    )
    first = evaluate(lambda b, x: ops.ReduceWindowWithGeneralPadding(x, b.ConstantR0(0.0), ADD, [2], [2], [(1, 1)]), x)
    equal(later, [0, 3, 7, 5])
    equal(first, [0, 3, 7, 5])


def test_general_padding_names() -> None:
    x = f32(np.arange(6))

    def body(b: XlaBuilder, x: XlaOp) -> XlaOp:
        zero = b.ConstantR0(0.0)
        windows = ops.ReduceWindowWithGeneralPadding(x, zero, ADD, [2], [2], [1], [1], [(1, 1)])
        ge = scalars("ge", ["f32", "f32"], ops.Ge)
        spread = ops.SelectAndScatterWithGeneralPadding(x, ge, [2], [2], [(1, 1)], windows, zero, ADD)
        return ops.Tuple([windows, spread])

    equal(evaluate(body, x), [f32([0, 3, 7, 5]), f32([0, 0, 3, 0, 7, 5])])


LHS, KERNEL = (
    f32(np.arange(2 * 4 * 5 * 6).reshape(2, 4, 5, 6) % 7),
    f32(np.arange(4 * 2 * 3 * 2).reshape(4, 2, 3, 2) % 5),
)


@pytest.mark.parametrize(
    "convolve",
    [
        lambda x, w: ops.Conv(x, w, [1, 2], "SAME", feature_group_count=2),
        lambda x, w: ops.ConvWithGeneralPadding(x, w, [1, 1], [(1, 0), (-1, 2)], feature_group_count=2),
        lambda x, w: ops.ConvWithGeneralPadding(x, w, [1, 1], [(0, 0), (0, 0)], [2, 1], [1, 2], 2),
        lambda x, w: ops.ConvWithGeneralDimensions(
            x, ops.Transpose(w, [2, 3, 1, 0]), [1, 1], "VALID",
            ConvolutionDimensionNumbers(0, 1, [2, 3], 3, 2, [0, 1], 0, 3, [1, 2]), 2),
        lambda x, w: ops.ConvGeneral(x, w, [2, 1], [(1, 1), (0, 1)], ConvolutionDimensionNumbers.default(2), 2),
        lambda x, w: ops.ConvGeneralDilated(x, w, feature_group_count=2, window_reversal=[True, False]),
        lambda x, w: ops.Conv(ops.Slice(x, [0, 0, 0, 0], [2, 2, 5, 6]), w, [1, 1], "SAME", batch_group_count=2),
        lambda x, w: ops.Conv(x, w, [1, 1], "SAME", 2, 1, PrecisionConfig(["HIGHEST", "DEFAULT"])),
    ],
)  # fmt: skip
def test_convolution_forms(convolve: Callable[[XlaOp, XlaOp], XlaOp]) -> None:
    built = build(lambda b: convolve(b.Constant(LHS), b.Constant(KERNEL)))
    equal(run(built), reference(built.to_stablehlo().to_string(generic=True))[0])


def test_dot_forms() -> None:
    x, y = f32(np.arange(6).reshape(2, 3)), f32(np.arange(12).reshape(3, 4))

    def body(_: XlaBuilder, x: XlaOp, y: XlaOp) -> XlaOp:
        numbers = DotDimensionNumbers([1], [0])
        return ops.Tuple([
            ops.Dot(x, y, "HIGHEST"),
            ops.Dot(x, y, preferred_element_type="f64"),
            ops.DotGeneral(x, y, numbers, PrecisionConfig([PrecisionConfig.Precision.HIGH, "HIGH"])),
            ops.DotGeneral(x, y, (([1], [0]), ([], []))),
            ops.Dot(x[0], y),
        ])  # fmt: skip

    product = x @ y
    equal(evaluate(body, x, y), [product, product.astype(np.float64), product, product, product[0]])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", ["FFT", "IFFT", "RFFT", "IRFFT"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_fft_forms(kind: str, axes: int) -> None:
    lengths = (4, 5, 6)[3 - axes :]
    shape = (2, 4, 5, 6)
    x = np.random.default_rng(0).normal(size=shape)
    if kind == "IRFFT":
        x = x[..., :4] + 0j
    elif kind != "RFFT":
        x = x + 1j
    over = tuple(range(4 - axes, 4))
    expected = {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn, "IRFFT": np.fft.irfftn}[kind]
    got = evaluate(lambda _, x: ops.Fft(x, kind, lengths), x)
    np.testing.assert_allclose(got, expected(x, lengths, over), atol=1e-10)


def test_nested_tuples_pass_through_loops_branches_and_barriers() -> None:
    state = Shape("((f32[2], s32[]), pred[])")
    condition = build(lambda _, t: t[0][1] < 3, state, name="condition")
    body = build(lambda _, t: ops.Tuple([ops.Tuple([t[0][0] * 2, t[0][1] + 1]), ~t[1]]), state, name="body")
    swap = build(lambda _, t: ops.Tuple([ops.Tuple([t[0][0] + 1, t[0][1]]), t[1]]), state, name="swap")

    def program(b: XlaBuilder, x: XlaOp) -> XlaOp:
        start = ops.Tuple([ops.Tuple([x, b.ConstantR0(0)]), b.ConstantR0(True)])
        end = ops.OptimizationBarrier(ops.While(condition, body, start))
        return ops.Conditional(end[1], end, body, end, swap)

    equal(evaluate(program, f32([1, 2])), [f32([9, 17]), s32(3), np.array(False)])


def test_a_tuple_parameter() -> None:
    built = build(lambda _, t: t[0] + t[1], Shape("(f32[2], f32[2])"))
    pair = (f32([1, 2]), f32([3, 4]))
    equal(run(built, pair), [4, 6])
    equal(run(build(lambda b, t: ops.Call(built, t), Shape("(f32[2], f32[2])")), pair), [4, 6])


def test_calls_of_calls_are_functions_once() -> None:
    inner = build(lambda _, x: x + 1.0, Shape("f32[]"), name="inner")
    outer = build(lambda _, x: ops.Call(inner, ops.Call(inner, x)), Shape("f32[]"), name="inner")
    built = build(lambda _, x: ops.Tuple([ops.Call(outer, x), ops.Call(inner, x)]), Shape("f32[]"))
    assert [function.symbol for function in built.to_stablehlo().functions] == ["main", "inner", "inner_1"]
    equal(run(built, f32(1)), [f32(3), f32(2)])


def test_composite_attributes_from_python_values() -> None:
    inner = build(lambda _, x: x * 2.0, Shape("f32[]"), name="inner")
    attributes_in = {"flag": True, "n": 3, "scale": 0.5, "name": "x", "table": np.arange(3)}
    built = build(lambda _, x: ops.CompositeCall(inner, [x], "my.op", attributes_in), Shape("f32[]"))
    equal(run(built, f32(4)), 8)


def test_custom_calls_of_several_results() -> None:
    spmd.register_custom_call("tests.swap", lambda x, y, attributes: (y, x))

    def body(b: XlaBuilder, x: XlaOp, y: XlaOp) -> XlaOp:
        one = b.CustomCall("tests.swap", [x, y], Shape("(s32[], f32[2])"), "config", True)
        two = b.CustomCallOp("tests.swap", [x, y], Shape("(s32[], f32[2])"))
        three = b.CustomCall("tests.swap", [x, y], Shape("(s32[], f32[2])"), {"n": 1}, api_version=4)
        return ops.Tuple([one[0], two[1], three[0]])

    equal(evaluate(body, f32([1, 2]), s32(7)), [s32(7), f32([1, 2]), s32(7)])


def test_strings_of_custom_calls_pass_through_hlo_text() -> None:
    told = []

    def tell(x: Array, attributes: dict[str, Any]) -> Array:
        told.append(attributes["backend_config"])
        return x

    spmd.register_custom_call("tests.tell", tell)
    text = 'a "quoted" \\ line\nand \u00fcmlaut {1,2}, x=3'
    evaluate(lambda _, x: ops.CustomCall("tests.tell", [x], Shape("f32[]"), text), f32(1))
    assert told == [text, text]


def test_collective_broadcast() -> None:
    built = build(lambda _, x: ops.CollectiveBroadcast(x, [[2, 0]]), f32(0))
    equal(run_replicas(built, [f32(1)], [f32(2)], [f32(3)]), [3, 0, 3])


def test_operations_with_tokens() -> None:
    def body(b: XlaBuilder, x: XlaOp) -> XlaOp:
        item = ops.InfeedWithToken(b.CreateToken(), Shape("f32[2]"))
        token = ops.OutfeedWithToken(item[0] + x, item[1], Shape("f32[2]"))
        pair = [(0, 0)]
        sent = ops.SendWithToken(x * 2.0, token, 7, pair)
        got = ops.RecvWithToken(sent, Shape("f32[2]"), 7, pair)
        return ops.Tuple([got[0], ops.AfterAll([got[1]])])

    built = build(body, f32([0, 0]))
    for module in (built.to_stablehlo(), spmd.parse(built.as_hlo_text())):
        spmd.verify(module)
        written: list[Any] = []
        (got,) = spmd.run_parallel(
            module, ProcessGrid(), [[f32([1, 2])]], infeed=[[(f32([10, 20]),)]], outfeed=[written]
        )
        equal(got[0], [2, 4])
        equal(written[0], f32([11, 22]))


def test_every_operation_is_run_by_a_test() -> None:
    tables = {*UNARY, *BINARY}
    text = "".join(file.read_text() for file in Path(__file__).parent.glob("test_*.py"))
    assert [name for name in OPERATIONS if name not in tables and f".{name}(" not in text] == []
