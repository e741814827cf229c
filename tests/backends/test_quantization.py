"""Quantized tensors by the specification's "Quantization computations", written out in NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spmd
from spmd.types.element import ELEMENT_TYPES

Q8 = "!quant.uniform<i8:f32, 5.0e-2:3>"
Q8_WIDE = "!quant.uniform<i8:f32, 2.0e-1:-10>"
U8_NARROW = "!quant.uniform<u8<10:200>:f32, 1.0e-1:100>"
Q32 = "!quant.uniform<i32:f32, 1.0e-2>"
Q16 = "!quant.uniform<i16:f32, 1.0e-3:7>"
Q4 = "!quant.uniform<i4:f32, 5.0e-1:1>"
PARAMETERS = {
    Q8: (0.05, 3, -128, 127),
    Q8_WIDE: (0.2, -10, -128, 127),
    U8_NARROW: (0.1, 100, 10, 200),
    Q32: (0.01, 0, -(2**31), 2**31 - 1),
    Q16: (0.001, 7, -(2**15), 2**15 - 1),
    Q4: (0.5, 1, -8, 7),
}


def quantize(x: np.ndarray, type: str) -> np.ndarray:
    scale, zero_point, low, high = PARAMETERS[type]
    whole = np.rint(x / np.float32(scale)).astype(np.float64)
    return np.clip(whole + zero_point, low, high)


def dequantize(q: np.ndarray, type: str) -> np.ndarray:
    scale, zero_point, _, _ = PARAMETERS[type]
    return (q - zero_point).astype(np.float32) * np.float32(scale)


def run(body: str, *arguments: np.ndarray, result: str) -> np.ndarray:
    """A function of f32 arguments whose body is given; `%r` is what it returns."""
    shapes = ["".join(f"{size}x" for size in array.shape) for array in arguments]
    declared = ", ".join(f"%a{k}: tensor<{shape}f32>" for k, shape in enumerate(shapes))
    text = f"func.func @main({declared}) -> {result} {{\n{body}\n  return %r : {result}\n}}"
    return spmd.compile(spmd.parse(text))(*arguments)[0]


def numbers(seed: int, *shape: int) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=shape) * 3).astype(np.float32)


@pytest.mark.parametrize("type", PARAMETERS)
@settings(max_examples=5)
@given(seed=st.integers(0, 2**32 - 1))
def test_quantize_and_back(type: str, seed: int) -> None:
    x = numbers(seed, 50)
    body = f"""  %q = stablehlo.uniform_quantize %a0 : (tensor<50xf32>) -> tensor<50x{type}>
      %r = stablehlo.uniform_dequantize %q : (tensor<50x{type}>) -> tensor<50xf32>"""
    np.testing.assert_array_equal(run(body, x, result="tensor<50xf32>"), dequantize(quantize(x, type), type))


def test_quantizing_clamps_and_stores_nan_as_the_nearest_to_zero() -> None:
    x = np.float32([1e30, -1e30, np.inf, -np.inf, np.nan, 0])
    body = f"""  %q = stablehlo.uniform_quantize %a0 : (tensor<6xf32>) -> tensor<6x{U8_NARROW}>
      %r = stablehlo.bitcast_convert %q : (tensor<6x{U8_NARROW}>) -> tensor<6xui8>"""
    assert run(body, x, result="tensor<6xui8>").tolist() == [200, 10, 200, 10, 10, 100]


#: Storage and zero points, of steps of 1/2: halves of a step are ties, which an odd zero point would turn around.
TIES = (("i8", 1), ("ui8", 77), ("i4", -3), ("i16", -9), ("i32", 1 - 2**31), ("i32", 2**31 - 1))
RANGES = {"i4": (-8, 7), "i8": (-128, 127), "ui8": (0, 255), "i16": (-(2**15), 2**15 - 1), "i32": (-(2**31), 2**31 - 1)}


@pytest.mark.parametrize("backends", [("llvm", "numpy"), ("numpy",)])
@pytest.mark.parametrize(("storage", "zero_point"), TIES)
def test_every_op_rounds_before_the_zero_point_is_added(
    storage: str, zero_point: int, backends: tuple[str, ...]
) -> None:
    """Pointwise ops and products whose results lie half way between two steps, and numbers beyond the storage."""
    x = np.concatenate([np.arange(-40, 41) / 4, [3e9, -3e9, 2**30, -(2**30)]]).astype(np.float32)[:, None]
    stored = storage.replace("ui", "u")
    target = f"tensor<85x1x!quant.uniform<{stored}:f32, 5.0e-1:{zero_point}>>"
    q = f"tensor<85x1x!quant.uniform<{stored}:f32, 2.5e-1>>"
    ops = {
        "uniform_quantize %x": f"(tensor<85x1xf32>) -> {target}",
        "uniform_quantize %q": f"({q}) -> {target}",
        "add %q, %zeros": f"({q}, {q}) -> {target}",
        "subtract %q, %zeros": f"({q}, {q}) -> {target}",
        "abs %q": f"({q}) -> {target}",
        "multiply %q, %ones": f"({q}, {q}) -> {target}",
        "dot_general %q, %one, contracting_dims = [1] x [0]": f"({q}, {q.replace('85', '1')}) -> {target}",
    }
    lines = [f"%r{k} = stablehlo.{call} : {types}" for k, (call, types) in enumerate(ops.items())]
    whole = f"tensor<85x1x{storage}>"
    casts = [f"%s{k} = stablehlo.bitcast_convert %r{k} : ({target}) -> {whole}" for k in range(len(ops))]
    text = f"""func.func @main(%x: tensor<85x1xf32>, %zeros: {q}, %ones: {q}, %one: {q.replace("85", "1")})
        -> ({", ".join([whole] * len(ops))}) {{
      %q = stablehlo.uniform_quantize %x : (tensor<85x1xf32>) -> {q}
      {chr(10).join([*lines, *casts])}
      return {", ".join(f"%s{k}" for k in range(len(ops)))} : {", ".join([whole] * len(ops))}
    }}"""
    dtype = ELEMENT_TYPES[storage].dtype
    zeros, ones = np.zeros((85, 1), dtype), np.full((85, 1), 4, dtype)
    results = spmd.compile(spmd.parse(text), backends=backends)(x, zeros, ones, ones[:1])
    low, high = RANGES[storage]
    quarters = np.clip(x.astype(np.float64) * 4, low, high).astype(np.float32) / 4
    for call, result in zip(ops, results, strict=True):
        value = x if call == "uniform_quantize %x" else np.abs(quarters) if "abs" in call else quarters
        want = np.clip(np.rint(value.astype(np.float64) * 2) + zero_point, low, high)
        np.testing.assert_array_equal(np.asarray(result, np.float64), want, err_msg=call)


def test_per_axis_and_empty_tensors() -> None:
    type = "!quant.uniform<i8:f32:1, {1.0e-1:5, 5.0e-1:-20}>"
    x = numbers(0, 3, 2)
    body = f"""  %q = stablehlo.uniform_quantize %a0 : (tensor<3x2xf32>) -> tensor<3x2x{type}>
      %r = stablehlo.uniform_dequantize %q : (tensor<3x2x{type}>) -> tensor<3x2xf32>"""
    scale, zero_point = np.float32([0.1, 0.5]), np.float32([5, -20])
    stored = np.clip(np.rint(x / scale) + zero_point, -128, 127)
    np.testing.assert_array_equal(run(body, x, result="tensor<3x2xf32>"), (stored - zero_point) * scale)
    empty = np.zeros((0, 2), np.float32)
    assert run(body.replace("3x2x", "0x2x"), empty, result="tensor<0x2xf32>").shape == (0, 2)


@pytest.mark.parametrize(("source", "target"), [(Q8, Q8_WIDE), (Q32, Q8), (Q8, Q32), (Q4, Q16)])
def test_requantizing_goes_by_way_of_the_floats(source: str, target: str) -> None:
    x = numbers(1, 40)
    body = f"""  %q = stablehlo.uniform_quantize %a0 : (tensor<40xf32>) -> tensor<40x{source}>
      %s = stablehlo.uniform_quantize %q : (tensor<40x{source}>) -> tensor<40x{target}>
      %r = stablehlo.uniform_dequantize %s : (tensor<40x{target}>) -> tensor<40xf32>"""
    want = dequantize(quantize(dequantize(quantize(x, source), source), target), target)
    np.testing.assert_array_equal(run(body, x, result="tensor<40xf32>"), want)


UNARY = {
    "abs": np.abs, "negate": np.negative, "ceil": np.ceil, "floor": np.floor, "sine": np.sin, "cosine": np.cos,
    "tanh": np.tanh, "exponential": np.exp, "logistic": lambda x: 1 / (1 + np.exp(-x)), "cbrt": np.cbrt,
    "sign": np.sign, "round_nearest_even": np.rint, "log": np.log, "sqrt": np.sqrt,
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize(("source", "target"), [(Q8, Q8_WIDE), (Q16, Q16), (U8_NARROW, U8_NARROW)])
def test_unary_ops_dequantize_compute_and_quantize(name: str, source: str, target: str) -> None:
    x = np.abs(numbers(2, 60)) + 0.2 if name in ("log", "sqrt") else numbers(2, 60)
    body = f"""  %q = stablehlo.uniform_quantize %a0 : (tensor<60xf32>) -> tensor<60x{source}>
      %s = stablehlo.{name} %q : (tensor<60x{source}>) -> tensor<60x{target}>
      %r = stablehlo.uniform_dequantize %s : (tensor<60x{target}>) -> tensor<60xf32>"""
    want = dequantize(quantize(UNARY[name](dequantize(quantize(x, source), source)), target), target)
    step = PARAMETERS[target][0]
    got = run(body, x, result="tensor<60xf32>")
    # A result half way between two steps may fall to either side by the function's last bit.
    assert np.abs(got - want).max() <= 1.01 * step and (got != want).mean() < 0.1


BINARY = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "maximum": np.maximum,
    "minimum": np.minimum, "atan2": np.arctan2,
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize(
    ("left", "right", "target"), [(Q8, Q8_WIDE, Q8), (Q16, Q16, Q16), (U8_NARROW, U8_NARROW, U8_NARROW)]
)
def test_binary_ops_dequantize_compute_and_quantize(name: str, left: str, right: str, target: str) -> None:
    x, y = numbers(3, 60), numbers(4, 60) + np.float32(1.013)
    body = f"""  %p = stablehlo.uniform_quantize %a0 : (tensor<60xf32>) -> tensor<60x{left}>
      %q = stablehlo.uniform_quantize %a1 : (tensor<60xf32>) -> tensor<60x{right}>
      %s = stablehlo.{name} %p, %q : (tensor<60x{left}>, tensor<60x{right}>) -> tensor<60x{target}>
      %r = stablehlo.uniform_dequantize %s : (tensor<60x{target}>) -> tensor<60xf32>"""
    with np.errstate(all="ignore"):
        exact = BINARY[name](dequantize(quantize(x, left), left), dequantize(quantize(y, right), right))
        # 0 / 0 is NaN, which is stored as 0 or what is nearest to it
        nan = max(PARAMETERS[target][2], 0)
        want = dequantize(np.where(np.isnan(exact), nan, quantize(np.nan_to_num(exact), target)), target)
    got = run(body, x, y, result="tensor<60xf32>")
    np.testing.assert_allclose(got, want, atol=1.01 * PARAMETERS[target][0])
    assert (got != want).mean() < 0.1


def test_compare_select_and_clamp() -> None:
    x, y = numbers(5, 30), numbers(6, 30)
    body = f"""  %p = stablehlo.uniform_quantize %a0 : (tensor<30xf32>) -> tensor<30x{Q8}>
      %q = stablehlo.uniform_quantize %a1 : (tensor<30xf32>) -> tensor<30x{Q8_WIDE}>
      %c = stablehlo.compare LT, %p, %q : (tensor<30x{Q8}>, tensor<30x{Q8_WIDE}>) -> tensor<30xi1>
      %r = stablehlo.convert %c : (tensor<30xi1>) -> tensor<30xf32>"""
    less = dequantize(quantize(x, Q8), Q8) < dequantize(quantize(y, Q8_WIDE), Q8_WIDE)
    assert run(body, x, y, result="tensor<30xf32>").tolist() == less.astype(float).tolist()


def test_dot_general_is_exact_in_the_integers() -> None:
    x, y = numbers(7, 4, 300), numbers(8, 300, 5)
    weights = "!quant.uniform<i8<-127:127>:f32, 5.0e-2>"
    body = f"""  %p = stablehlo.uniform_quantize %a0 : (tensor<4x300xf32>) -> tensor<4x300x{Q8}>
      %q = stablehlo.uniform_quantize %a1 : (tensor<300x5xf32>) -> tensor<300x5x{weights}>
      %s = stablehlo.dot_general %p, %q, contracting_dims = [1] x [0]
        : (tensor<4x300x{Q8}>, tensor<300x5x{weights}>) -> tensor<4x5x{Q32}>
      %r = stablehlo.uniform_dequantize %s : (tensor<4x5x{Q32}>) -> tensor<4x5xf32>"""
    stored = np.rint(np.clip(y / np.float32(0.05), -127, 127)).astype(np.float64)
    products = (quantize(x, Q8) - 3) @ stored  # whole numbers, exact in f64
    scale = float(np.float32(0.05)) ** 2 / float(np.float32(0.01))
    np.testing.assert_array_equal(
        run(body, x, y, result="tensor<4x5xf32>"), np.rint(products * scale).astype(np.float32) * np.float32(0.01)
    )


def test_hybrid_dot_general_dequantizes_the_weights() -> None:
    weights = "!quant.uniform<i8:f32:1, {5.0e-2, 1.0e-1}>"
    x, y = numbers(9, 4, 6), numbers(10, 6, 2)
    body = f"""  %q = stablehlo.uniform_quantize %a1 : (tensor<6x2xf32>) -> tensor<6x2x{weights}>
      %r = stablehlo.dot_general %a0, %q, contracting_dims = [1] x [0]
        : (tensor<4x6xf32>, tensor<6x2x{weights}>) -> tensor<4x2xf32>"""
    scales = np.float32([0.05, 0.1])
    stored = np.rint(np.clip(y / scales, -128, 127))
    np.testing.assert_allclose(run(body, x, y, result="tensor<4x2xf32>"), x @ (stored * scales), rtol=1e-5)


def test_data_movement_moves_storage() -> None:
    x = numbers(11, 2, 3)
    body = f"""  %q = stablehlo.uniform_quantize %a0 : (tensor<2x3xf32>) -> tensor<2x3x{Q8}>
      %t = stablehlo.transpose %q, dims = [1, 0] : (tensor<2x3x{Q8}>) -> tensor<3x2x{Q8}>
      %s = stablehlo.slice %t [1:3, 0:2] : (tensor<3x2x{Q8}>) -> tensor<2x2x{Q8}>
      %r = stablehlo.uniform_dequantize %s : (tensor<2x2x{Q8}>) -> tensor<2x2xf32>"""
    np.testing.assert_array_equal(run(body, x, result="tensor<2x2xf32>"), dequantize(quantize(x, Q8), Q8).T[1:3])


def test_reductions_compute_on_the_floats() -> None:
    """A reduction's body adds quantized scalars: each step rounds to the result's grid."""
    x = np.float32([[0.5, 1.0, -2.0], [3.0, 0.25, 1.0]])
    body = f"""  %q = stablehlo.uniform_quantize %a0 : (tensor<2x3xf32>) -> tensor<2x3x{Q8}>
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %i = stablehlo.uniform_quantize %z : (tensor<f32>) -> tensor<{Q8}>
      %s = stablehlo.reduce(%q init: %i) applies stablehlo.add across dimensions = [1]
        : (tensor<2x3x{Q8}>, tensor<{Q8}>) -> tensor<2x{Q8}>
      %r = stablehlo.uniform_dequantize %s : (tensor<2x{Q8}>) -> tensor<2xf32>"""
    np.testing.assert_allclose(run(body, x, result="tensor<2xf32>"), [-0.5, 4.25], atol=1e-6)


def test_a_triangular_system_is_solved_on_what_the_storage_stands_for() -> None:
    a, b, x = ("!quant.uniform<i8:f32, 0.5>", "!quant.uniform<i8:f32, 0.25:3>", "!quant.uniform<i8:f32, 0.125:-1>")
    text = f"""func.func @main(%a: tensor<2x2x{a}>, %b: tensor<2x1x{b}>) -> tensor<2x1x{x}> {{
      %r = "stablehlo.triangular_solve"(%a, %b) <{{left_side = true, lower = true, unit_diagonal = false,
        transpose_a = #stablehlo<transpose NO_TRANSPOSE>}}> : (tensor<2x2x{a}>, tensor<2x1x{b}>) -> tensor<2x1x{x}>
      return %r : tensor<2x1x{x}>
    }}"""
    (got,) = spmd.compile(spmd.parse(text))(np.int8([[2, 0], [4, 8]]), np.int8([[11], [19]]))
    # [[1, 0], [2, 4]] x = [[2], [4]], so x = [[2], [0]]: 16 and 0 of the result's scale, moved by -1
    assert got.tolist() == [[15], [-1]]
