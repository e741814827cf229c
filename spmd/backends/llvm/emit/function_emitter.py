"""One native function as LLVM's text: the addresses of its buffers, its constants, what it calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from spmd.backends.llvm.emit.math_library import function_text
from spmd.backends.llvm.emit.task_function import define
from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.jit.clocks import NativeClock
from spmd.backends.llvm.jit.processor import CODE_ATTRIBUTES
from spmd.backends.llvm.matmul.blas import Routine, routine
from spmd.backends.llvm.memory.addresses import Addresses
from spmd.compiler.schedule.buffers import Buffer, Home
from spmd.compiler.schedule.schedule import NativeRegion
from spmd.compiler.schedule.steps import BlockSchedule
from spmd.ir import Value
from spmd.ir.attributes import aligned
from spmd.support.arrays import Array

#: Bytes of a constant that is written into the code.
_EMBEDDED = 1 << 12


class FunctionWriter:
    """Writes one native function, `void name(ptr arguments)`.

    It is given the addresses of the inputs, the outputs, the arena, and the constants that it needs.
    """

    def __init__(
        self,
        name: str,
        region: NativeRegion,
        routine: Callable[[str], Routine] = routine,
        clock: NativeClock | None = None,
        *,
        is_linked: bool = False,
    ) -> None:
        self.name = name
        self.region = region
        #: What the code is made for.
        self.target = region.target
        #: Finds a routine of BLAS by its name.
        self.routine = routine
        #: Whether a linker finds targets of custom calls, by their names.
        self.is_linked = is_linked
        self.threads = region.target.threads
        #: What times steps, if anything does.
        self.clock = clock
        #: The functions of units that stand apart: their names by their bodies.
        self.parts: dict[str, str] = {}
        self.uses_workers = False
        #: Whether no block has had more than one loop nest so far.
        self.is_one_nest = True
        self.text = FunctionText()
        self.globals: dict[str, str] = {}
        #: Constants that the caller has to bring, after the inputs, the outputs and the arena.
        self.constants: list[Array] = []
        self.symbols: dict[str, int] = {}
        #: By target of custom calls, a function of C: the symbol that it is called by.
        self.c_targets: dict[str, str] = {}
        #: Whether it polls for interrupts, or calls Python: it may end with an exception.
        self.may_raise = False
        self._addresses = Addresses()
        #: The name of the address of each buffer.
        self._names: dict[Buffer, str] = {}
        self._first_constant = len(region.inputs) + len(region.outputs) + 1

    # --- arguments and memory ---

    def argument(self, place: int) -> str:
        """Return the name of the address that the caller gives as number `place`."""
        return self._addresses.argument(place)

    def frame(self, addresses: Sequence[str]) -> str:
        """Return the name of the address of a frame that holds addresses, for a function to look into."""
        text = self.text
        begin, open_places = self._addresses.frame(addresses)
        frame = text.value(begin)
        for place in open_places:
            at = text.value(f"getelementptr ptr, ptr {frame}, i64 {place}")
            text.line(f"store ptr {addresses[place]}, ptr {at}")
        return frame

    def address(self, buffer: Buffer) -> str:
        """Return the name of the address of `buffer`."""
        name = self._names.get(buffer)
        if name is None:
            name = self._names[buffer] = self._address(buffer)
        return name

    def _address(self, buffer: Buffer) -> str:
        if buffer.alias is not None:
            return self.address(buffer.alias)
        if buffer.array is not None:
            return self.constant(buffer.array)
        if buffer.home is Home.STACK:
            return self.text.allocate(f"[{max(buffer.nbytes, 1)} x i8]")
        return f"%arena{buffer.number}" if buffer.home is Home.ARENA else self.argument(buffer.number)

    def name_swapped(self, buffer: Buffer, name: str) -> None:
        """Give `buffer`, whose address is known while running, that name."""
        self._names[buffer] = name

    def pointer(self, value: Value) -> str:
        """Return the name of the address of `value`."""
        return self.address(self.region.memory.of(value))

    def constant(self, array: Array) -> str:
        """Return the name of the address of the elements of `array`."""
        if array.nbytes <= _EMBEDDED:
            data = "".join(f"\\{byte:02X}" for byte in np.ascontiguousarray(array).tobytes())
            return self.global_(f"[{max(array.nbytes, 1)} x i8]", f'c"{data or chr(92) + "00"}"')
        self.constants.append(aligned(array))
        return self.argument(self._first_constant + len(self.constants) - 1)

    def global_(self, type: str, value: str) -> str:
        """Return the name of a constant of the module."""
        text = f"private unnamed_addr constant {type} {value}, align 64"
        return self.globals.setdefault(text, f"@{self.name}.c{len(self.globals)}")

    def c_target(self, name: str) -> str:
        """Return the symbol of the target `name` of custom calls, a function of C: its own where a linker finds it."""
        symbol = name if self.is_linked else f"spmd.target{len(self.c_targets)}"
        return self.c_targets.setdefault(name, symbol)

    def copy(self, target: str, source: str, size: int) -> None:
        """Copy bytes between buffers that do not overlap."""
        if size and target != source:
            self.text.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {size}, i1 false)")

    def clear(self, target: str, size: int) -> None:
        """Fill bytes with zeros."""
        self.text.line(f"call void @llvm.memset.p0.i64(ptr {target}, i8 0, i64 {size}, i1 false)")

    # --- blocks ---

    def write(self, block: BlockSchedule) -> None:
        """Emit the steps of a block; all values that it places are in their buffers in the end."""
        raise NotImplementedError

    def leave_unless(self, holds: str) -> None:
        """End the function where `holds` (an i1) does not: an exception is waiting."""
        text = self.text
        self.may_raise = True
        leave, on = text.fresh("leave"), text.fresh("on")
        text.line(f"br i1 {holds}, label %{on}, label %{leave}")
        text.start_block(leave)
        text.line("ret void")
        text.start_block(on)

    # --- the whole ---

    def finish(self, *, whole: bool = False) -> str:
        """Return the module's text. `whole` ones hold the functions of floats that they call."""
        arena, placement = self.argument(self._first_constant - 1), self.region.placement
        counters: list[str] = []
        if self.clock is not None:
            last = self._first_constant + len(self.constants)
            counters.append(f"  %counters.at = getelementptr ptr, ptr %arguments, i64 {last}")
            counters.append("  %counters = load ptr, ptr %counters.at")
        self.text.line("ret void")
        addresses = self._addresses.prologue(self.name, self.text.lines, placement, arena)
        return "\n".join(
            [
                *(f"{name} = {text}" for text, name in self.globals.items()),
                *self._addresses.tables(self.name, placement, arena),
                f"define void @{self.name}(ptr noalias readonly %arguments) #{int(self.text.only_calls)} {{",
                self.text.body([*counters, *addresses]),
                "}",
                *(define(name, body) for body, name in self.parts.items()),
                *self.text.declarations,
                *(
                    function_text(callee, linkage="internal") if whole else callee.declaration
                    for callee in self.text.callees.values()
                ),
                "!0 = !{}",
                f"attributes #0 = {{ nounwind {CODE_ATTRIBUTES} }}",
                f"attributes #1 = {{ noinline nounwind optnone {CODE_ATTRIBUTES} }}",
            ]
        )
