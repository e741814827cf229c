"""FFTs along the last dimension.

Rows are split into real and imaginary planes and transformed by stages (fft/stages.py), or, if the length has large
prime factors, by those of a longer transform (fft/bluestein.py). An inverse transform is a forward one with parts
exchanged; a real one, of even length, is that of pairs as complex numbers, split into halves afterwards (Van Loan,
"Computational Frameworks for the Fast Fourier Transform", 1.4, 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from spmd.backends.llvm.emit.function_emitter import FunctionEmitter
from spmd.backends.llvm.emit.native_ops import PlanTarget, native
from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.fft.bluestein import Bluestein, write_bluestein
from spmd.backends.llvm.fft.butterflies import Parts, real_number
from spmd.backends.llvm.fft.complex_layout import HalvesToPairs, PairsToHalves, ToPairs, ToPlanes
from spmd.backends.llvm.fft.split_complex import PlaneWriter, rest_lanes
from spmd.backends.llvm.fft.stages import FftStage, run_stages, stages_of
from spmd.backends.llvm.parallel.tasks import call_by_iterations
from spmd.compiler.schedule.fusibility import is_plain
from spmd.compiler.schedule.rates import nanoseconds
from spmd.compiler.schedule.steps import LibraryCall
from spmd.compiler.schedule.target import LibraryPlan
from spmd.compiler.schedule.tasks import tasks_of_time
from spmd.ir import Op
from spmd.support.arrays import Array
from spmd.types import COMPLEX64, COMPLEX128

_LONGEST = 1 << 16
#: Larger radices need this many lanes: otherwise libraries, which transform several rows at once, are faster.
_LARGEST_NARROW, _FEW = 5, 4
#: Most bytes that a task has on its stack.
_OWN = 1 << 18
#: Least complex numbers of a transform whose steps are calls.
_LEAST_OUTLINED = 1 << 6


@dataclass(frozen=True)
class _Transform:
    """`rows` transforms of `length` complex numbers, which are pairs of real ones on one side if it `is_real`."""

    kind: str
    rows: int
    length: int
    bits: int

    def __str__(self) -> str:
        through = f" through {self.bluestein.inner}" if self.bluestein else ""
        return f"{self.kind} of {self.length} complex{through}, radices {' '.join(str(s.radix) for s in self.stages)}"

    @property
    def is_outlined(self) -> bool:
        """Whether steps are calls of outlined functions."""
        return self.length >= _LEAST_OUTLINED

    @property
    def is_real(self) -> bool:
        return self.kind in ("RFFT", "IRFFT")

    @property
    def is_inverse(self) -> bool:
        return self.kind in ("IFFT", "IRFFT")

    @property
    def bluestein(self) -> Bluestein | None:
        """Bluestein's algorithm if the length has other factors; else None."""
        return Bluestein(self.length) if stages_of(self.length) is None else None

    @property
    def stages(self) -> list[FftStage]:
        """The stages of the length, or of the inner transform."""
        inner = self.bluestein
        stages = inner.stages if inner else stages_of(self.length)
        assert stages is not None
        return stages

    def tables(self) -> list[Array | None]:
        """Return the tables: of Bluestein's algorithm, by stage (None if there are no twiddle factors), and of the real
        split.
        """
        inner = self.bluestein
        dtype = np.dtype(f"f{self.bits // 8}")

        def parts(numbers: Array) -> Array:
            return np.stack([numbers.real, numbers.imag]).astype(dtype)

        tables: list[Array | None] = [parts(inner.chirp()), parts(inner.factors())] if inner else []
        tables += [stage.rotations().astype(dtype) if stage.groups > 1 else None for stage in self.stages]
        if self.is_real:
            tables.append(parts(np.exp(-1j * np.pi * np.arange(self.length) / self.length)))
        return tables

    @property
    def plane(self) -> int:
        """Elements of a plane: one more than the length, in whole cache lines."""
        inner = self.bluestein
        return -(-max(self.length + 1, inner.inner if inner else 0) // 16) * 16

    @property
    def memory(self) -> int:
        """Scratch bytes: two planes to read, two to write."""
        return 4 * self.plane * self.bits // 8


def transform_of(op: Op) -> _Transform | None:
    """Return `op`, an fft, as a native transform; None if it is not supported."""
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


def _plan(op: Op, machine: PlanTarget, image_bytes: int | None) -> LibraryPlan:
    transform = transform_of(op)
    assert transform is not None
    time = nanoseconds("fft", transform.rows * transform.plane * len(transform.stages))
    tasks = min(transform.rows, tasks_of_time(time, machine.threads))
    if tasks == 1 or transform.memory > _OWN:
        return LibraryPlan(1, (transform.memory,), transform)
    return LibraryPlan(tasks, form=transform)


@native("stablehlo.fft", lambda op: transform_of(op) is not None, _plan)
def _(writer: FunctionEmitter, step: LibraryCall) -> None:
    transform = step.plan.form
    assert isinstance(transform, _Transform)
    source, target = writer.pointer(step.op.operands[0]), writer.pointer(step.op.result)
    tables = ["" if table is None else writer.constant(table) for table in transform.tables()]
    parts = step.plan.tasks
    memory = writer.address(step.scratch[0]) if parts == 1 else ""

    def write(text: FunctionText, pointer: Callable[[str], str], row: str) -> None:
        own = memory or text.allocate(f"[{transform.memory} x i8]")
        inner = [pointer(table) if table else "" for table in tables]
        _TransformWriter(text, transform, inner, own).write(row, pointer(source), pointer(target))

    call_by_iterations(writer, transform.rows, parts, write)


class _TransformWriter:
    """Emits one transform. `memory` is scratch for four planes; `tables` are the addresses of the tables."""

    def __init__(self, text: FunctionText, transform: _Transform, tables: Sequence[str], memory: str) -> None:
        self.text, self.transform, self.tables = text, transform, tables
        step = transform.plane * transform.bits // 8
        planes = [text.value(f"getelementptr i8, ptr {memory}, i64 {number * step}") for number in range(4)]
        self.planes: tuple[Parts, Parts] = ((planes[0], planes[1]), (planes[2], planes[3]))
        self.outlined = transform.is_outlined

    def write(self, row: str, source: str, target: str) -> None:
        """Emit transform number `row` of those at `source`, with results at `target`."""
        text, transform, kind, bits = self.text, self.transform, self.transform.kind, self.transform.bits
        whole = 2 * transform.length  # elements of a row: pairs of parts, or real ones
        halves = whole + 2
        writer = PlaneWriter(text, bits)
        read = writer.at(source, writer.product(row, halves if kind == "IRFFT" else whole))
        write = writer.at(target, writer.product(row, halves if kind == "RFFT" else whole))
        length, rest = str(transform.length), rest_lanes(transform.length)
        here, there = self.planes
        ToPlanes(bits, rest).run(text, [read, *here, length], outlined=self.outlined)
        if kind == "IRFFT":
            arguments = [read, *here, *there, *self._half_rotations(writer), length]
            HalvesToPairs(bits, rest).run(text, arguments, outlined=self.outlined)
            here, there = there, here
        if transform.is_inverse:
            here, there = here[::-1], there[::-1]
        here = self._transformed(here, there)
        if transform.is_inverse:
            here = here[::-1]
        if kind == "RFFT":
            arguments = [*here, write, *self._half_rotations(writer), length]
            PairsToHalves(bits, rest).run(text, arguments, outlined=self.outlined)
        else:
            count = transform.length * (2 if transform.is_real else 1)
            scale = real_number(1 / count if transform.is_inverse else 1.0, bits)
            ToPairs(bits, rest, transform.is_inverse).run(text, [*here, write, length, scale], outlined=self.outlined)

    def _transformed(self, here: Parts, there: Parts) -> Parts:
        """Emit the transform of the planes `here`; return the planes with the result."""
        transform, outlined = self.transform, self.outlined
        tables = self.tables[:-1] if transform.is_real else self.tables
        if (inner := transform.bluestein) is not None:
            return write_bluestein(self.text, transform.bits, inner, tables, here, there, outlined=outlined)[0]
        return run_stages(self.text, transform.bits, transform.stages, tables, here, there, outlined=outlined)[0]

    def _half_rotations(self, writer: PlaneWriter) -> list[str]:
        return [writer.at(self.tables[-1], place) for place in (0, self.transform.length)]
