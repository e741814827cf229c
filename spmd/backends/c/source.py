"""A native region as a function of C: its steps in order, in memory that the caller gives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd.analysis.scalar.expression import I8, MachineType
from spmd.backends.c.nests import NestWriter
from spmd.backends.c.scalars import Library, c_type, float_number
from spmd.backends.refusals import refuse
from spmd.compiler.schedule.buffers import Buffer, Home, nbytes
from spmd.compiler.schedule.schedule import NativeRegion
from spmd.compiler.schedule.steps import BlockSchedule, Initial, LoopNests, RowGroup, Step, ViewStep
from spmd.compiler.schedule.watching import name_of
from spmd.ir import Value
from spmd.support.arrays import Array

#: What is said of an op that is refused.
ALONE = "C is written of loop nests alone"
#: What the text of every source begins with.
_INCLUDES = """#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
"""
#: Bytes between which values that are not in the arena lie.
_ALIGNMENT = 64


class RegionSource:
    """The text of the function `name` that computes `region`, and `scratch`: the bytes of memory that it works in."""

    def __init__(self, region: NativeRegion, name: str) -> None:
        self.region, self.name = region, name
        self.scratch = region.placement.size
        self.library = Library()
        self._constants: list[str] = []
        self._pointers: dict[tuple[Buffer, str], str] = {}
        self._declared: list[str] = []
        self._slots: dict[Buffer, int] = {}
        self._lines: list[str] = []
        self._block(region.body)

    def text(self, parameters: Sequence[str]) -> str:
        """The whole source; `parameters` declare the arguments arg0, arg1, ..., and results result0, result1, ..."""
        head = f"void {self.name}(\n" + "".join(f"    {each}\n" for each in parameters) + "    void *scratch)"
        body = [*self._declared, "  (void)scratch;", *self._lines]
        parts = [_INCLUDES, *self.library.functions.values(), *self._constants, f"{head};", f"{head} {{"]
        return "\n".join([*parts, *body, "}", ""])

    # --- steps ---

    def _block(self, block: BlockSchedule) -> None:
        for step in block.steps:
            self._step(step)
        for value, buffer in block.placed.items():
            self._copy(self._bytes(buffer), self._bytes(self.region.memory.of(value)), nbytes(value))
        for result, target in zip(block.results, block.targets, strict=False):
            self._copy(self._bytes(target), self._bytes(block.placed[result]), target.nbytes)

    def _step(self, step: Step) -> None:
        if isinstance(step, ViewStep):
            return
        if isinstance(step, LoopNests):
            for initial in step.initial:
                self._begin(initial)
            nests = [tasked.nest for tasked in step.nests]
        elif isinstance(step, RowGroup):
            nests = [step.nest]
        else:
            refuse(step.ops[-1], ALONE)
        for nest in nests:
            NestWriter(nest, self.library, self._lines, self.pointer).write(name_of(step.ops))

    def _begin(self, initial: Initial) -> None:
        """What the buffer of an update's result holds before."""
        target = self._bytes(self.region.memory.of(initial.result))
        if initial.element is None:
            self._copy(target, self._bytes(self.region.memory.of(initial.operand)), nbytes(initial.operand))
            return
        pattern = self._constant(np.ascontiguousarray(initial.element).reshape(-1)[:1], I8)
        size, count = initial.element.itemsize, initial.element.size
        copy = f"memcpy({target} + i * {size}, {pattern}, {size})"
        self._lines.append(f"  for (int64_t i = 0; i < {count}; i++) {copy};")

    def _copy(self, target: str, source: str, size: int) -> None:
        if size and target != source:
            self._lines.append(f"  memcpy({target}, {source}, {size});")

    # --- memory ---

    def pointer(self, value: Value, type: MachineType) -> str:
        """The name of the memory of `value`, read or written as values of `type`."""
        return self._named(self.region.memory.of(value), type)

    def _bytes(self, buffer: Buffer) -> str:
        return self._named(buffer, I8)

    def _named(self, buffer: Buffer, type: MachineType) -> str:
        while buffer.alias is not None:
            buffer = buffer.alias
        of = c_type(type)
        name = self._pointers.get((buffer, of))
        if name is None:
            if buffer.array is not None:
                name = self._constant(buffer.array, type)
            else:
                stem, const, place = self._place(buffer)
                name = f"{stem}_{type.value}"
                self._declared.append(f"  {const}{of} *const {name} = ({const}{of} *){place};")
            self._pointers[buffer, of] = name
        return name

    def _place(self, buffer: Buffer) -> tuple[str, str, str]:
        """A name for a buffer, `const` where it is not written to, and its address."""
        number, placement, inputs = buffer.number, self.region.placement, len(self.region.inputs)
        if buffer.home is Home.STACK:
            if buffer not in self._slots:
                self._slots[buffer] = self.scratch
                self.scratch += -(-buffer.nbytes // _ALIGNMENT) * _ALIGNMENT
            offset = self._slots[buffer]
            return f"slot{offset}", "", f"((uint8_t *)scratch + {offset})"
        offset = 0
        if buffer.home is Home.ARENA:
            block, offset = placement.blocks[number], placement.offsets[number]
            if block is None:
                return f"temp{offset}", "", f"((uint8_t *)scratch + {offset})"
            number = block
        written = number >= inputs or self.region.inputs[number] in self.region.overwrites.values()
        base = f"result{number - inputs}" if number >= inputs else f"arg{number}"
        return base + (f"_at{offset}" if offset else ""), "" if written else "const ", (
            f"((uint8_t *){base} + {offset})" if offset else base)  # fmt: skip

    def _constant(self, array: Array, type: MachineType) -> str:
        """The name of the elements of a constant."""
        flat = np.ascontiguousarray(array).reshape(-1)
        values = flat.view(type.value.replace("f", "float").replace("i", "uint"))
        if type.is_float:
            texts = [float_number(float(value), type) for value in values]
        else:
            texts = [f"UINT64_C({value})" if type.bits == 64 else f"{value}u" for value in values]
        name = f"constant{len(self._constants)}"
        lines = [", ".join(texts[start : start + 8]) for start in range(0, len(texts), 8)]
        self._constants.append(f"static const {c_type(type)} {name}[] = {{\n  " + ",\n  ".join(lines or ["0"]) + "};")
        return name
