"""Some 300 programs of all ops and types, and digests of what they give: the same on every processor.

`python -m tests.backends.bit_programs` prints the digests as JSON, on whatever it runs: a processor that is emulated,
say. Values are made of whole numbers alone, by what is exact everywhere.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import spmd
from spmd.backends.numpy import chlo, elementwise
from spmd.types import ELEMENT_TYPES, ElementType
from tests.backends.programs import tensor_type

#: No multiple of any vector's lanes.
SIZE = 1037
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 1.0, -1.0, 2.0, 3.0, 1e-3, 700.0, -88.5]
UNARY_TYPES = ("f32", "f64", "f16", "bf16", "complex<f32>", "i8", "i32", "ui64")
BINARY_TYPES = ("f32", "f64", "f16", "f8E4M3FN", "complex<f64>", "i1", "i16", "ui32", "i64")
#: By many functions in turn, which take long to compile; and those of no use without another op.
APART = ("chlo.polygamma", "chlo.zeta", "chlo.bessel_i1e")


class BitProgram(NamedTuple):
    """A program and its arguments. `ordered`: it sums, and gives the same bits everywhere if it is asked to."""

    name: str
    text: str
    arguments: tuple[np.ndarray, ...]
    ordered: bool = False


def numbers(element: ElementType, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Numbers near one, some special values and some of any bits."""
    rng = np.random.Generator(np.random.PCG64(seed))
    count = int(np.prod(shape))
    if element.is_complex:
        array = np.empty(shape, element.dtype)
        array.real, array.imag = (numbers(element.real, shape, seed + more) for more in (1, 2))
        return array
    if not element.is_float:
        info = (0, 1) if element.is_boolean else (np.iinfo(element.dtype).min, np.iinfo(element.dtype).max)
        return rng.integers(*info, count, np.int64 if info[1] < 2**63 else np.uint64, endpoint=True).astype(
            element.dtype
        ).reshape(shape)  # fmt: skip
    near = (rng.integers(-(2**20), 2**20, count) / 2.0**17).astype(np.float32)
    anything = rng.integers(0, 2**element.bits - 1, count, np.uint64, endpoint=True).astype(f"u{element.bits // 8}")
    kind = rng.integers(0, 10, count)
    special = np.asarray(SPECIAL)[rng.integers(0, len(SPECIAL), count)]
    with np.errstate(all="ignore"):
        array = near.astype(element.dtype)
        array = np.where(kind == 0, special.astype(element.dtype), array)
        return np.where(kind == 1, anything.view(element.dtype), array).astype(element.dtype).reshape(shape)


def tame(element: ElementType, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """What can be summed: fractions of some digits, or whole numbers."""
    rng = np.random.Generator(np.random.PCG64(seed))
    whole = rng.integers(-(2**20), 2**20, int(np.prod(shape))).reshape(shape)
    if not element.is_float:
        return whole.astype(element.dtype)
    return (whole / 2.0**19 * 1.2345678).astype(element.dtype)


def digest(results: tuple[np.ndarray, ...]) -> str:
    """Of the bits of all results, of which no NaN has a sign or a payload: neither is specified."""
    found = hashlib.sha256()
    for result in results:
        array = np.ascontiguousarray(result)
        parts = [array.real, array.imag] if array.dtype.kind == "c" else [array]
        for part in parts:
            plain = np.ascontiguousarray(part)
            if plain.dtype.kind not in "biu":
                with np.errstate(all="ignore"):
                    plain = np.where(np.isnan(plain.astype(np.float64)), plain.dtype.type(np.nan), plain)
                    plain = np.where(np.isnan(plain.astype(np.float64)), 1, plain.view(f"u{plain.itemsize}"))
            found.update(str(array.dtype).encode() + np.ascontiguousarray(plain).tobytes())
    return found.hexdigest()[:16]


def run(program: BitProgram, **options: Any) -> str:
    """The digest of what `program` gives, compiled with `options`."""
    module = spmd.parse(program.text, name=f"{program.name}.mlir")
    return digest(spmd.compile(module, reproducible=program.ordered, **options)(*program.arguments))


def programs() -> Iterator[BitProgram]:
    yield from _elementwise()
    yield from _conversions()
    yield from _reductions()
    yield from _products()
    yield from _others()


def _function(name: str, body: str, types: list[str], result: str, arguments: list[np.ndarray], **kind: bool) -> Any:
    listed = ", ".join(f"%a{k}: {type}" for k, type in enumerate(types))
    text = f"func.func @main({listed}) -> {result} {{\n  {body}\n  return %r : {result}\n}}\n"
    return BitProgram(name, text, tuple(arguments), **kind)


def _elementwise() -> Iterator[BitProgram]:
    for table, arity, names in (
        ({**elementwise.UNARY, **chlo.UNARY}, 1, UNARY_TYPES),
        ({**elementwise.BINARY, **chlo.BINARY}, 2, BINARY_TYPES),
    ):
        for op, kernels in table.items():
            for name in names:
                element = ELEMENT_TYPES[name]
                if op in APART or kernels.call(element, arity) is None:
                    continue
                real = element.is_complex and op in ("stablehlo.abs", "stablehlo.real", "stablehlo.imag")
                result = element.real.name if real else "i1" if op.startswith("chlo.is_") else name
                if op in ("stablehlo.is_finite",):
                    result = "i1"
                type, out = tensor_type(name, (SIZE,)), tensor_type(result, (SIZE,))
                operands = ", ".join(f"%a{k}" for k in range(arity))
                body = f'%r = "{op}"({operands}) : ({", ".join([type] * arity)}) -> {out}'
                arrays = [numbers(element, (SIZE,), 10 * k) for k in range(arity)]
                yield _function(f"{op} {name}", body, [type] * arity, out, arrays)


def _conversions() -> Iterator[BitProgram]:
    names = ("f32", "f64", "f16", "bf16", "f8E5M2", "f8E4M3FN", "i8", "ui32", "i64")
    for source in ("f32", "f64", "f16", "i32", "ui64"):
        for target in names:
            if source != target:
                types = [tensor_type(each, (SIZE,)) for each in (source, target)]
                body = f"%r = stablehlo.convert %a0 : ({types[0]}) -> {types[1]}"
                array = numbers(ELEMENT_TYPES[source], (SIZE,), 7)
                yield _function(f"convert {source} {target}", body, types[:1], types[1], [array])


def _reductions() -> Iterator[BitProgram]:
    shapes: tuple[tuple[tuple[int, ...], int], ...] = (((SIZE,), 0), ((13, 331), 1), ((331, 13), 0), ((7, 67, 5), 1))
    for name in ("f32", "f64", "bf16", "i32"):
        element = ELEMENT_TYPES[name]
        for op, start in (("add", "0"), ("multiply", "1"), ("maximum", "0")):
            for shape, axis in shapes:
                out = tensor_type(name, shape[:axis] + shape[axis + 1 :])
                type, scalar = tensor_type(name, shape), tensor_type(name, ())
                first = f"dense<{start}{'.0' if element.is_float else ''}> : {scalar}"
                body = (
                    f"%z = stablehlo.constant {first}\n  %r = stablehlo.reduce(%a0 init: %z) applies stablehlo.{op} "
                    f"across dimensions = [{axis}] : ({type}, {scalar}) -> {out}"
                )
                array = tame(element, shape, 3) + (op == "multiply")
                yield _function(f"reduce {op} {name} {shape}", body, [type], out, [array.astype(element.dtype)],
                                ordered=True)  # fmt: skip


def _products() -> Iterator[BitProgram]:
    sizes = ((1, 700, 1), (3, 5, 7), (33, 129, 65), (130, 257, 131), (300, 310, 290))
    for name in ("f32", "f64", "f16", "complex<f32>", "i32"):
        element = ELEMENT_TYPES[name]
        make: Callable[..., np.ndarray] = tame
        for rows, depth, columns in sizes[: 5 if name in ("f32", "f64") else 3]:
            for turned in (False, True):
                shapes = (rows, depth), ((columns, depth) if turned else (depth, columns))
                types = [tensor_type(name, shape) for shape in shapes]
                out = tensor_type(name, (rows, columns))
                body = (
                    f"%r = stablehlo.dot_general %a0, %a1, contracting_dims = [1] x [{int(turned)}] : "
                    f"({types[0]}, {types[1]}) -> {out}"
                )
                plain = element.real if element.is_complex else element
                arrays = [make(plain, shape, 5 + k).astype(element.dtype) for k, shape in enumerate(shapes)]
                yield _function(f"dot {name} {shapes}", body, types, out, arrays, ordered=True)
    for size in (3, 9):
        x, k = "tensor<2x17x19x5xf32>", f"tensor<{size}x{size}x5x7xf32>"
        out = f"tensor<2x{18 - size}x{20 - size}x7xf32>"
        numbers = "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"
        body = (
            f"%r = stablehlo.convolution(%a0, %a1) dim_numbers = {numbers}, window = {{}} "
            f"{{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({x}, {k}) -> {out}"
        )
        f32 = ELEMENT_TYPES["f32"]
        arrays = [tame(f32, (2, 17, 19, 5), 1), tame(f32, (size, size, 5, 7), 2)]
        yield _function(f"convolution {size}", body, [x, k], out, arrays, ordered=True)


def _others() -> Iterator[BitProgram]:
    f32 = ELEMENT_TYPES["f32"]
    for length in (8, 30, 97, 256):
        real, out = f"tensor<5x{length}xcomplex<f32>>", f"tensor<5x{length}xcomplex<f32>>"
        body = f"%r = stablehlo.fft %a0, type = FFT, length = [{length}] : ({real}) -> {out}"
        array = tame(f32, (5, length), 1).astype(np.complex64)
        yield _function(f"fft {length}", body, [real], out, [array], ordered=True)
    vector = f"tensor<{SIZE}xf32>"
    body = (
        '%r = "stablehlo.sort"(%a0) <{dimension = 0 : i64, is_stable = true}> ({\n'
        + (
            "  ^bb0(%x: tensor<f32>, %y: tensor<f32>):\n    %c = stablehlo.compare LT, %x, %y, TOTALORDER : "
            "(tensor<f32>, tensor<f32>) -> tensor<i1>\n    stablehlo.return %c : tensor<i1>\n  }) : "
        )
        + f"({vector}) -> {vector}"
    )
    yield _function("sort", body, [vector], vector, [tame(f32, (SIZE,), 4)])
    for algorithm in ("THREE_FRY", "PHILOX"):
        state = f"tensor<{2 if algorithm == 'THREE_FRY' else 3}xui64>"
        body = (
            f"%s, %r = stablehlo.rng_bit_generator %a0, algorithm = {algorithm} : ({state}) -> "
            f"({state}, tensor<{SIZE}xui32>)"
        )
        seed = np.arange(2 if algorithm == "THREE_FRY" else 3, dtype=np.uint64)
        yield _function(f"random {algorithm}", body, [state], f"tensor<{SIZE}xui32>", [seed])
    table, places, out = "tensor<50x3xf32>", f"tensor<{SIZE}x1xi32>", f"tensor<{SIZE}x3xf32>"
    body = (
        '%r = "stablehlo.gather"(%a0, %a1) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], '
        "collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 3>}> : "
        f"({table}, {places}) -> {out}"
    )
    where = np.arange(SIZE, dtype=np.int32).reshape(-1, 1) * 7 % 50
    yield _function("gather", body, [table, places], out, [tame(f32, (50, 3), 1), where])
    body = (
        '%r = "stablehlo.scatter"(%a0, %a1, %a2) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims '
        "= [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({\n  "
        "^bb0(%x: tensor<f32>, %y: tensor<f32>):\n    %s = stablehlo.add %x, %y : tensor<f32>\n"
        f"    stablehlo.return %s : tensor<f32>\n  }}) : ({table}, {places}, {out}) -> {table}"
    )
    arrays = [tame(f32, (50, 3), 1), where, tame(f32, (SIZE, 3), 9)]
    yield _function("scatter", body, [table, places, out], table, arrays, ordered=True)
    bytes_, sums = "tensor<{}x{}xi8>", "tensor<37x41xi32>"
    types = [bytes_.format(37, 130), bytes_.format(130, 41)]
    body = f"%r = stablehlo.dot_general %a0, %a1, contracting_dims = [1] x [0] : ({', '.join(types)}) -> {sums}"
    i8 = ELEMENT_TYPES["i8"]
    yield _function("dot of bytes", body, types, sums, [numbers(i8, (37, 130), 1), numbers(i8, (130, 41), 2)])


def main() -> None:
    processor = sys.argv[1] if len(sys.argv) > 1 else None
    json.dump({program.name: run(program, processor=processor) for program in programs()}, sys.stdout, indent=0)


if __name__ == "__main__":
    main()
