"""Programs of one op, written out as text: run here, and by the reference interpreter."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import spmd
from spmd.types import ELEMENT_TYPES, ElementType, element_type_of


def tensor_type(element: str, shape: Sequence[int]) -> str:
    return "tensor<" + "".join(f"{size}x" for size in shape) + element + ">"


def constant(array: np.ndarray, element: str) -> str:
    """The text of a constant that holds exactly the array's bits."""
    type = tensor_type(element, array.shape)
    if not array.size:
        return f"stablehlo.constant dense<> : {type}"
    if array.dtype == np.bool_:
        words = ", ".join("true" if value else "false" for value in array.ravel())
        return _reshaped(f"[{words}]", element, array)
    return f'stablehlo.constant dense<"0x{np.ascontiguousarray(array).tobytes().hex().upper()}"> : {type}'


def _reshaped(words: str, element: str, array: np.ndarray) -> str:
    nested = np.array(words.strip("[]").split(", "), dtype=object).reshape(array.shape).tolist()
    return f"stablehlo.constant dense<{str(nested).replace(chr(39), '')}> : {tensor_type(element, array.shape)}"


@dataclass(frozen=True)
class Case:
    """An op on constants: its name, operands, the element type and shape of its result, and attributes as text.

    `elements` are the operands' element types where their dtypes do not say them.
    """

    name: str
    operands: Sequence[np.ndarray]
    result: tuple[str, Sequence[int]]
    attributes: str = ""
    elements: Sequence[str] = ()


def program_of(cases: Sequence[Case]) -> str:
    """A program without arguments that applies ops to constants and returns their results.

    Floats come back as the unsigned integers of their bits, complex numbers as two, 2- and 4-bit integers in 8 bits:
    what `decoded` and `decoded_each` undo.
    """
    lines: list[str] = []
    returned: list[tuple[str, str]] = []
    for number, case in enumerate(cases):
        own, results = _lines(case, f"%c{number}_")
        lines += own
        returned += results
    results_type = ", ".join(type for _, type in returned)
    lines.append(f"return {', '.join(value for value, _ in returned)} : {results_type}")
    body = "\n    ".join(lines)
    return f"func.func @main() -> ({results_type}) {{\n    {body}\n}}\n"


def _lines(case: Case, stem: str) -> tuple[list[str], list[tuple[str, str]]]:
    """The lines of a case, whose values' names begin with `stem`; what it returns, each with its type."""
    elements = list(case.elements) or [str(element_type_of(operand.dtype)) for operand in case.operands]
    operands = list(zip(case.operands, elements, strict=True))
    lines = [f"{stem}{k} = {constant(np.asarray(x), e)}" for k, (x, e) in enumerate(operands)]
    types = ", ".join(tensor_type(e, np.shape(x)) for x, e in operands)
    element, shape = case.result
    result_type = tensor_type(element, shape)
    arguments = ", ".join(f"{stem}{k}" for k in range(len(operands)))
    lines.append(f'{stem}r = "{case.name}"({arguments}) {{{case.attributes}}} : ({types}) -> {result_type}')
    type = ELEMENT_TYPES[element]
    values = [(f"{stem}r", element)]
    if type.is_complex:
        part = tensor_type(type.real.name, shape)
        lines += [f"{stem}{way} = stablehlo.{way} {stem}r : ({result_type}) -> {part}" for way in ("real", "imag")]
        values = [(f"{stem}real", type.real.name), (f"{stem}imag", type.real.name)]
    returned = []
    for value, kind in values:
        plain = _plain(ELEMENT_TYPES[kind])
        returned.append((value if plain is None else f"{value}_plain", tensor_type(plain or kind, shape)))
        if plain is not None:
            op = "bitcast_convert" if type.is_float or type.is_complex else "convert"
            lines.append(f"{value}_plain = stablehlo.{op} {value} : ({tensor_type(kind, shape)}) -> {returned[-1][1]}")
    return lines, returned


def one_op(
    name: str, operands: Sequence[np.ndarray], result: tuple[str, Sequence[int]], attributes: str = "",
    elements: Sequence[str] = (),
) -> str:  # fmt: skip
    """The program of a single op; see `program_of`."""
    return program_of([Case(name, operands, result, attributes, elements)])


def _plain(element: ElementType) -> str | None:
    """The integer type whose arrays stand for those of `element` outside; None for the type itself."""
    if element.is_float:
        return f"ui{element.bits}"
    return {"i2": "i8", "i4": "i8", "ui2": "ui8", "ui4": "ui8"}.get(element.name)


def decoded(arrays: Sequence[np.ndarray], element: str) -> np.ndarray:
    """What a program of `one_op` returned, as elements of the op's result type."""
    type = ELEMENT_TYPES[element]
    if type.is_complex:
        real, imaginary = (array.view(type.real.dtype) for array in arrays)
        complex_array = np.empty(real.shape, type.dtype)
        complex_array.real, complex_array.imag = real, imaginary
        return complex_array
    array = arrays[0]
    return array.view(type.dtype) if type.is_float else array.astype(type.dtype)


def decoded_each(arrays: Sequence[np.ndarray], cases: Sequence[Case]) -> list[np.ndarray]:
    """What a program of cases returned: the result of each."""
    left = iter(arrays)
    counts = [2 if ELEMENT_TYPES[case.result[0]].is_complex else 1 for case in cases]
    parts = [[next(left) for _ in range(count)] for count in counts]
    return [decoded(own, case.result[0]) for own, case in zip(parts, cases, strict=True)]


def run_here(text: str) -> list[np.ndarray]:
    return [np.asarray(array) for array in spmd.compile(spmd.parse(text))()]


def apply(name: str, *operands: Any, attributes: str = "", result: str | None = None) -> np.ndarray:
    """The op's result on arrays, here; its element type is the first operand's unless given."""
    arrays = [np.asarray(operand) for operand in operands]
    element = result or str(element_type_of(arrays[0].dtype))
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    return decoded(run_here(one_op(name, arrays, (element, shape), attributes)), element)


def steps_apart(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """How many representable numbers lie between two float arrays of one type; 0 for two NaNs."""
    width = got.dtype.itemsize
    order = [_ordered(array.view(f"i{width}").astype(np.int64), width) for array in (got, want)]
    apart = np.abs(order[0] - order[1])
    nans = [np.isnan(array.astype(np.float64)) for array in (got, want)]
    return np.where(nans[0] & nans[1], 0, np.where(nans[0] | nans[1], np.iinfo(np.int64).max, apart))


def _ordered(bits: np.ndarray, width: int) -> np.ndarray:
    lowest = -(1 << (8 * width - 1))
    return np.where(bits < 0, lowest - bits, bits)


def values_of(element: ElementType, rng: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
    """Random elements: every bit pattern of an integer, all magnitudes and the special values of a float."""
    shape = tuple(shape)
    if element.is_boolean:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if element.is_complex:
        array = np.empty(shape, element.dtype)
        array.real, array.imag = values_of(element.real, rng, shape), values_of(element.real, rng, shape)
        return array
    if element.is_integer:
        raw = rng.integers(0, 2**64, shape, np.uint64, endpoint=False)
        return np.asarray(raw.astype(np.uint8 if element.bits < 8 else f"u{element.dtype.itemsize}")).view(
            "i1" if element.bits < 8 else f"{'i' if element.is_signed else 'u'}{element.dtype.itemsize}"
        ).astype(element.dtype)  # fmt: skip
    numbers = rng.normal(size=shape) * np.exp(rng.uniform(-3, 3, shape))
    special = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -2.5], size=shape)
    with np.errstate(all="ignore"):
        return np.asarray(np.where(rng.random(shape) < 0.3, special, numbers)).astype(element.dtype)
