"""Fourier transforms along the last dimension, in native code.

Rows are taken apart to planes of real and of imaginary parts, and go through stages (spmd.backends.llvm.fft_stages), or
where the length has large prime factors through those of a longer transform (spmd.backends.llvm.bluestein). An inverse
transform is the one of parts that have changed places; a real one, of even length, that of pairs as complex numbers,
whose halves are told apart afterwards (Van Loan, "Computational Frameworks for the Fast Fourier Transform", 1.4, 4.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from spmd.arrays import Array
from spmd.backends.llvm.bluestein import Bluestein, write_bluestein
from spmd.backends.llvm.buffers import Frame
from spmd.backends.llvm.butterflies import NativeArithmetic, Parts
from spmd.backends.llvm.fft_stages import FftStage, StageWriter, stages_of
from spmd.backends.llvm.forms import native
from spmd.backends.llvm.function import FunctionWriter
from spmd.backends.llvm.parts import PartFunction, call_in_parts, parts_of_time
from spmd.backends.llvm.text import FunctionText
from spmd.compiler.schedule.forms import is_plain
from spmd.ir import Op
from spmd.types import COMPLEX64, COMPLEX128

_LONGEST = 1 << 16
#: Larger factors are taken out in no fewer lanes: libraries, which transform several rows at once, are quicker.
_LARGEST_NARROW, _FEW = 5, 4
#: Bytes of memory that a part has on its stack.
_OWN = 1 << 18
#: Elements and stages of a nanosecond, roughly.
_SPEED = 2


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
    def bluestein(self) -> Bluestein | None:
        """The way around factors that are no stages; None of lengths that have none."""
        return Bluestein(self.length) if stages_of(self.length) is None else None

    @property
    def stages(self) -> list[FftStage]:
        """The stages of the length, or of what goes around it."""
        inner = self.bluestein
        stages = inner.stages if inner else stages_of(self.length)
        assert stages is not None
        return stages

    def tables(self) -> list[Array | None]:
        """What is multiplied by: for Bluestein's way, by stage (None where nothing is), and where halves meet."""
        inner = self.bluestein
        numbers: list[Array | None] = [inner.chirp(), inner.factors()] if inner else []
        numbers += [stage.rotations() if stage.groups > 1 else None for stage in self.stages]
        if self.is_real:
            numbers.append(np.exp(-1j * np.pi * np.arange(self.length) / self.length))
        dtype = np.dtype(f"f{self.bits // 8}")
        return [None if each is None else np.stack([each.real, each.imag]).astype(dtype) for each in numbers]

    @property
    def plane(self) -> int:
        """Numbers of the memory of real or imaginary parts: one more than there are, in whole cache lines."""
        inner = self.bluestein
        return -(-max(self.length + 1, inner.inner if inner else 0) // 16) * 16

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
    if any(stage.radix > _LARGEST_NARROW and stage.lanes < _FEW for stage in stages_of(length) or ()):
        return None
    return _Transform(kind, rows, length, 32 if element is COMPLEX64 else 64)


@native("stablehlo.fft", lambda op: transform_of(op) is not None)
def _(writer: FunctionWriter, op: Op, frame: Frame) -> None:
    transform = transform_of(op)
    assert transform is not None
    source, target = writer.pointer(op.operands[0]), writer.allocate(frame, op.result).pointer
    tables = ["" if table is None else writer.constant(table) for table in transform.tables()]
    time = transform.rows * transform.plane * len(transform.stages) // _SPEED
    parts = min(transform.rows, parts_of_time(time, writer.threads))
    if parts == 1 or transform.memory > _OWN:
        memory = writer.scratch(frame, transform.memory).pointer
        row, _ = writer.text.open_loop()
        _TransformWriter(writer.text, transform, tables, memory).write(row, source, target)
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
        _TransformWriter(text, transform, inner, own).write(row, *ends_of_rows)
        text.close_loop(stop, 1, first)

    call_in_parts(writer, parts, write)


class _TransformWriter(StageWriter):
    """Writes one transform. `memory` is room for four planes; `tables` are the addresses of the transform's."""

    def __init__(self, text: FunctionText, transform: _Transform, tables: Sequence[str], memory: str) -> None:
        super().__init__(text, transform.bits)
        self.transform, self.tables = transform, tables
        step = transform.plane * transform.bits // 8
        planes = [text.value(f"getelementptr i8, ptr {memory}, i64 {number * step}") for number in range(4)]
        self.planes: tuple[Parts, Parts] = ((planes[0], planes[1]), (planes[2], planes[3]))

    def write(self, row: str, source: str, target: str) -> None:
        length, kind = self.transform.length, self.transform.kind
        whole = 2 * length  # numbers of a row: pairs of parts, or real ones
        halves = whole + 2
        read = self.at(source, self.text.value(f"mul i64 {row}, {halves if kind == 'IRFFT' else whole}"))
        write = self.at(target, self.text.value(f"mul i64 {row}, {halves if kind == 'RFFT' else whole}"))
        here, there = self.planes
        self._take_apart(read, here)
        if kind == "IRFFT":
            self._join_halves(read, here, there)
            here, there = there, here
        if self.transform.is_inverse:
            here, there = here[::-1], there[::-1]
        tables = self.tables[:-1] if self.transform.is_real else self.tables
        if (inner := self.transform.bluestein) is not None:
            here, there = write_bluestein(self, inner, tables, here, there)
        else:
            here, there = self.run(self.transform.stages, tables, here, there)
        if self.transform.is_inverse:
            here = here[::-1]
        if kind == "RFFT":
            self._split_halves(here, write)
        else:
            self._put_together(here, write)

    # --- between pairs of numbers and planes ---

    def _take_apart(self, pointer: str, planes: Parts) -> None:
        for start, lanes in self.blocks(self.transform.length):
            place = self.product(start, 2)
            if lanes == 1:
                for part, plane in enumerate(planes):
                    self.store(self.load(pointer, self.sum(place, part), 1), plane, start, 1)
            else:
                first, second = (self.load(pointer, self.sum(place, half), lanes) for half in (0, lanes))
                for part, plane in enumerate(planes):
                    self.store(self.shuffled(first, second, lanes, range(part, 2 * lanes, 2)), plane, start, lanes)

    def _put_together(self, planes: Parts, pointer: str) -> None:
        count = self.transform.length * (2 if self.transform.is_real else 1)
        for start, lanes in self.blocks(self.transform.length):
            calculate = NativeArithmetic(self.text, self.vector(lanes))
            place = self.product(start, 2)
            parts = [self.load(plane, start, lanes) for plane in planes]
            if self.transform.is_inverse:
                parts = [calculate.scaled(part, 1 / count) for part in parts]
            if lanes == 1:
                for part, value in enumerate(parts):
                    self.store(value, pointer, self.sum(place, part), 1)
            else:
                order = [lane // 2 + lanes * (lane % 2) for lane in range(2 * lanes)]
                for half in (0, lanes):
                    pairs = self.shuffled(parts[0], parts[1], lanes, order[half : half + lanes])
                    self.store(pairs, pointer, self.sum(place, half), lanes)

    # --- real transforms ---

    def _split_halves(self, planes: Parts, pointer: str) -> None:
        """From the transform of pairs to that of the real numbers that they are: one more than half of them."""
        length = self.transform.length
        for plane in planes:
            self.store(self.load(plane, 0, 1), plane, length, 1)
        for start, lanes in self.blocks(length):
            calculate = NativeArithmetic(self.text, self.vector(lanes))
            even, odd = self._halves(calculate, planes, start, lanes)
            odd = calculate.multiplied(odd, self._half_rotation(start, lanes))
            # even - i * odd, both twice what they are
            twice = calculate.add(even[0], odd[1]), calculate.subtract(even[1], odd[0])
            scaled = [calculate.scaled(part, 0.5) for part in twice]
            place = self.product(start, 2)
            if lanes == 1:
                for part, value in enumerate(scaled):
                    self.store(value, pointer, self.sum(place, part), 1)
            else:
                order = [lane // 2 + lanes * (lane % 2) for lane in range(2 * lanes)]
                self.store(self.shuffled(scaled[0], scaled[1], lanes, order), pointer, place, 2 * lanes)
        last = NativeArithmetic(self.text, self.type)
        first, second = (self.load(plane, 0, 1) for plane in planes)
        self.store(last.subtract(first, second), pointer, 2 * length, 1)
        self.store("0.0", pointer, 2 * length + 1, 1)

    def _join_halves(self, pointer: str, planes: Parts, target: Parts) -> None:
        """From half of the transform of real numbers to that of their pairs, both twice what they are."""
        length = self.transform.length
        real, imaginary = planes
        self.store(self.load(pointer, 2 * length, 1), real, length, 1)
        for end in (0, length):
            self.store("0.0", imaginary, end, 1)
        for start, lanes in self.blocks(length):
            calculate = NativeArithmetic(self.text, self.vector(lanes))
            even, odd = self._halves(calculate, planes, start, lanes)
            cosine, sine = self._half_rotation(start, lanes)
            odd = calculate.multiplied(odd, (cosine, calculate.negated(sine)))
            # even + i * odd
            self.store(calculate.subtract(even[0], odd[1]), target[0], start, lanes)
            self.store(calculate.add(even[1], odd[0]), target[1], start, lanes)

    def _halves(self, calculate: NativeArithmetic, planes: Parts, start: str, lanes: int) -> tuple[Parts, Parts]:
        """Sums and differences of elements and the conjugates of those as far from the end."""
        mirror = self.text.value(f"sub i64 {self.transform.length - lanes + 1}, {start}")
        here = [self.load(plane, start, lanes) for plane in planes]
        there = [self.load(plane, mirror, lanes) for plane in planes]
        if lanes > 1:
            there = [self.shuffled(value, "poison", lanes, range(lanes - 1, -1, -1)) for value in there]
        sums = [calculate.add(one, other) for one, other in zip(here, there, strict=True)]
        gaps = [calculate.subtract(one, other) for one, other in zip(here, there, strict=True)]
        return (sums[0], gaps[1]), (gaps[0], sums[1])

    def _half_rotation(self, start: str, lanes: int) -> Parts:
        table = self.tables[-1]
        return self.load(table, start, lanes), self.load(table, self.sum(start, self.transform.length), lanes)
