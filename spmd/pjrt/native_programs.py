"""Programs that are one native function, as the machine code of Execute takes them (`spmd.pjrt.hot`)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from spmd.compiler.plan.native_program import NativeProgram
from spmd.pjrt.buffers import INLINE_SIZES, Facts, fill
from spmd.pjrt.devices import Memory
from spmd.pjrt.element_types import TOKEN
from spmd.pjrt.handles import number_of_kind
from spmd.pjrt.structs import struct

#: What becomes of an argument: it stays, its memory is freed, or it is a result's.
_KEPT, _FREED, _TAKEN = range(3)


class NativeCall:
    """The struct `Native` of a program, and all that it points to, as long as this object is there."""

    def __init__(
        self, program: NativeProgram, inputs: Sequence[Facts], outputs: Sequence[Facts], memories: Sequence[Memory]
    ) -> None:
        """`inputs` and `outputs` are element types and shapes, `memories` those of the results."""
        function = program.function
        self._kept: list[Any] = [program]
        device = memories[0].device if memories else None
        taken = set(program.over.values())
        fates = [
            _TAKEN if index in taken else _FREED if index in program.donated else _KEPT for index in range(len(inputs))
        ]
        rows = [(self._record(facts, None), fate) for facts, fate in zip(inputs, fates, strict=True)]
        results = [
            (self._record(outputs[place], memories[place]), program.over.get(index, -1) + 1, place)
            for index, place in enumerate(program.results)
        ]
        sources = [each if isinstance(each, int) else each.ctypes.data for each in program.sources]
        constants = [constant.ctypes.data for constant in function.constants]
        self.donated = [index for index, fate in enumerate(fates) if fate != _KEPT]
        self.struct = struct("Native")(
            struct_size=ctypes.sizeof(struct("Native")),
            function=function.address,
            is_enabled=True,
            may_raise=function.may_raise,
            device=device.address if device else 0,
            num_inputs=len(inputs),
            inputs=self._words([word for row in rows for word in row]),
            num_donated=len(self.donated),
            num_sources=len(sources),
            sources=self._words(sources),
            num_results=len(results),
            results=self._words([word for row in results for word in row]),
            num_constants=len(constants),
            constants=self._words(constants),
            arena=function.arena,
        )

    @property
    def address(self) -> int:
        """Where the struct lies."""
        return ctypes.addressof(self.struct)

    def enable(self, is_enabled: bool) -> None:
        """Have machine code run the program, or leave it to Python."""
        self.struct.is_enabled = is_enabled

    def _words(self, words: Sequence[int]) -> int:
        array = (ctypes.c_size_t * max(len(words), 1))(*words)
        self._kept.append(array)
        return ctypes.addressof(array)

    def _record(self, facts: Facts, memory: Memory | None) -> int:
        """A record of a buffer, which others are compared with, or made like."""
        record = struct("BufferRecord")()
        self._kept.append(record)
        record.kind, record.is_native = number_of_kind("Buffer"), True
        fill(record, facts, memory)
        return ctypes.addressof(record)


def can_be_native(number: int, shape: tuple[int, ...]) -> bool:
    """Return whether machine code can make and compare buffers of an element type (PJRT's number) and a shape."""
    return number != TOKEN and len(shape) <= INLINE_SIZES
