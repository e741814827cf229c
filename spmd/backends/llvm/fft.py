"""Fourier transforms along the last dimension, in native code, of lengths whose prime factors are 2, 3 and 5.

Stockham's algorithm: each stage takes a factor out of the length and leaves its results in their order, so that every
stage reads neighbours, and from the second or third on writes them. Real and imaginary parts lie apart. An inverse
transform is the one of parts that have changed places; a real one, of even length, that of pairs as complex numbers,
whose halves are told apart afterwards (Van Loan, "Computational Frameworks for the Fast Fourier Transform", 1.4, 4.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from spmd.arrays import Array
from spmd.backends.llvm.buffers import Frame
from spmd.backends.llvm.butterflies import BUTTERFLIES, NativeArithmetic, Parts
from spmd.backends.llvm.forms import native
from spmd.backends.llvm.function import FunctionWriter
from spmd.backends.llvm.parts import PartFunction, call_in_parts, parts_of_time
from spmd.backends.llvm.text import FunctionText
from spmd.compiler.schedule.forms import is_plain
from spmd.ir import Op
from spmd.types import COMPLEX64, COMPLEX128

_LONGEST = 1 << 16
_LANES = 16
#: Bytes of memory that a part has on its stack.
_OWN = 1 << 18
#: Elements and stages of a nanosecond, roughly.
_SPEED = 2


@dataclass(frozen=True)
class FftStage:
    """One factor of the length: `radix` parts, `apart` elements between neighbours of what is transformed already."""

    radix: int
    apart: int
    length: int

    @property
    def groups(self) -> int:
        """How many different rotations there are."""
        return self.length // (self.radix * self.apart)

    @property
    def lanes(self) -> int:
        """Elements that are taken at once."""
        whole = self.length // self.radix if self.radix in (2, 4) else self.apart
        return min(_LANES, whole & -whole)

    @property
    def is_interleaved(self) -> bool:
        """Whether the lanes of one vector belong to different groups."""
        return self.lanes > self.apart

    def rotations(self) -> Array:
        """By part from the second on, and group, or element where lanes differ: what results are multiplied by."""
        turns = np.arange(1, self.radix)[:, None] * np.arange(self.groups) / (self.radix * self.groups)
        factors: Array = np.exp(-2j * np.pi * turns)
        return factors.repeat(self.apart, 1) if self.is_interleaved else factors


def stages_of(length: int) -> list[FftStage] | None:
    """The stages of a transform, the factors of 2 first; None of a length that has other factors."""
    stages: list[FftStage] = []
    rest = length
    for radix in (4, 2, 3, 5):
        while rest % radix == 0:
            stages.append(FftStage(radix, length // rest, length))
            rest //= radix
    return stages if rest == 1 else None


@dataclass(frozen=True)
class _Transform:
    """`rows` transforms of `length` complex numbers, which are pairs of real ones at one end where that `is_real`."""

    kind: str
    rows: int
    length: int
    bits: int

    @property
    def is_real(self) -> bool:
        return self.kind in ("RFFT", "IRFFT")

    @property
    def is_inverse(self) -> bool:
        return self.kind in ("IFFT", "IRFFT")

    @property
    def plane(self) -> int:
        """Numbers of the memory of real or imaginary parts: one more than there are, in whole cache lines."""
        return -(-(self.length + 1) // 16) * 16

    @property
    def memory(self) -> int:
        """Bytes that a transform needs: two planes to read, two to write."""
        return 4 * self.plane * self.bits // 8


def transform_of(op: Op) -> _Transform | None:
    """What `op`, an fft, is in native code; None where it has no such form."""
    operand, result = op.operands[0].tensor, op.result.tensor
    if not is_plain(operand) or not is_plain(result) or len(op["fft_length"]) != 1:
        return None
    (length,), kind = op["fft_length"], op["fft_type"]
    element = operand.element_type if kind != "RFFT" else result.element_type
    rows = prod(operand.static_shape[:-1])
    if element not in (COMPLEX64, COMPLEX128) or not rows or not 1 < length <= _LONGEST:
        return None
    if kind in ("RFFT", "IRFFT"):
        if length % 2 or length < 4:
            return None
        length //= 2
    return None if stages_of(length) is None else _Transform(kind, rows, length, 32 if element is COMPLEX64 else 64)


@native("stablehlo.fft", lambda op: transform_of(op) is not None)
def _(writer: FunctionWriter, op: Op, frame: Frame) -> None:
    transform = transform_of(op)
    assert transform is not None
    source, target = writer.pointer(op.operands[0]), writer.allocate(frame, op.result).pointer
    stages = stages_of(transform.length)
    assert stages is not None
    dtype = np.dtype(f"f{transform.bits // 8}")
    tables = [writer.constant(_parts(stage.rotations(), dtype)) if stage.groups > 1 else "" for stage in stages]
    if transform.is_real:
        half = np.exp(-1j * np.pi * np.arange(transform.length) / transform.length)
        tables.append(writer.constant(_parts(half, dtype)))
    time = transform.rows * transform.length * len(stages) // _SPEED
    parts = min(transform.rows, parts_of_time(time, writer.threads))
    if parts == 1 or transform.memory > _OWN:
        memory = writer.scratch(frame, transform.memory).pointer
        row, _ = writer.text.open_loop()
        _TransformWriter(writer.text, transform, stages, tables, memory).write(row, source, target)
        writer.text.close_loop(transform.rows)
        return

    def write(part: PartFunction) -> None:
        text, rows = part.text, transform.rows
        ends = (text.value(f"mul i64 %part, {rows}"), text.value(f"mul i64 {text.value('add i64 %part, 1')}, {rows}"))
        first, stop = (text.value(f"udiv i64 {end}, {parts}") for end in ends)
        own = text.allocate(f"[{transform.memory} x i8]")
        inner = [part.pointer(table) if table else "" for table in tables]
        ends_of_rows = part.pointer(source), part.pointer(target)
        row, _ = text.open_loop()
        _TransformWriter(text, transform, stages, inner, own).write(row, *ends_of_rows)
        text.close_loop(stop, 1, first)

    call_in_parts(writer, parts, write)


def _parts(numbers: Array, dtype: np.dtype[np.generic]) -> Array:
    """Real parts, then imaginary ones."""
    return np.stack([numbers.real, numbers.imag]).astype(dtype)


class _TransformWriter:
    """Writes one transform. `memory` is room for four planes; `tables` the rotations of the stages, and of halves."""

    def __init__(
        self, text: FunctionText, transform: _Transform, stages: Sequence[FftStage], tables: Sequence[str], memory: str
    ) -> None:
        self.text, self.transform, self.stages, self.tables = text, transform, stages, tables
        self.type = "float" if transform.bits == 32 else "double"
        step = transform.plane * transform.bits // 8
        planes = [text.value(f"getelementptr i8, ptr {memory}, i64 {number * step}") for number in range(4)]
        self.planes: tuple[Parts, Parts] = ((planes[0], planes[1]), (planes[2], planes[3]))

    def write(self, row: str, source: str, target: str) -> None:
        length, kind = self.transform.length, self.transform.kind
        whole = 2 * length  # numbers of a row: pairs of parts, or real ones
        halves = whole + 2
        read = self._at(source, self.text.value(f"mul i64 {row}, {halves if kind == 'IRFFT' else whole}"))
        write = self._at(target, self.text.value(f"mul i64 {row}, {halves if kind == 'RFFT' else whole}"))
        here, there = self.planes
        self._take_apart(read, here)
        if kind == "IRFFT":
            self._join_halves(read, here, there)
            here, there = there, here
        if self.transform.is_inverse:
            here, there = here[::-1], there[::-1]
        for stage, table in zip(self.stages, self.tables, strict=False):
            self._stage(stage, table, here, there)
            here, there = there, here
        if self.transform.is_inverse:
            here = here[::-1]
        if kind == "RFFT":
            self._split_halves(here, write)
        else:
            self._put_together(here, write)

    # --- memory ---

    def _at(self, pointer: str, place: str | int, type: str | None = None) -> str:
        return self.text.value(f"getelementptr {type or self.type}, ptr {pointer}, i64 {place}")

    def _vector(self, lanes: int) -> str:
        return self.type if lanes == 1 else f"<{lanes} x {self.type}>"

    def _load(self, pointer: str, place: str | int, lanes: int) -> str:
        address = self._at(pointer, place)
        return self.text.value(f"load {self._vector(lanes)}, ptr {address}, align {self.transform.bits // 8}")

    def _store(self, value: str, pointer: str, place: str | int, lanes: int) -> None:
        address = self._at(pointer, place)
        self.text.line(f"store {self._vector(lanes)} {value}, ptr {address}, align {self.transform.bits // 8}")

    def _shuffled(self, first: str, second: str, lanes: int, places: Sequence[int]) -> str:
        vector, order = self._vector(lanes), ", ".join(f"i32 {place}" for place in places)
        return self.text.value(f"shufflevector {vector} {first}, {vector} {second}, <{len(places)} x i32> <{order}>")

    def _sum(self, *terms: str | int) -> str:
        total = str(terms[0])
        for term in terms[1:]:
            total = self.text.value(f"add i64 {total}, {term}")
        return total

    def _product(self, place: str, factor: int) -> str:
        return self.text.value(f"mul i64 {place}, {factor}")

    def _all_lanes(self, lanes: int) -> int:
        return min(lanes, self.transform.length & -self.transform.length)

    # --- between pairs of numbers and planes ---

    def _take_apart(self, pointer: str, planes: Parts) -> None:
        lanes = self._all_lanes(_LANES)
        start, _ = self.text.open_loop()
        place = self._product(start, 2)
        if lanes == 1:
            for part, plane in enumerate(planes):
                self._store(self._load(pointer, self._sum(place, part), 1), plane, start, 1)
        else:
            first, second = (self._load(pointer, self._sum(place, half), lanes) for half in (0, lanes))
            for part, plane in enumerate(planes):
                self._store(self._shuffled(first, second, lanes, range(part, 2 * lanes, 2)), plane, start, lanes)
        self.text.close_loop(self.transform.length, lanes)

    def _put_together(self, planes: Parts, pointer: str) -> None:
        lanes = self._all_lanes(_LANES)
        count = self.transform.length * (2 if self.transform.is_real else 1)
        calculate = NativeArithmetic(self.text, self._vector(lanes))
        start, _ = self.text.open_loop()
        place = self._product(start, 2)
        parts = [self._load(plane, start, lanes) for plane in planes]
        if self.transform.is_inverse:
            parts = [calculate.scaled(part, 1 / count) for part in parts]
        if lanes == 1:
            for part, value in enumerate(parts):
                self._store(value, pointer, self._sum(place, part), 1)
        else:
            order = [lane // 2 + lanes * (lane % 2) for lane in range(2 * lanes)]
            for half in (0, lanes):
                pairs = self._shuffled(parts[0], parts[1], lanes, order[half : half + lanes])
                self._store(pairs, pointer, self._sum(place, half), lanes)
        self.text.close_loop(self.transform.length, lanes)

    # --- stages ---

    def _stage(self, stage: FftStage, table: str, source: Parts, target: Parts) -> None:
        if stage.is_interleaved:
            start, _ = self.text.open_loop()
            values = self._transformed(stage, table, source, start, start)
            self._store_interleaved(stage, values, target, self._product(start, stage.radix))
            self.text.close_loop(stage.length // stage.radix, stage.lanes)
            return
        group, _ = self.text.open_loop()
        first = self._product(group, stage.apart)
        goal = self._product(group, stage.apart * stage.radix)
        place, _ = self.text.open_loop()
        values = self._transformed(stage, table, source, self._sum(first, place), group)
        for number, parts in enumerate(values):
            for plane, value in zip(target, parts, strict=True):
                self._store(value, plane, self._sum(goal, place, number * stage.apart), stage.lanes)
        self.text.close_loop(stage.apart, stage.lanes)
        self.text.close_loop(stage.groups)

    def _transformed(self, stage: FftStage, table: str, source: Parts, start: str, rotation: str) -> list[Parts]:
        """The short transforms of elements `start` and those that belong to it, rotated."""
        lanes, apart = stage.lanes, stage.length // stage.radix
        inputs: list[Parts] = []
        for number in range(stage.radix):
            place = self._sum(start, number * apart)
            inputs.append((self._load(source[0], place, lanes), self._load(source[1], place, lanes)))
        calculate = NativeArithmetic(self.text, self._vector(lanes))
        values = BUTTERFLIES[stage.radix](calculate, inputs)
        if stage.groups == 1:
            return values
        entries = stage.groups * (stage.apart if stage.is_interleaved else 1)
        rotated = values[:1]
        for number, value in enumerate(values[1:]):
            places = [self._sum(rotation, (part * (stage.radix - 1) + number) * entries) for part in range(2)]
            factors = [self._rotation(stage, table, place) for place in places]
            rotated.append(calculate.multiplied(value, (factors[0], factors[1])))
        return rotated

    def _rotation(self, stage: FftStage, table: str, place: str) -> str:
        if stage.is_interleaved or stage.lanes == 1:
            return self._load(table, place, stage.lanes)
        vector = self._vector(stage.lanes)
        one = self.text.value(f"insertelement {vector} poison, {self.type} {self._load(table, place, 1)}, i64 0")
        return self._shuffled(one, "poison", stage.lanes, [0] * stage.lanes)

    def _store_interleaved(self, stage: FftStage, values: list[Parts], target: Parts, start: str) -> None:
        """Lanes of one group side by side, `apart` of each value after another."""
        lanes, apart, radix = stage.lanes, stage.apart, stage.radix
        order = []
        for place in range(radix * lanes):
            group, number = divmod(place // apart, radix)
            order.append(number * lanes + group * apart + place % apart)
        for part, plane in enumerate(target):
            whole, size = [value[part] for value in values], lanes
            while len(whole) > 1:
                pairs = zip(whole[::2], whole[1::2], strict=True)
                whole, size = [self._shuffled(one, other, size, range(2 * size)) for one, other in pairs], 2 * size
            self._store(self._shuffled(whole[0], "poison", size, order), plane, start, size)

    # --- real transforms ---

    def _split_halves(self, planes: Parts, pointer: str) -> None:
        """From the transform of pairs to that of the real numbers that they are: one more than half of them."""
        length, lanes = self.transform.length, self._all_lanes(_LANES)
        for plane in planes:
            self._store(self._load(plane, 0, 1), plane, length, 1)
        calculate = NativeArithmetic(self.text, self._vector(lanes))
        start, _ = self.text.open_loop()
        even, odd = self._halves(calculate, planes, start, lanes)
        odd = calculate.multiplied(odd, self._half_rotation(start, lanes))
        # even - i * odd, both twice what they are
        twice = calculate.add(even[0], odd[1]), calculate.subtract(even[1], odd[0])
        scaled = [calculate.scaled(part, 0.5) for part in twice]
        place = self._product(start, 2)
        if lanes == 1:
            for part, value in enumerate(scaled):
                self._store(value, pointer, self._sum(place, part), 1)
        else:
            order = [lane // 2 + lanes * (lane % 2) for lane in range(2 * lanes)]
            self._store(self._shuffled(scaled[0], scaled[1], lanes, order), pointer, place, 2 * lanes)
        self.text.close_loop(length, lanes)
        last = NativeArithmetic(self.text, self.type)
        first, second = (self._load(plane, 0, 1) for plane in planes)
        self._store(last.subtract(first, second), pointer, 2 * length, 1)
        self._store("0.0", pointer, 2 * length + 1, 1)

    def _join_halves(self, pointer: str, planes: Parts, target: Parts) -> None:
        """From half of the transform of real numbers to that of their pairs, both twice what they are."""
        length, lanes = self.transform.length, self._all_lanes(_LANES)
        real, imaginary = planes
        self._store(self._load(pointer, 2 * length, 1), real, length, 1)
        for end in (0, length):
            self._store("0.0", imaginary, end, 1)
        calculate = NativeArithmetic(self.text, self._vector(lanes))
        start, _ = self.text.open_loop()
        even, odd = self._halves(calculate, planes, start, lanes)
        cosine, sine = self._half_rotation(start, lanes)
        odd = calculate.multiplied(odd, (cosine, calculate.negated(sine)))
        # even + i * odd
        self._store(calculate.subtract(even[0], odd[1]), target[0], start, lanes)
        self._store(calculate.add(even[1], odd[0]), target[1], start, lanes)
        self.text.close_loop(length, lanes)

    def _halves(self, calculate: NativeArithmetic, planes: Parts, start: str, lanes: int) -> tuple[Parts, Parts]:
        """Sums and differences of elements and the conjugates of those as far from the end."""
        mirror = self.text.value(f"sub i64 {self.transform.length - lanes + 1}, {start}")
        here = [self._load(plane, start, lanes) for plane in planes]
        there = [self._load(plane, mirror, lanes) for plane in planes]
        if lanes > 1:
            there = [self._shuffled(value, "poison", lanes, range(lanes - 1, -1, -1)) for value in there]
        sums = [calculate.add(one, other) for one, other in zip(here, there, strict=True)]
        gaps = [calculate.subtract(one, other) for one, other in zip(here, there, strict=True)]
        return (sums[0], gaps[1]), (gaps[0], sums[1])

    def _half_rotation(self, start: str, lanes: int) -> Parts:
        table = self.tables[-1]
        return self._load(table, start, lanes), self._load(table, self._sum(start, self.transform.length), lanes)
