"""Small programs that each do one kind of work, for calibration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd.compiler.pipeline.verify import verify
from spmd.ir import Module
from spmd.support.arrays import Array
from spmd.syntax.parser import parse
from spmd.types import TensorType, Type


def module(text: str) -> Module:
    """Return the verified program of a text."""
    parsed = parse(text, "<probe>")
    verify(parsed)
    return parsed


def arguments(types: Sequence[Type]) -> list[Array]:
    """Return random arguments of these types: floats in [0.5, 1.5), integers in [0, 256)."""
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
    """Return a function of `arguments` %0, %1, ... that returns %result."""
    taken = ", ".join(f"%{number}: tensor<{type}>" for number, type in enumerate(arguments))
    body = "\n  ".join(lines)
    return f"func.func @main({taken}) -> tensor<{result}> {{\n  {body}\n  return %result : tensor<{result}>\n}}"


def chain(length: int, count: int, op: str = "", type: str = "f32") -> str:
    """Return a chain of `length` ops on `count` numbers: alternately additions and multiplications, or `op`."""
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
    """Return a transpose of a matrix."""
    types = f"(tensor<{rows}x{columns}xf32>) -> tensor<{columns}x{rows}xf32>"
    line = f"%result = stablehlo.transpose %0, dims = [1, 0] : {types}"
    return _function([f"{rows}x{columns}xf32"], [line], f"{columns}x{rows}xf32")


def product(element: str, form: str, sizes: Sequence[int]) -> str:
    """Return a matrix product: `sizes` are (batch, rows, depth, columns), `form` is "nn" or "nt"."""
    batch, rows, depth, columns = sizes
    shapes = [[rows, depth], [columns, depth] if form == "nt" else [depth, columns], [rows, columns]]
    last = 1 if form == "nt" else 0
    dims = f"contracting_dims = [1] x [{last}]"
    if batch > 1:
        shapes = [[batch, *shape] for shape in shapes]
        dims = f"batching_dims = [0] x [0], contracting_dims = [2] x [{last + 1}]"
    elements = [element, element, "i32" if element == "i8" else element]
    lhs, rhs, result = ("x".join(map(str, [*shape, of])) for shape, of in zip(shapes, elements, strict=True))
    types = f"(tensor<{lhs}>, tensor<{rhs}>) -> tensor<{result}>"
    return _function([lhs, rhs], [f"%result = stablehlo.dot_general %0, %1, {dims} : {types}"], result)


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


def _convolution(form: str, sizes: Sequence[int]) -> str:
    """Return a convolution of images: `sizes` are (batch, output side, features, window side, output features)."""
    batch, side, features, window, columns = sizes
    image = (batch, side + window - 1, side + window - 1, features)
    dims = "b, 0, 1, f"
    if form == "batch":
        image, dims = (features, *image[1:3], batch), "f, 0, 1, b"
    types = [image, (window, window, features, columns), (batch, side, side, columns)]
    lhs, rhs, result = ("x".join(map(str, shape)) + "xf32" for shape in types)
    line = (
        f"%result = stablehlo.convolution(%0, %1) dim_numbers = [{dims}]x[0, 1, i, o]->[b, 0, 1, f], "
        "window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} "
        f": (tensor<{lhs}>, tensor<{rhs}>) -> tensor<{result}>"
    )
    return _function([lhs, rhs], [line], result)


def totals(count: int) -> str:
    """Return row sums of `count` numbers in rows of 1024."""
    rows = count // 1024
    lines = [
        "%zero = stablehlo.constant dense<0.0> : tensor<f32>",
        "%result = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [1] "
        f": (tensor<{rows}x1024xf32>, tensor<f32>) -> tensor<{rows}xf32>",
    ]
    return _function([f"{rows}x1024xf32"], lines, f"{rows}xf32")


def _hash(count: int) -> str:
    """Return a chain of additions and bitwise ops on integers."""
    of, lines, before = f"tensor<{count}xi32>", [], ["%0", "%1"]
    for number in range(16):
        name = "%result" if number == 15 else f"%v{number}"
        op = ("add", "xor", "subtract", "or")[number % 4]
        lines.append(f"{name} = stablehlo.{op} {before[-1]}, {before[-2]} : {of}")
        before.append(name)
    return _function([f"{count}xi32"] * 2, lines, f"{count}xi32")


def _polynomial(count: int) -> str:
    """Return a sum of independent products of two arrays."""
    of, lines = f"tensor<{count}xf32>", []
    for number, (first, second) in enumerate((("%0", "%1"), ("%1", "%0"), ("%0", "%0"), ("%1", "%1"))):
        lines += [
            f"%p{number} = stablehlo.multiply {first}, {second} : {of}",
            f"%q{number} = stablehlo.add %p{number}, {first} : {of}",
            f"%r{number} = stablehlo.multiply %q{number}, {second} : {of}",
        ]
    lines += [
        f"%s0 = stablehlo.add %r0, %r1 : {of}",
        f"%s1 = stablehlo.add %r2, %r3 : {of}",
        f"%result = stablehlo.add %s0, %s1 : {of}",
    ]
    return _function([f"{count}xf32"] * 2, lines, f"{count}xf32")


def _divisions(count: int) -> str:
    of = f"tensor<{count}xf32>"
    lines = [
        f"%a = stablehlo.divide %0, %1 : {of}",
        f"%b = stablehlo.divide %1, %0 : {of}",
        f"%c = stablehlo.sqrt %1 : {of}",
        f"%d = stablehlo.add %a, %b : {of}",
        f"%result = stablehlo.divide %d, %c : {of}",
    ]
    return _function([f"{count}xf32"] * 2, lines, f"{count}xf32")


#: Operations per iteration of `series`.
SERIES = 16


def series(turns: int) -> str:
    """Return a loop that applies dependent additions and multiplications to a number."""
    lines = [
        "%zero = stablehlo.constant dense<0> : tensor<i32>",
        "%one = stablehlo.constant dense<1> : tensor<i32>",
        f"%n = stablehlo.constant dense<{turns}> : tensor<i32>",
        "%loop:2 = stablehlo.while(%i = %zero, %x = %0) : tensor<i32>, tensor<f32>",
        "cond {",
        "  %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>",
        "  stablehlo.return %c : tensor<i1>",
        "} do {",
        "  %j = stablehlo.add %i, %one : tensor<i32>",
    ]
    before = "%x"
    for number in range(SERIES):
        lines.append(f"  %v{number} = stablehlo.{('add', 'multiply')[number % 2]} {before}, %1 : tensor<f32>")
        before = f"%v{number}"
    lines += [
        f"  stablehlo.return %j, {before} : tensor<i32>, tensor<f32>",
        "}",
        "%result = stablehlo.multiply %loop#1, %1 : tensor<f32>",
    ]
    return _function(["f32", "f32"], lines, "f32")


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


#: Programs by the kind of work that dominates them.
KINDS: dict[str, Sequence[str]] = {
    "elementwise": [_polynomial(8192), _hash(8192)],
    "division": [_divisions(4096)],
    "function": [chain(1, 4096, name) for name in ("exponential", "log", "tanh", "sine")],
    "strided": [transpose(512, 784), transpose(256, 104)],
    "aliased": [transpose(784, 512), transpose(512, 512)],
    "indexed": [_gather(32768)],
    "updated": [_scatter(32768)],
    "sort": [_sort()],
    "fft": [_fft()],
    "solve": [_solve()],
    "random": [_random()],
}
_CUBES = [(1, side, side, side) for side in (16, 32, 64, 128, 256, 512, 1024)]
#: Matrix-vector products are excluded, as they are scheduled as reductions.
_THIN = [
    (1, 128, 512, 10),
    (1, 10, 128, 512),
    (1, 128, 10, 512),
    (1, 512, 128, 784),
    (1, 1024, 128, 16),
    (1, 4096, 64, 64),
    (64, 64, 16, 64),
    (64, 64, 64, 16),
    (256, 16, 16, 16),
]
#: Convolutions: form and sizes.
_CONVOLUTIONS: list[tuple[str, tuple[int, int, int, int, int]]] = [
    ("window", (4, 16, 32, 3, 64)),
    ("window", (64, 16, 32, 3, 64)),
    ("window", (64, 16, 64, 3, 32)),
    ("window", (16, 32, 3, 3, 32)),
    ("window", (16, 14, 128, 2, 64)),
    ("batch", (32, 3, 16, 16, 64)),
    ("batch", (32, 3, 64, 16, 64)),
    ("batch", (3, 3, 64, 32, 32)),
]
#: Programs of one product or convolution each.
PRODUCTS = [
    *(product("f32", form, sizes) for form in ("nn", "nt") for sizes in (*_CUBES, *_THIN)),
    *(product("f64", "nn", sizes) for sizes in (*_CUBES[:-1], *_THIN)),
    *(product("i8", "nn", sizes) for sizes in _CUBES[1:-1]),
    *(_convolution(form, sizes) for form, sizes in _CONVOLUTIONS),
]
