"""Small programs that do one kind of work each, by which a machine is measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from spmd.compiler.verify import verify
from spmd.ir import Module
from spmd.syntax.parser import parse
from spmd.types import TensorType, Type


def module(text: str) -> Module:
    """The program of a text."""
    parsed = parse(text, "<probe>")
    verify(parsed)
    return parsed


def arguments(types: Sequence[Type]) -> list[Any]:
    """Arrays for arguments of these types: floats between one half and one and a half, integers spread over 256."""
    generator = np.random.default_rng(0)
    arrays = []
    for type in types:
        assert isinstance(type, TensorType)
        shape = type.static_shape
        if type.dtype.kind == "f":
            arrays.append((0.5 + generator.random(shape)).astype(type.dtype))
        else:
            arrays.append(generator.integers(0, 256, shape).astype(type.dtype))
    return arrays


def _function(arguments: Sequence[str], lines: Sequence[str], result: str) -> str:
    """A function of `arguments` %0, %1, ... whose last line gives %result."""
    taken = ", ".join(f"%{number}: tensor<{type}>" for number, type in enumerate(arguments))
    body = "\n  ".join(lines)
    return f"func.func @main({taken}) -> tensor<{result}> {{\n  {body}\n  return %result : tensor<{result}>\n}}"


def chain(length: int, count: int, op: str = "", type: str = "f32") -> str:
    """`length` ops one after another on `count` numbers: additions and multiplications by turns, or `op`."""
    of = f"{count}x{type}"
    lines = []
    before = "%0"
    for number in range(length):
        name = "%result" if number == length - 1 else f"%v{number}"
        if op:
            lines.append(f"{name} = stablehlo.{op} {before} : tensor<{of}>")
        else:
            turn = ("add", "multiply")[number % 2]
            lines.append(f"{name} = stablehlo.{turn} {before}, %0 : tensor<{of}>")
        before = name
    return _function([of], lines, of)


def transpose(rows: int, columns: int) -> str:
    types = f"(tensor<{rows}x{columns}xf32>) -> tensor<{columns}x{rows}xf32>"
    line = f"%result = stablehlo.transpose %0, dims = [1, 0] : {types}"
    return _function([f"{rows}x{columns}xf32"], [line], f"{columns}x{rows}xf32")


def product(bits: int, form: str, sizes: Sequence[int]) -> str:
    """A product of matrices: `sizes` are (batch, rows, depth, columns), `form` "nn" or "nt"."""
    batch, rows, depth, columns = sizes
    left, right = [batch, rows, depth], [batch, columns, depth] if form == "nt" else [batch, depth, columns]
    lhs, rhs, result = ("x".join(map(str, shape)) + f"xf{bits}" for shape in (left, right, [batch, rows, columns]))
    contracting = f"[2] x [{2 if form == 'nt' else 1}]"
    line = (
        f"%result = stablehlo.dot_general %0, %1, batching_dims = [0] x [0], contracting_dims = {contracting} "
        f": (tensor<{lhs}>, tensor<{rhs}>) -> tensor<{result}>"
    )
    return _function([lhs, rhs], [line], result)


def _gather(count: int) -> str:
    line = (
        '%result = "stablehlo.gather"(%0, %1) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], '
        "start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>}> "
        f": (tensor<65536xf32>, tensor<{count}x1xi32>) -> tensor<{count}xf32>"
    )
    return _function(["65536xf32", f"{count}x1xi32"], [line], f"{count}xf32")


def _scatter(count: int) -> str:
    line = (
        '%result = "stablehlo.scatter"(%0, %1, %2) <{scatter_dimension_numbers = #stablehlo.scatter<'
        "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({\n"
        "  ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
        "    %s = stablehlo.add %a, %b : tensor<f32>\n"
        "    stablehlo.return %s : tensor<f32>\n"
        f"  }}) : (tensor<256xf32>, tensor<{count}x1xi32>, tensor<{count}xf32>) -> tensor<256xf32>"
    )
    return _function(["256xf32", f"{count}x1xi32", f"{count}xf32"], [line], "256xf32")


def _convolution() -> str:
    types = "(tensor<4x32x32x16xf32>, tensor<3x3x16x32xf32>) -> tensor<4x32x32x32xf32>"
    line = (
        "%result = stablehlo.convolution(%0, %1) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], "
        "window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : " + types
    )
    return _function(["4x32x32x16xf32", "3x3x16x32xf32"], [line], "4x32x32x32xf32")


def _sort() -> str:
    line = (
        '%result = "stablehlo.sort"(%0) <{dimension = 0 : i64, is_stable = true}> ({\n'
        "  ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
        "    %c = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        "    stablehlo.return %c : tensor<i1>\n"
        "  }) : (tensor<65536xf32>) -> tensor<65536xf32>"
    )
    return _function(["65536xf32"], [line], "65536xf32")


def _fft() -> str:
    types = "(tensor<16x4096xf32>) -> tensor<16x2049xcomplex<f32>>"
    line = f"%result = stablehlo.fft %0, type = RFFT, length = [4096] : {types}"
    return _function(["16x4096xf32"], [line], "16x2049xcomplex<f32>")


def _solve() -> str:
    lines = [
        '%result = "stablehlo.triangular_solve"(%0, %1) <{left_side = true, lower = true, unit_diagonal = true, '
        "transpose_a = #stablehlo<transpose NO_TRANSPOSE>}> "
        ": (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>"
    ]
    return _function(["128x128xf32"] * 2, lines, "128x128xf32")


def _random() -> str:
    lines = [
        "%state, %result = stablehlo.rng_bit_generator %0, algorithm = THREE_FRY "
        ": (tensor<2xui64>) -> (tensor<2xui64>, tensor<65536xui32>)"
    ]
    return _function(["2xui64"], lines, "65536xui32")


#: Programs by the kind of work that is nearly all of theirs.
KINDS: dict[str, Sequence[str]] = {
    "elementwise": [chain(64, 4096)],
    "function": [chain(4, 4096, "exponential"), chain(4, 4096, "tanh")],
    "strided": [transpose(512, 784), transpose(256, 104)],
    "aliased": [transpose(784, 512), transpose(512, 512)],
    "indexed": [_gather(32768), _scatter(32768)],
    "convolution": [_convolution()],
    "sort": [_sort()],
    "fft": [_fft()],
    "solve": [_solve()],
    "random": [_random()],
}
_CUBES = [(1, side, side, side) for side in (16, 32, 64, 128, 256, 512, 1024)]
_THIN = [
    (1, 128, 512, 10),
    (1, 10, 128, 512),
    (1, 128, 10, 512),
    (1, 1, 512, 512),
    (1, 512, 512, 1),
    (1, 512, 128, 784),
    (1, 1024, 128, 16),
    (1, 4096, 64, 64),
    (64, 64, 16, 64),
    (64, 64, 64, 16),
    (256, 16, 16, 16),
]
#: Products to measure: bits, form and sizes.
PRODUCTS: list[tuple[int, str, tuple[int, int, int, int]]] = [
    *((32, form, sizes) for form in ("nn", "nt") for sizes in (*_CUBES, *_THIN)),
    *((64, "nn", sizes) for sizes in (*_CUBES[:-1], *_THIN)),
]
