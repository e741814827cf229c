"""The schedule's loop nests as C, run by the system's compiler: the bits of native code, and sources for anybody's."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import spmd
from launch.cli import main
from spmd.ahead import compile_source
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.prepare import prepare
from spmd.compiler.schedule.schedule import NativeRegion
from spmd.types import ELEMENT_TYPES, F16, F32

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no compiler of C")

_FLOAT = (
    "abs cbrt ceil cosine exponential exponential_minus_one floor is_finite log log_plus_one logistic negate "
    "round_nearest_afz round_nearest_even rsqrt sign sine sqrt tan tanh"
)
_FLOATS = "add atan2 divide maximum minimum multiply power remainder subtract"
_INTEGER = "abs count_leading_zeros negate not popcnt sign"
_INTEGERS = (
    "add and divide maximum minimum multiply or power remainder shift_left shift_right_arithmetic "
    "shift_right_logical subtract xor"
)


def _ops(element: str) -> tuple[list[str], list[str]]:
    kind = ELEMENT_TYPES[element]
    if kind.is_boolean:
        return ["not"], ["and", "or", "xor", "maximum", "minimum", "add", "multiply"]
    if kind.is_complex:
        return ["negate", "exponential", "sqrt", "log", "tanh"], ["add", "subtract", "multiply", "divide"]
    if kind.is_float:
        return _FLOAT.split(), _FLOATS.split()
    unsigned = {"abs", "negate", "sign"} if kind.is_unsigned else set()
    return [op for op in _INTEGER.split() if op not in unsigned], _INTEGERS.split()


def _program(element: str, size: int) -> str:
    """All ops of an element type, and conversions from it, in one function."""
    kind, of = ELEMENT_TYPES[element], f"tensor<{size}x{element}>"
    unary, binary = _ops(element)
    lines, results = [], []

    def add(text: str, type: str) -> None:
        lines.append(f"  %r{len(results)} = {text}")
        results.append(type)

    for op in unary:
        to = of.replace(element, "i1") if op == "is_finite" else of
        add(f'"stablehlo.{op}"(%x) : ({of}) -> {to}', to)
    for op in binary:
        add(f'"stablehlo.{op}"(%x, %y) : ({of}, {of}) -> {of}', of)
    for direction in ("EQ", "NE") if kind.is_complex else ("EQ", "NE", "LT", "LE", "GT", "GE"):
        to = f"tensor<{size}xi1>"
        add(f"stablehlo.compare {direction}, %x, %y : ({of}, {of}) -> {to}", to)
    for other in ("f16", "bf16", "f32", "f64", "f8E4M3FN", "i1", "i4", "i8", "ui16", "i64"):
        if other != element and not kind.is_complex:
            to = f"tensor<{size}x{other}>"
            add(f"stablehlo.convert %x : ({of}) -> {to}", to)
    names = ", ".join(f"%r{number}" for number in range(len(results)))
    body, types = "\n".join(lines), ", ".join(results)
    return f"func.func @main(%x: {of}, %y: {of}) -> ({types}) {{\n{body}\n  return {names} : {types}\n}}"


def _values(element: str) -> np.ndarray:
    dtype, random = ELEMENT_TYPES[element].dtype, np.random.default_rng(0)
    if dtype.kind in "biu":
        bits = random.integers(0, 256, 64 * dtype.itemsize, np.uint8)
        if dtype.kind == "b":
            return (bits & 1).astype(dtype)
        return np.concatenate([bits.view(dtype), np.array([np.iinfo(dtype).min, np.iinfo(dtype).max, 0, 1], dtype)])
    if element == "i4":
        return np.arange(-8, 8).astype(np.int8).astype(dtype)
    hard = [0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 1e-40, 65519.0, 65520.0, 6e-8, 0.5, 2.5, 1e30, -3e9, 127.6]
    if dtype.kind == "c":
        return (random.normal(size=64) + 1j * random.normal(size=64)).astype(dtype)
    with np.errstate(all="ignore"):
        return np.concatenate([hard, random.normal(size=50) * np.exp(random.uniform(-30, 30, 50))]).astype(dtype)


def _same(got: np.ndarray, want: np.ndarray) -> bool:
    """Equal bits, NaNs being one."""
    if got.dtype.kind in "fc" or got.dtype.isbuiltin != 1:
        first, second = (array.astype(np.complex128 if got.dtype.kind == "c" else np.float64) for array in (got, want))
        nan = np.isnan(first)
        same = np.where(nan, 0, first).tobytes() == np.where(nan, 0, second).tobytes()
        return same and np.array_equal(nan, np.isnan(second))
    return bool(np.array_equal(got, want))


#: In an ordinary run one of each kind to be held; the others differ in width.
_ELEMENTS = ["f32", "f16", "f8E4M3FN", "i8", "ui64", "i4", "i1", "complex<f32>",
             "f64", "bf16", "ui8", "i32", "i64", "f8E5M2FNUZ", "i16", "ui32"]  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("element", _ELEMENTS)
def test_elementwise_ops_have_the_bits_of_native_code(element: str) -> None:
    values = _values(element)
    x, y = (part.ravel().copy() for part in np.meshgrid(values, values))
    module = spmd.parse(_program(element, x.size))
    with np.errstate(all="ignore"):
        ours = spmd.compile(module, backends=("c", "numpy"))(x, y)
        native = spmd.compile(module, backends=("llvm", "numpy"))(x, y)
    wrong = [number for number, (a, b) in enumerate(zip(ours, native, strict=True)) if not _same(a, b)]
    lines = str(module).splitlines()
    assert wrong == [], [lines[number + 2] for number in wrong]


_REDUCTIONS = """
func.func @main(%x: tensor<5x700xf32>, %n: tensor<5x700xi32>, %u: tensor<40xf32>, %at: tensor<40x1xi32>)
    -> (tensor<5xf32>, tensor<700xf32>, tensor<f32>, tensor<5xi32>, tensor<5xf32>, tensor<5xf32>, tensor<5xi32>,
        tensor<5x350xf32>, tensor<16xf32>, tensor<5xf16>, tensor<5x700xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %lowest = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %none = stablehlo.constant dense<0> : tensor<i32>
  %half = stablehlo.constant dense<1.0> : tensor<f16>
  %rows = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<5x700xf32>, tensor<f32>) -> tensor<5xf32>
  %columns = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<5x700xf32>, tensor<f32>) -> tensor<700xf32>
  %all = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0, 1]
    : (tensor<5x700xf32>, tensor<f32>) -> tensor<f32>
  %product = stablehlo.reduce(%n init: %one) applies stablehlo.multiply across dimensions = [1]
    : (tensor<5x700xi32>, tensor<i32>) -> tensor<5xi32>
  %largest = stablehlo.reduce(%x init: %lowest) applies stablehlo.maximum across dimensions = [1]
    : (tensor<5x700xf32>, tensor<f32>) -> tensor<5xf32>
  %count = stablehlo.iota dim = 1 : tensor<5x700xi32>
  %best:2 = stablehlo.reduce(%x init: %lowest), (%count init: %none) across dimensions = [1]
    : (tensor<5x700xf32>, tensor<5x700xi32>, tensor<f32>, tensor<i32>) -> (tensor<5xf32>, tensor<5xi32>)
    reducer(%a: tensor<f32>, %b: tensor<f32>) (%i: tensor<i32>, %j: tensor<i32>) {
      %more = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %nan = stablehlo.compare NE, %a, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %take = stablehlo.or %more, %nan : tensor<i1>
      %v = stablehlo.select %take, %a, %b : tensor<i1>, tensor<f32>
      %same = stablehlo.compare EQ, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %below = stablehlo.compare LT, %i, %j : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %tied = stablehlo.and %same, %below : tensor<i1>
      %keep = stablehlo.or %take, %tied : tensor<i1>
      %k = stablehlo.select %keep, %i, %j : tensor<i1>, tensor<i32>
      stablehlo.return %v, %k : tensor<f32>, tensor<i32>
    }
  %pooled = "stablehlo.reduce_window"(%x, %lowest) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %m = stablehlo.maximum %a, %b : tensor<f32>
      stablehlo.return %m : tensor<f32>
  }) {window_dimensions = array<i64: 1, 2>, window_strides = array<i64: 1, 2>}
    : (tensor<5x700xf32>, tensor<f32>) -> tensor<5x350xf32>
  %empty = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<16xf32>
  %added = "stablehlo.scatter"(%empty, %at, %u) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %m = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %m : tensor<f32>
  }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
      index_vector_dim = 1>} : (tensor<16xf32>, tensor<40x1xi32>, tensor<40xf32>) -> tensor<16xf32>
  %narrow = stablehlo.convert %x : (tensor<5x700xf32>) -> tensor<5x700xf16>
  %halves = stablehlo.reduce(%narrow init: %half) applies stablehlo.maximum across dimensions = [1]
    : (tensor<5x700xf16>, tensor<f16>) -> tensor<5xf16>
  %wide = stablehlo.broadcast_in_dim %rows, dims = [0] : (tensor<5xf32>) -> tensor<5x700xf32>
  %scaled = stablehlo.divide %x, %wide : tensor<5x700xf32>
  return %rows, %columns, %all, %product, %largest, %best#0, %best#1, %pooled, %added, %halves, %scaled
    : tensor<5xf32>, tensor<700xf32>, tensor<f32>, tensor<5xi32>, tensor<5xf32>, tensor<5xf32>, tensor<5xi32>,
      tensor<5x350xf32>, tensor<16xf32>, tensor<5xf16>, tensor<5x700xf32>
}"""


def test_reductions_windows_and_scatters() -> None:
    """What does not round has native code's bits; sums are as near to the exact ones."""
    random = np.random.default_rng(1)
    x = random.normal(size=(5, 700)).astype(np.float32)
    x[1, 40] = x[1, 70] = np.nan
    x[2, :2], x[3, 5] = [0.0, -0.0], np.inf
    n = random.integers(-(2**31), 2**31, (5, 700)).astype(np.int32) | np.int32(1)
    updates, at = random.normal(size=40).astype(np.float32), random.integers(-2, 20, (40, 1)).astype(np.int32)
    module = spmd.parse(_REDUCTIONS)
    ours = spmd.compile(module, backends=("c", "numpy"))(x, n, updates, at)
    native = spmd.compile(module, backends=("llvm", "numpy"), threads=1)(x, n, updates, at)
    rounds = {0, 1, 2, 10}
    for number, (a, b) in enumerate(zip(ours, native, strict=True)):
        if number in rounds:
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)
        else:
            assert _same(a, b), number
    want = x.astype(np.float64).sum(1)
    np.testing.assert_allclose(ours[0], want, rtol=1e-5, atol=2e-5)


def test_long_sums_are_folded_in_blocks() -> None:
    """One after another, a million numbers near one would lose four digits."""
    text = """func.func @main(%x: tensor<1000000xf32>) -> tensor<f32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0]
    : (tensor<1000000xf32>, tensor<f32>) -> tensor<f32>
  return %s : tensor<f32>
}"""
    x = (1 + np.random.default_rng(0).uniform(size=1_000_000)).astype(np.float32)
    (got,) = spmd.compile(spmd.parse(text), backends=("c", "numpy"))(x)
    np.testing.assert_allclose(got, x.astype(np.float64).sum(), rtol=2e-5)


PRODUCT = """func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %t = stablehlo.tanh %x : tensor<4x4xf32>
  %p = stablehlo.dot_general %t, %x, contracting_dims = [1] x [0]
    : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %p : tensor<4x4xf32>
}"""


def test_what_is_no_loop_nest_is_left_to_the_next_back_end() -> None:
    module = spmd.parse(PRODUCT)
    prepared = prepare(module, backends=("c", "numpy"))
    lowering = ModuleLowering(prepared.module, prepared.options)
    parts = lowering.schedule(lowering.flatten(prepared.function).body).entries
    assert [isinstance(part, NativeRegion) for part in parts] == [True, False]
    x = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
    (got,) = spmd.compile(module, backends=("c", "numpy"))(x)
    np.testing.assert_allclose(got, np.tanh(x) @ x, rtol=1e-5, atol=1e-6)


def test_what_is_no_loop_nest_is_refused_in_a_source() -> None:
    with pytest.raises(spmd.CompileError, match=r"dot_general: .*the C back end supports loop nests only"):
        compile_source(spmd.parse(PRODUCT), name="product")


def test_an_argument_that_a_result_takes_over_is_not_written_to() -> None:
    text = """func.func @main(%x: tensor<9xf32>) -> tensor<9xf32> {
  %y = stablehlo.add %x, %x : tensor<9xf32>
  return %y : tensor<9xf32>
}"""
    x = np.arange(9, dtype=np.float32)
    (got,) = spmd.compile(spmd.parse(text), backends=("c", "numpy"), donate=(0,))(x)
    np.testing.assert_array_equal(got, 2 * np.arange(9))


def test_a_source_is_taken_by_any_compiler_without_a_warning(tmp_path: Path) -> None:
    """It declares its function, says which memory it needs, and gives what the executable does."""
    program, source, library = tmp_path / "rows.mlir", tmp_path / "rows.c", tmp_path / "rows.so"
    text = """func.func @main(%x: tensor<3x50xf32>, %h: tensor<50xf16>) -> (tensor<3xf32>, tensor<3x50xf16>) {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %w = stablehlo.convert %h : (tensor<50xf16>) -> tensor<50xf32>
  %b = stablehlo.broadcast_in_dim %w, dims = [1] : (tensor<50xf32>) -> tensor<3x50xf32>
  %y = stablehlo.multiply %x, %b : tensor<3x50xf32>
  %e = stablehlo.sine %y : tensor<3x50xf32>
  %s = stablehlo.reduce(%e init: %z) applies stablehlo.add across dimensions = [1]
    : (tensor<3x50xf32>, tensor<f32>) -> tensor<3xf32>
  %n = stablehlo.convert %e : (tensor<3x50xf32>) -> tensor<3x50xf16>
  return %s, %n : tensor<3xf32>, tensor<3x50xf16>
}"""
    program.write_text(text)
    assert main(["compile", str(program), "--emit", "c", "-o", str(source)]) == 0
    strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1", "-ffp-contract=off"]
    subprocess.run(["cc", *strict, "-shared", "-fPIC", str(source), "-o", str(library), "-lm"], check=True)
    written = source.read_text()
    assert "/* tensor<3x50xf32> x */" in written and "#define ROWS_SCRATCH_BYTES" in written
    x = np.linspace(-3, 3, 150, dtype=F32.dtype).reshape(3, 50)
    h = np.linspace(0, 9, 50).astype(F16.dtype)
    total, narrow, scratch = np.empty(3, F32.dtype), np.empty((3, 50), F16.dtype), np.empty(1 << 16, np.uint8)
    addresses = [ctypes.c_void_p(array.ctypes.data) for array in (x, h, total, narrow, scratch)]
    ctypes.CDLL(str(library)).rows(*addresses)
    want = spmd.compile(spmd.parse(text), backends=("c", "numpy"))(x, h)
    np.testing.assert_array_equal(total, want[0])
    np.testing.assert_array_equal(narrow, want[1])


def test_a_program_is_printed_as_c(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "add.mlir"
    program.write_text("""func.func @main(%x: tensor<6xi32>) -> tensor<6xi32> {
  %y = stablehlo.add %x, %x : tensor<6xi32>
  return %y : tensor<6xi32>
}""")
    assert main(["print", str(program), "--after", "c"]) == 0
    printed = capsys.readouterr().out
    assert "for (int64_t i0 = 0; i0 < 6; i0++) {\n      const uint32_t x0 = arg0_i32[i0];" in printed
    assert "result0_i32[i0] = (x0 + x0);" in printed


def test_what_is_written_over_begins_as_a_copy_of_a_constant() -> None:
    text = """func.func @main() -> tensor<3xi32> {
  %x = stablehlo.constant dense<[5, 6, 7]> : tensor<3xi32>
  %at = stablehlo.constant dense<[[2], [0], [2]]> : tensor<3x1xi32>
  %u = stablehlo.constant dense<[1, 2, 3]> : tensor<3xi32>
  %r = "stablehlo.scatter"(%x, %at, %u) ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %m = stablehlo.multiply %a, %b : tensor<i32>
      stablehlo.return %m : tensor<i32>
  }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
      index_vector_dim = 1>} : (tensor<3xi32>, tensor<3x1xi32>, tensor<3xi32>) -> tensor<3xi32>
  return %r : tensor<3xi32>
}"""
    (got,) = spmd.compile(spmd.parse(text), backends=("c", "numpy"))()
    np.testing.assert_array_equal(got, [10, 6, 21])
