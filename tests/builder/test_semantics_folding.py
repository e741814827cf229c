"""XlaBuilder operation semantics: the worked examples of operations that run computations."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from spmd.builder import F32, LiteralUtil, Padding, Shape, ShapeUtil, XlaBuilder, XlaComputation, XlaOp, ops
from tests.builder.support import Array, build, equal, evaluate, f32, run, s32, scalars

ADD = scalars("add", ["f32", "f32"], ops.Add)
MAX = scalars("max", ["f32", "f32"], ops.Max)
MIN = scalars("min", ["f32", "f32"], ops.Min)
GE = scalars("ge", ["f32", "f32"], ops.Ge)
#: The values 1 to 6, four times.
CUBE = np.broadcast_to(f32([[1, 2, 3], [4, 5, 6]]), (4, 2, 3)).copy()


def add_reduce(array: Array, *dimensions: int) -> Any:
    return evaluate(lambda b, x: ops.Reduce(x, b.ConstantR0(0.0), ADD, dimensions), array)


def test_map() -> None:
    """Map(op1, op2, op3, computation, par1) maps elem_out <- computation(elem1, elem2, elem3, par1)."""
    computation = scalars("f", ["f32"] * 4, lambda a, b, c, par: (a + b * c) - par)
    op1, op2, op3 = (f32(np.arange(6).reshape(2, 3)) * n for n in (1, 2, 3))

    def body(b: XlaBuilder, *operands: XlaOp) -> XlaOp:
        return ops.Map(operands[:3], computation, static_operands=[operands[3]])

    inputs = (op1, op2, op3, f32(0.5))
    equal(run(build(body, *inputs), *inputs, hlo=False), op1 + op2 * op3 - f32(0.5))
    plain = scalars("g", ["f32", "f32"], ops.Mul)
    equal(evaluate(lambda _, x, y: ops.Map([x, y], plain, [0, 1]), op1, op2), op1 * op2)


def test_reduce_of_a_vector() -> None:
    equal(add_reduce(f32([10, 11, 12, 13]), 0), 46)


def test_reduce_of_a_matrix() -> None:
    matrix = f32([[1, 2, 3], [4, 5, 6]])
    equal(add_reduce(matrix, 0), [5, 7, 9])
    equal(add_reduce(matrix, 1), [6, 15])


def test_reduce_of_a_cube() -> None:
    equal(add_reduce(CUBE, 0), [[4, 8, 12], [16, 20, 24]])
    equal(add_reduce(CUBE, 2), [[6, 15], [6, 15], [6, 15], [6, 15]])
    equal(add_reduce(CUBE, 0, 1), [20, 28, 36])
    equal(add_reduce(CUBE, 1, 0), [20, 28, 36])  # dimensions come in any order
    equal(add_reduce(CUBE, 0, 1, 2), 84)
    equal(evaluate(lambda b, x: ops.ReduceAll(x, b.ConstantR0(0.0), ADD), CUBE), 84)


def argmax() -> XlaComputation:
    """f(max, argmax, value, index): (value, index) where value >= max, else (max, argmax)."""

    def body(b: XlaBuilder, best: XlaOp, place: XlaOp, value: XlaOp, index: XlaOp) -> XlaOp:
        later = ops.Ge(value, best)
        return ops.Tuple([ops.Select(later, value, best), ops.Select(later, index, place)])

    return build(body, *(Shape.scalar_shape(type) for type in ("f32", "s32", "f32", "s32")), name="argmax")


def test_variadic_reduce() -> None:
    def body(b: XlaBuilder, v: XlaOp) -> XlaOp:
        k = b.Iota(Shape("s32[6]"), 0)
        return ops.Reduce([v, k], [b.Constant(LiteralUtil.MinValue(F32)), b.ConstantR0(0)], argmax(), [0])

    equal(evaluate(body, f32([3, 1, 4, 1, 5, 2])), [f32(5), s32(4)])
    equal(evaluate(body, f32([9, 1, 4, 1, 5, 9])), [f32(9), s32(5)])


def test_reduce_window_of_two_by_three() -> None:
    """The program of the document, nearly word for word."""
    builder = XlaBuilder("max")
    y = builder.Parameter(0, ShapeUtil.MakeShape(F32, []), "y")
    x = builder.Parameter(1, ShapeUtil.MakeShape(F32, []), "x")
    builder.Max(y, x)
    maximum = builder.Build()

    builder = XlaBuilder("reduce_window_2x3")
    shape = ShapeUtil.MakeShape(F32, [4, 6])
    parameter = builder.Parameter(0, shape, "input")
    builder.ReduceWindow(
        parameter,
        builder.ConstantLiteral(LiteralUtil.MinValue(F32)),
        maximum,
        window_dimensions=[2, 3],
        window_strides=[2, 3],
        padding=Padding.kValid,
    )
    array = np.random.default_rng(0).permutation(24).astype(np.float32).reshape(4, 6)
    equal(run(builder.Build(), array), array.reshape(2, 2, 2, 3).max(axis=(1, 3)))


@pytest.mark.parametrize(("padding", "expected"), [("VALID", [100, 1]), ("SAME", [1000, 10, 1])])
def test_reduce_window_padding(padding: str, expected: list[float]) -> None:
    def body(b: XlaBuilder, x: XlaOp) -> XlaOp:
        start = b.Constant(np.finfo(np.float32).max)
        return ops.ReduceWindow(x, start, MIN, [3], [2], padding)

    equal(evaluate(body, f32([10000, 1000, 100, 10, 1])), expected)


OVERLAPPING = f32([[7, 2, 5, 3, 8], [3, 8, 9, 3, 4], [1, 5, 7, 5, 6], [0, 6, 2, 10, 2]])


def test_select_and_scatter_with_overlapping_windows() -> None:
    """The 9 is picked by both of the top windows, and gets 2 + 6."""

    def body(b: XlaBuilder, operand: XlaOp, source: XlaOp) -> XlaOp:
        return ops.SelectAndScatter(operand, GE, [2, 3], [2, 2], Padding.VALID, source, b.ConstantR0(0.0), ADD)

    got = evaluate(body, OVERLAPPING, f32([[2, 6], [3, 1]]))
    assert got[1, 2] == 8
    equal(got, [[0, 0, 0, 0, 0], [0, 0, 8, 0, 0], [0, 0, 3, 0, 0], [0, 0, 0, 1, 0]])


def test_select_and_scatter_with_windows_apart() -> None:
    def body(b: XlaBuilder, operand: XlaOp, source: XlaOp) -> XlaOp:
        return ops.SelectAndScatter(operand, GE, [2, 3], [2, 3], "VALID", source, b.ConstantR0(0.0), ADD)

    operand = f32([[7, 2, 5, 3, 10, 2], [3, 8, 9, 3, 4, 2], [1, 5, 7, 5, 6, 1], [0, 6, 2, 7, 2, 8]])
    got = evaluate(body, operand, f32([[2, 6], [3, 1]]))
    equal(got, [[0, 0, 0, 0, 6, 0], [0, 0, 2, 0, 0, 0], [0, 0, 3, 0, 0, 0], [0, 0, 0, 0, 0, 1]])


def test_scatter_is_gathers_inverse() -> None:
    """The elements that a gather takes are the ones that the scatter of the same numbers updates."""
    operand, updates = np.zeros((6, 3), np.float32), f32([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    rows = s32([4, 1, 4])

    def body(_: XlaBuilder, x: XlaOp, i: XlaOp, u: XlaOp) -> XlaOp:
        return ops.Scatter(x, i, u, ADD, 1, [1], [0], [0])

    expected = operand.copy()
    np.add.at(expected, rows, updates)
    equal(evaluate(body, operand, rows, updates), expected)


def test_scatter_gives_the_current_value_first() -> None:
    first = scalars("first", ["f32", "f32"], lambda current, _: current + 0.0)
    subtract = scalars("subtract", ["f32", "f32"], ops.Sub)

    def body(computation: XlaComputation) -> Any:
        return lambda _, x, i, u: ops.Scatter(x, i, u, computation, 1, [], [0], [0])

    inputs = f32([10, 20, 30]), s32([2, 0]), f32([1, 2])
    equal(evaluate(body(first), *inputs), [10, 20, 30])
    equal(evaluate(body(subtract), *inputs), [8, 20, 29])


def test_while() -> None:
    """1000 times a constant vector of 10 added to zeros."""
    state = Shape("(s32[], f32[10])")
    condition = build(lambda _, t: ops.Lt(t[0], 1000), state, name="condition")

    def step(b: XlaBuilder, t: XlaOp) -> XlaOp:
        return ops.Tuple([t[0] + 1, ops.Add(t[1], b.ConstantR1(10, 0.25))])

    body = build(step, state, name="body")

    def loop(b: XlaBuilder) -> XlaOp:
        return ops.While(condition, body, ops.Tuple([b.ConstantR0(0), b.ConstantR1(10, 0.0)]))

    equal(evaluate(loop), [s32(1000), np.full(10, 250, np.float32)])


@pytest.mark.parametrize("pred", [True, False])
def test_conditional_on_a_predicate(pred: bool) -> None:
    double = build(lambda _, x: x * 2, Shape("f32[3]"), name="double")
    total = build(lambda b, x: ops.Broadcast(x, [3]), Shape("f32[]"), name="total")
    got = evaluate(lambda _, p, x, y: ops.Conditional(p, x, double, y, total), np.array(pred), f32([1, 2, 3]), f32(7))
    equal(got, [2, 4, 6] if pred else [7, 7, 7])


@pytest.mark.parametrize(("index", "branch"), [(0, 0), (1, 1), (2, 2), (-1, 2), (3, 2), (2**31 - 1, 2), (-(2**31), 2)])
def test_conditional_on_an_index_takes_the_last_branch_outside(index: int, branch: int) -> None:
    branches = [build(lambda _, x, n=n: x + float(n), Shape("f32[]"), name=f"branch_{n}") for n in (10, 20, 30)]
    got = evaluate(lambda _, i, x: ops.Conditional(i, branches, [x, x, x]), s32(index), f32(1))
    equal(got, [11, 21, 31][branch])


def test_call() -> None:
    axpy = build(lambda _, a, x, y: a * x + y, Shape("f32[]"), Shape("f32[3]"), Shape("f32[3]"), name="axpy")
    inputs = f32(2), f32([1, 2, 3]), f32([10, 20, 30])
    equal(evaluate(lambda _, *args: ops.Call(axpy, *args), *inputs), [12, 24, 36])
    nothing = build(lambda b: b.ConstantR0(3.0), name="nothing")
    equal(evaluate(lambda b: b.Call(nothing)), 3)


def test_composite_call() -> None:
    """The call of the document: its attributes are those of the op, and of the HLO text."""
    computation = build(lambda _, x: x + 1.0, Shape("f32[]"), name="computation")

    def body(_: XlaBuilder, cst: XlaOp) -> XlaOp:
        return ops.CompositeCall(computation, [cst], "foo.bar", "{n = 1 : i32, tensor = dense<1> : tensor<i32>}", 1)

    built = build(body, Shape("f32[]"))
    equal(run(built, f32(2)), 3)
    (composite,) = (op for op in built.to_stablehlo().walk() if op.name == "stablehlo.composite")
    assert (composite["name"], composite["version"]) == ("foo.bar", 1)
    assert composite["composite_attributes"].entries["n"].value == 1
    text = built.as_hlo_text()
    for part in ("is_composite=true", 'composite.name="foo.bar"', 'composite.version="1"',
                 "composite.attributes={n = 1 : i32, tensor = dense<1> : tensor<i32>}"):  # fmt: skip
        assert part in text


def convolution(lhs: Array, rhs: Array, strides: list[int], padding: list[tuple[int, int]]) -> Array:
    """The pseudo-code of the document, one output position at a time."""
    (_, _, height, width), (_, _, ky, kx) = lhs.shape, rhs.shape
    padded = np.pad(lhs, [(0, 0), (0, 0), *padding])
    oy = (height + sum(padding[0]) - ky) // strides[0] + 1
    ox = (width + sum(padding[1]) - kx) // strides[1] + 1
    output = np.zeros((lhs.shape[0], rhs.shape[0], oy, ox), lhs.dtype)
    for y, x in itertools.product(range(oy), range(ox)):
        window = padded[:, :, y * strides[0] : y * strides[0] + ky, x * strides[1] : x * strides[1] + kx]
        output[:, :, y, x] = np.einsum("bzyx,ozyx->bo", window, rhs)
    return output


def test_convolution_with_padding_and_strides() -> None:
    rng = np.random.default_rng(0)
    lhs, rhs = (rng.integers(-4, 5, size).astype(np.float32) for size in ((2, 3, 7, 8), (4, 3, 3, 2)))
    padding = [(1, 0), (2, 3)]
    got = evaluate(lambda _, x, w: ops.ConvWithGeneralPadding(x, w, [2, 3], padding), lhs, rhs)
    equal(got, convolution(lhs, rhs, [2, 3], padding))


def test_convolution_same_and_valid() -> None:
    rng = np.random.default_rng(1)
    lhs, rhs = (rng.integers(-4, 5, size).astype(np.float32) for size in ((1, 2, 5, 6), (3, 2, 3, 3)))
    same = evaluate(lambda _, x, w: ops.Conv(x, w, [1, 1], Padding.kSame), lhs, rhs)
    assert same.shape[2:] == lhs.shape[2:]
    equal(same, convolution(lhs, rhs, [1, 1], [(1, 1), (1, 1)]))
    equal(
        evaluate(lambda _, x, w: ops.Conv(x, w, [1, 1], "VALID"), lhs, rhs), convolution(lhs, rhs, [1, 1], [(0, 0)] * 2)
    )


def test_batch_norm_training() -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)
    scale, offset = f32([1, 2, 3]), f32([-1, 0, 1])
    output, mean, var = evaluate(lambda _, *a: ops.BatchNormTraining(*a, 1e-3, 1), x, scale, offset)
    np.testing.assert_allclose(mean, x.mean((0, 2, 3)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(var, x.var((0, 2, 3)), rtol=1e-5)
    column = (slice(None), None, None)
    normal = (x - x.mean((0, 2, 3))[column]) / np.sqrt(x.var((0, 2, 3))[column] + 1e-3)
    np.testing.assert_allclose(output, normal * scale[column] + offset[column], rtol=1e-4, atol=1e-5)
    again = evaluate(lambda _, *a: ops.BatchNormInference(*a, 1e-3, 1), x, scale, offset, mean, var)
    np.testing.assert_allclose(again, output, rtol=1e-4, atol=1e-5)


def test_batch_norm_grad() -> None:
    """The three formulas of the document, in double precision."""
    rng = np.random.default_rng(0)
    x, dy = rng.normal(size=(2, 3, 4, 5)), rng.normal(size=(2, 3, 4, 5))
    scale = np.array([1.0, 2.0, 3.0])
    mean, var, eps = x.mean((0, 2, 3)), x.var((0, 2, 3)), 0.5
    got = evaluate(lambda _, *a: ops.BatchNormGrad(*a, eps, 1), x, scale, mean, var, dy)
    over, column = (0, 2, 3), (slice(None), None, None)
    centered = x - mean[column]
    c = (dy * centered / (var + eps)[column]).mean(over)
    d = dy.mean(over)
    inverse = 1 / np.sqrt(var + eps)
    dx = (scale * inverse)[column] * (dy - d[column] - c[column] * centered)
    for one, two in zip(got, (dx, (dy * centered * inverse[column]).sum(over), dy.sum(over)), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("lower", [True, False])
def test_cholesky(lower: bool) -> None:
    root = np.tril(np.random.default_rng(0).uniform(1, 2, size=(2, 3, 3)))
    a = root @ root.transpose(0, 2, 1)
    got = evaluate(lambda _, a: ops.Cholesky(a, lower), a)
    triangle = np.tril(got) if lower else np.triu(got)
    product = triangle @ triangle.transpose(0, 2, 1) if lower else triangle.transpose(0, 2, 1) @ triangle
    np.testing.assert_allclose(product, a, rtol=1e-10)


@pytest.mark.parametrize("left_side", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("transpose_a", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
def test_triangular_solve(left_side: bool, lower: bool, transpose_a: str) -> None:
    rng = np.random.default_rng(0)
    a = rng.uniform(1, 2, size=(2, 3, 3)) + 1j * rng.uniform(1, 2, size=(2, 3, 3))
    b = rng.normal(size=(2, 3, 4) if left_side else (2, 4, 3)) + 0j
    x = evaluate(lambda _, a, b: ops.TriangularSolve(a, b, left_side, lower, False, transpose_a), a, b)
    triangle = np.tril(a) if lower else np.triu(a)
    if transpose_a != "NO_TRANSPOSE":
        triangle = triangle.transpose(0, 2, 1)
    if transpose_a == "ADJOINT":
        triangle = triangle.conj()
    np.testing.assert_allclose(triangle @ x if left_side else x @ triangle, b, atol=1e-10)


@pytest.mark.parametrize(("exponent", "mantissa", "type"), [(5, 10, np.float16), (8, 23, np.float32)])
def test_reduce_precision_is_a_narrower_format_and_back(exponent: int, mantissa: int, type: Any) -> None:
    x = f32([1.00048828125, 1.00146484375, 65519.0, 65520.0, -1e6, np.inf, 1e-7])
    got = evaluate(lambda _, x: ops.ReducePrecision(x, mantissa, exponent), x)
    with np.errstate(over="ignore"):
        expected = x.astype(type).astype(np.float32)
    if type is np.float16:
        expected[-1] = 0  # the narrower format's subnormals are flushed
    equal(got, expected)
