"""One native function as LLVM IR: its buffers' addresses, its constants and its callees."""

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

#: Largest constant embedded in the code, in bytes.
_EMBEDDED = 1 << 12


class FunctionEmitter:
    """Emits one native function, `void name(ptr arguments)`.

    Its arguments are the addresses of the inputs, the outputs, the arena, and large constants.
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
        #: The target of the code.
        self.target = region.target
        #: Finds a BLAS routine by name.
        self.routine = routine
        #: Whether a linker resolves custom-call targets by name.
        self.is_linked = is_linked
        self.threads = region.target.threads
        #: Times steps, if set.
        self.clock = clock
        #: Task functions of units: names by bodies.
        self.task_functions: dict[str, str] = {}
        self.uses_workers = False
        self.text = FunctionText()
        self.globals: dict[str, str] = {}
        #: Constants passed by the caller, after the inputs, the outputs and the arena.
        self.constants: list[Array] = []
        self.symbols: dict[str, int] = {}
        #: Symbols of C functions by custom-call target.
        self.c_targets: dict[str, str] = {}
        #: Whether it polls for interrupts or calls Python, and so may return with an exception.
        self.may_raise = False
        self._addresses = Addresses()
        #: SSA name of the address of each buffer.
        self._names: dict[Buffer, str] = {}
        self._first_constant = len(region.inputs) + len(region.outputs) + 1

    # --- arguments and memory ---

    def argument(self, index: int) -> str:
        """Return the SSA name of pointer argument `index`."""
        return self._addresses.argument(index)

    def frame(self, addresses: Sequence[str]) -> str:
        """Return the SSA name of the address of an array that holds `addresses`, as passed to outlined functions."""
        text = self.text
        begin, open_places = self._addresses.frame(addresses)
        frame = text.value(begin)
        for index in open_places:
            at = text.value(f"getelementptr ptr, ptr {frame}, i64 {index}")
            text.line(f"store ptr {addresses[index]}, ptr {at}")
        return frame

    def address(self, buffer: Buffer) -> str:
        """Return the SSA name of the address of `buffer`."""
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
        """Set the SSA name of the address of `buffer`, which is swapped at run time."""
        self._names[buffer] = name

    def pointer(self, value: Value) -> str:
        """Return the SSA name of the address of `value`."""
        return self.address(self.region.memory.of(value))

    def constant(self, array: Array) -> str:
        """Return the SSA name of the address of the elements of `array`."""
        if array.nbytes <= _EMBEDDED:
            data = "".join(f"\\{byte:02X}" for byte in np.ascontiguousarray(array).tobytes())
            return self.global_(f"[{max(array.nbytes, 1)} x i8]", f'c"{data or chr(92) + "00"}"')
        self.constants.append(aligned(array))
        return self.argument(self._first_constant + len(self.constants) - 1)

    def global_(self, type: str, value: str) -> str:
        """Return the name of a global constant."""
        text = f"private unnamed_addr constant {type} {value}, align 64"
        return self.globals.setdefault(text, f"@{self.name}.c{len(self.globals)}")

    def c_target(self, name: str) -> str:
        """Return the symbol of custom-call target `name`, a C function: the name itself if a linker resolves it."""
        symbol = name if self.is_linked else f"spmd.target{len(self.c_targets)}"
        return self.c_targets.setdefault(name, symbol)

    def copy(self, target: str, source: str, size: int) -> None:
        """Emit a copy of `size` bytes between buffers that do not overlap."""
        if size and target != source:
            self.text.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {size}, i1 false)")

    def clear(self, target: str, size: int) -> None:
        """Emit a fill of `size` bytes with zeros."""
        self.text.line(f"call void @llvm.memset.p0.i64(ptr {target}, i8 0, i64 {size}, i1 false)")

    # --- blocks ---

    def write(self, block: BlockSchedule) -> None:
        """Emit the steps of a block; values that it places end in their buffers."""
        raise NotImplementedError

    def leave_unless(self, holds: str) -> None:
        """Emit an early return unless `holds` (an i1), when an exception is pending."""
        text = self.text
        self.may_raise = True
        leave, on = text.fresh("leave"), text.fresh("on")
        text.line(f"br i1 {holds}, label %{on}, label %{leave}")
        text.start_block(leave)
        text.line("ret void")
        text.start_block(on)

    # --- the module ---

    def finish(self, *, whole: bool = False) -> str:
        """Return the module's text. With `whole` it defines the outlined functions that it calls."""
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
                *(define(name, body) for body, name in self.task_functions.items()),
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
