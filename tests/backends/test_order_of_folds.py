"""What reducers keep does not depend on the order in which lanes, blocks and threads meet elements.

Several NaNs, equal elements and zeros of both signs stand at all pairs of positions; each result has the bits of a fold
in order, one element after another, by both back ends and any number of threads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

import spmd
from spmd.analysis.reducers import identity
from spmd.compiler.schedule import rates, tasks
from spmd.runtime.executable import Executable
from spmd.support.arrays import Array
from spmd.types import ELEMENT_TYPES

LOWEST = "0xFF800000"
HIGHEST = "0x7F800000"


@dataclass(frozen=True)
class Reducer:
    """A reducer of x (f32), or of pairs of x and its index: the region, and the same on arrays, a step of the fold.

    `is_better` gives where the second of two values replaces the first, `index` which index then stands with it.
    """

    initial: str
    region: str
    step: Callable[..., tuple[Array, ...]]
    is_complex: bool = False

    @property
    def has_index(self) -> bool:
        return "%q" in self.region


def _pairs(kind: str, strict: bool, nan: bool, tie: str, total: bool = False) -> Reducer:
    """A reducer of pairs as frontends write it: by comparisons, and a choice of the index among equal values."""
    way = ("GT" if strict else "GE") if kind == "maximum" else ("LT" if strict else "LE")
    of = ", TOTALORDER" if total else ""
    first, second = ("%a", "%b"), ("%p", "%q")
    lines = [f"%beats = stablehlo.compare {way}, %a, %b{of} : (F, F) -> T"]
    if nan:
        lines += ["%nan = stablehlo.compare NE, %a, %a : (F, F) -> T", "%take = stablehlo.or %beats, %nan : T"]
    else:
        lines += ["%take = stablehlo.or %beats, %beats : T"]
    lines += [f"%value = stablehlo.select %take, {first[0]}, {first[1]} : T, F"]
    if tie == "low":
        lines += [
            f"%equal = stablehlo.compare EQ, %a, %b{of} : (F, F) -> T",
            "%below = stablehlo.compare LT, %p, %q : (I, I) -> T",
            "%tied = stablehlo.and %equal, %below : T",
            "%keep = stablehlo.or %take, %tied : T",
        ]
    else:
        lines += ["%keep = stablehlo.or %take, %take : T"]
    lines += [f"%index = stablehlo.select %keep, {second[0]}, {second[1]} : T, I"]
    region = "^bb0(%a: F, %p: I, %b: F, %q: I):\n" + "\n".join(lines) + "\nstablehlo.return %value, %index : F, I"

    def key(x: Array) -> Array:
        bits = x.view(np.int32)
        return bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))

    def step(a: Array, p: Array, b: Array, q: Array) -> tuple[Array, ...]:
        x, y = (key(a), key(b)) if total else (a, b)
        beats = {"GT": x > y, "GE": x >= y, "LT": x < y, "LE": x <= y}[way]
        take = beats | (a != a) if nan else beats
        keep = take | ((x == y) & (p < q)) if tie == "low" else take
        return np.where(take, a, b), np.where(keep, p, q)

    return Reducer(LOWEST if kind == "maximum" else HIGHEST, region, step)


def _monoid(kind: str, *, is_complex: bool = False) -> Reducer:
    def real(a: Array, b: Array) -> tuple[Array]:
        larger = (a > b) | ((a == b) & (np.signbit(b) if kind == "maximum" else np.signbit(a)))
        if kind == "minimum":
            larger = (a < b) | ((a == b) & np.signbit(a))
        return (np.where(larger | np.isnan(a), a, b),)

    def of_parts(a: Array, b: Array) -> tuple[Array]:
        return (np.maximum(a, b) if kind == "maximum" else np.minimum(a, b),)

    worst = LOWEST if kind == "maximum" else HIGHEST
    element, initial = ("C", f"({worst}, {worst})") if is_complex else ("F", worst)
    region = f"^bb0(%a: {element}, %b: {element}):\n%r = stablehlo.{kind} %a, %b : {element}\n"
    return Reducer(initial, region + f"stablehlo.return %r : {element}", of_parts if is_complex else real, is_complex)


#: Reducers whose result is that of a fold in order whatever is equal; see `FIRST` about others.
REDUCERS = {
    **{kind: _monoid(kind) for kind in ("maximum", "minimum")},
    **{f"complex {kind}": _monoid(kind, is_complex=True) for kind in ("maximum", "minimum")},
    "argmax, a value of the same pair": _pairs("maximum", strict=False, nan=True, tie="first"),
    "argmax, last": _pairs("maximum", strict=True, nan=True, tie="last"),
    "argmin, NaN as it comes": _pairs("minimum", strict=True, nan=False, tie="low"),
    "argmax, total order": _pairs("maximum", strict=True, nan=False, tie="low", total=True),
    "argmin, total order": _pairs("minimum", strict=False, nan=False, tie="low", total=True),
    "argmax, odd indices": _pairs("maximum", strict=True, nan=True, tie="low"),
}
#: What JAX writes. Of zeros of two signs it keeps the last, with the index of the first; we keep both of the first.
FIRST = {
    "argmax": _pairs("maximum", strict=True, nan=True, tie="low"),
    "argmin": _pairs("minimum", strict=True, nan=True, tie="low"),
}


def text_of(shape: tuple[int, ...], axis: int) -> str:
    kept = [size for dimension, size in enumerate(shape) if dimension != axis]

    def type_of(sizes: Sequence[int], element: str) -> str:
        return f"tensor<{''.join(f'{size}x' for size in sizes)}{element}>"

    lines, results, types = [], [], []
    for number, (name, reducer) in enumerate({**REDUCERS, **FIRST}.items()):
        element = "complex<f32>" if reducer.is_complex else "f32"
        operands, initials, elements = ["%z" if reducer.is_complex else "%x"], [f"%v{number}"], [element]
        lines.append(f"%v{number} = stablehlo.constant dense<{reducer.initial}> : tensor<{element}>")
        if reducer.has_index:
            operands.append("%odd" if "odd" in name else "%count")
            initials.append("%none")
            elements.append("i32")
        inputs = [type_of(shape, each) for each in elements] + [f"tensor<{each}>" for each in elements]
        outputs = [type_of(kept, each) for each in elements]
        call = f'"stablehlo.reduce"({", ".join(operands + initials)}) ({{\n{reducer.region}\n}})'
        types_of_call = f"({', '.join(inputs)}) -> ({', '.join(outputs)})"
        axes = f"{{dimensions = array<i64: {axis}>}}"
        lines.append(f"%r{number}:{len(elements)} = {call} {axes} : {types_of_call}")
        results += [f"%r{number}#{each}" for each in range(len(elements))]
        types += outputs
    full, places = type_of(shape, "f32"), type_of(shape, "i32")
    body = "\n".join(lines)
    for short, long in (("F", "f32"), ("C", "complex<f32>"), ("I", "i32"), ("T", "i1")):
        body = re.sub(rf"\b{short}\b", f"tensor<{long}>", body)
    arguments = f"%x: {full}, %z: {type_of(shape, 'complex<f32>')}, %odd: {places}"
    return f"""func.func @main({arguments}) -> ({", ".join(types)}) {{
      %none = stablehlo.constant dense<0> : tensor<i32>
      %count = stablehlo.iota dim = {axis} : {places}
      {body}
      return {", ".join(results)} : {", ".join(types)}
    }}"""


@cache
def compiled(shape: tuple[int, ...], axis: int, threads: int) -> Executable:
    module = spmd.parse(text_of(shape, axis))
    return spmd.compile(module, backends=("llvm",) if threads else ("numpy",), threads=threads or 1)


def folded(reducer: Reducer, operands: Sequence[Array], axis: int) -> list[Array]:
    """One element after another."""
    rows = [np.moveaxis(operand, axis, 0) for operand in operands]
    worst = -np.inf if reducer.initial.strip("(").startswith(LOWEST) else np.inf
    starts = [complex(worst, worst) if reducer.is_complex else worst, 0]
    state = tuple(np.full(row.shape[1:], start, row.dtype) for row, start in zip(rows, starts, strict=False))
    with np.errstate(invalid="ignore"):
        for position in range(len(rows[0])):
            state = reducer.step(*state, *(row[position] for row in rows))
    return [np.asarray(part) for part in state]


def first(reducer: Reducer, operands: Sequence[Array], axis: int) -> list[Array]:
    """The index by the fold in order, and the element that stands there."""
    _, index = folded(reducer, operands, axis)
    return [np.take_along_axis(operands[0], np.expand_dims(index, axis), axis).squeeze(axis), index]


def same(left: Array, right: Array) -> bool:
    """Whether the bits are equal; all NaNs are alike."""
    if left.dtype.kind == "c":
        return same(left.real.copy(), right.real.copy()) and same(left.imag.copy(), right.imag.copy())
    bits = np.dtype(f"i{left.dtype.itemsize}")
    return bool(np.all((left.view(bits) == right.view(bits)) | ((left != left) & (right != right))))


SPECIAL = [(np.nan, np.nan), (0.0, -0.0), (-0.0, 0.0), (7.0, 7.0), (-7.0, -7.0), (np.nan, 7.0), (7.0, np.nan),
           (np.inf, np.nan), (-0.0, np.nan), (-np.inf, -np.inf)]  # fmt: skip


def rows(length: int, pairs: Sequence[tuple[int, int]], background: float) -> Array:
    """A row for each pair of positions and of special values; elsewhere something that is worse, or not."""
    table = np.full((len(pairs) * len(SPECIAL), length), background, np.float32)
    for number, (left, right) in enumerate(pairs):
        for which, values in enumerate(SPECIAL):
            table[number * len(SPECIAL) + which, [left, right]] = values
    return table


def complex_rows(table: Array) -> Array:
    """Numbers with the elements as one of the parts, the other being equal, or all of them as both."""
    numbers = np.empty(table.shape, np.complex64)
    numbers.real, numbers.imag = table, np.where(np.arange(len(table))[:, None] % 3 == 0, table, np.float32(1))
    numbers[1::3].real, numbers[1::3].imag = 1, table[1::3]
    return numbers


def operands_of(table: Array) -> dict[str, Array]:
    """What programs take, and the indices that they count, for a table whose rows are reduced."""
    odd = np.random.default_rng(1).permutation(table.shape[-1]).astype(np.int32)
    count = np.arange(table.shape[-1], dtype=np.int32)
    return {
        "x": table,
        "z": complex_rows(table),
        "odd": np.array(np.broadcast_to(odd, table.shape)),
        "count": np.broadcast_to(count, table.shape),
    }


def expected(operands: dict[str, Array]) -> Iterator[tuple[str, list[Array]]]:
    """For each reducer, what it gives for each row."""
    for name, reducer in {**REDUCERS, **FIRST}.items():
        inputs = [operands["z" if reducer.is_complex else "x"]]
        inputs += [operands["odd" if "odd" in name else "count"]] if reducer.has_index else []
        yield name, (first if name in FIRST else folded)(reducer, inputs, 1)


def check(results: Sequence[list[Array]], operands: dict[str, Array]) -> None:
    """Compares the results, one for each row, of several executables; the first is that of NumPy's back end."""
    for name, values in expected(operands):
        for number, own in enumerate(results):
            for part, value in enumerate(values):
                got = own.pop(0)
                if number == 0 and "NaN as it comes" in name:
                    continue  # a fold that is not associative: NumPy's back end folds halves
                wrong = np.flatnonzero(got != value)
                assert same(got, value), (name, ("value", "index")[part], number, wrong)


@pytest.fixture(autouse=True)
def all_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_LEAST_UNIT", "_LEAST_TASK", "_LEAST_POINTS"):
        monkeypatch.setattr(tasks, name, 1)
    monkeypatch.setitem(rates.RATES, "operations", 1)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("background", [-1.0, 1.0])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("length", [5, 17, 40])
def test_all_pairs_of_positions(length: int, axis: int, background: float) -> None:
    every = [(left, right) for right in range(length) for left in range(right)]
    step = max(1, len(every) // 140)
    table = rows(length, every[::step], background)
    operands = operands_of(table)
    given = [operands[name] if axis else np.ascontiguousarray(operands[name].T) for name in ("x", "z", "odd")]
    check([list(compiled(given[0].shape, axis, threads)(*given)) for threads in (0, 1, 3)], operands)


@pytest.mark.parametrize("length", [17, 130, 5000])
def test_whole_arrays(length: int) -> None:
    rng = np.random.default_rng(length)
    pairs = [tuple(sorted(rng.choice(length, 2, replace=False).tolist())) for _ in range(8)]
    for background in (-1.0, 1.0):
        operands = operands_of(rows(length, pairs, background))
        results = []
        for threads in (0, 1, 2, 3):
            executable = compiled((length,), 0, threads)
            each = [executable(*row) for row in zip(operands["x"], operands["z"], operands["odd"], strict=True)]
            results.append([np.array(column) for column in zip(*each, strict=True)])
        check(results, operands)


@pytest.mark.parametrize("element", ["f64", "f16", "bf16", "f8E5M2", "f8E4M3FN"])
def test_argmax_of_all_floats_finds_the_first_nan(element: str) -> None:
    """In one dimension, along rows, and down columns."""
    dtype, region = ELEMENT_TYPES[element].dtype, FIRST["argmax"].region
    worst = int.from_bytes(identity("maximum", ELEMENT_TYPES[element]).tobytes(), "little")
    for short, long in (("F", element), ("I", "i32"), ("T", "i1")):
        region = re.sub(rf"\b{short}\b", f"tensor<{long}>", region)
    pairs = [(left, right) for right in range(40) for left in range(right)][::11]
    table = np.zeros((len(pairs), 40), dtype)
    for row, pair in zip(table, pairs, strict=True):
        row[list(pair)] = np.nan
    for axis, array in ((1, table), (0, np.ascontiguousarray(table.T)), (0, table[5])):
        kept = [size for dimension, size in enumerate(array.shape) if dimension != axis]
        full, result = ("x".join([*map(str, shape), ""]) for shape in (array.shape, kept))
        module = spmd.parse(f"""func.func @main(%x: tensor<{full}{element}>) -> tensor<{result}i32> {{
          %v = stablehlo.constant dense<{hex(worst)}> : tensor<{element}>
          %n = stablehlo.constant dense<0> : tensor<i32>
          %i = stablehlo.iota dim = {axis} : tensor<{full}i32>
          %r:2 = "stablehlo.reduce"(%x, %i, %v, %n) ({{ {region} }}) {{dimensions = array<i64: {axis}>}}
            : (tensor<{full}{element}>, tensor<{full}i32>, tensor<{element}>, tensor<i32>)
            -> (tensor<{result}{element}>, tensor<{result}i32>)
          return %r#1 : tensor<{result}i32>
        }}""")
        for threads in (1, 3):
            (got,) = spmd.compile(module, threads=threads)(array)
            np.testing.assert_array_equal(got, np.argmax(array.astype(np.float64), axis))
