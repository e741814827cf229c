"""A native region as a C function: its steps in order, in memory of the caller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from spmd.analysis.scalar.expression import I8, MachineType
from spmd.backends.c.nests import NestWriter
from spmd.backends.c.scalars import FunctionLibrary, c_type, indented, number
from spmd.backends.c_targets import aliased, check_linked, result_of
from spmd.backends.refusals import refuse
from spmd.compiler.schedule.buffers import Buffer, Home, nbytes
from spmd.compiler.schedule.schedule import NativeRegion
from spmd.compiler.schedule.steps import Initial, LibraryCall, LoopNests, RowGroup, Step, ViewStep
from spmd.compiler.schedule.watching import name_of
from spmd.dialects.custom_call import output_type
from spmd.ir import Op, Value
from spmd.support.arrays import Array
from spmd.types import TupleType, Type

#: The reason given for refused ops.
ALONE = "the C back end supports loop nests only"
_INCLUDES = "\n".join(f"#include <{name}.h>" for name in ("math", "stdbool", "stdint", "string"))
#: Alignment of values outside the arena, in bytes.
_ALIGNMENT = 64


class RegionSource:
    """The source of function `name` for `region`, and `scratch`: the bytes of scratch memory that it needs."""

    def __init__(self, region: NativeRegion, name: str) -> None:
        self.region, self.name, self.scratch = region, name, region.placement.size
        self._library = FunctionLibrary()
        self._constants: list[str] = []
        #: Pointer declarations by name.
        self._pointers: dict[str, str] = {}
        self._slots: dict[Buffer, int] = {}
        self._lines: list[str] = []
        #: Custom-call targets that it calls, in order.
        self.c_targets: dict[str, None] = {}
        body, of = region.body, region.memory.of
        for step in body.steps:
            self._step(step)
        for value, buffer in body.placed.items():
            self._copy(buffer, of(value), nbytes(value))
        for result, target in zip(body.results, body.targets, strict=False):
            self._copy(target, body.placed[result], target.nbytes)

    def text(self, parameters: Sequence[str]) -> str:
        """Return the source; `parameters` declare the arguments arg0, arg1, ..., and results result0, result1, ..."""
        head = f"void {self.name}(\n" + "".join(f"    {each}\n" for each in parameters) + "    void *scratch)"
        targets = [f"void {target}(void *out, void **in);" for target in self.c_targets]
        parts = [_INCLUDES, *targets, *self._library.functions.values(), *self._constants, f"{head};"]
        body = [f"{head} {{", *self._pointers.values(), "(void)scratch;", *self._lines, "}"]
        return "\n\n".join([*parts, indented(body)]) + "\n"

    def _step(self, step: Step) -> None:
        if isinstance(step, LoopNests):
            for initial in step.initial:
                self._begin(initial)
            nests = [tasked.nest for tasked in step.nests]
        elif isinstance(step, RowGroup):
            nests = [step.nest]
        elif isinstance(step, ViewStep):
            return
        elif isinstance(step, LibraryCall):
            self._call(step.op)
            return
        else:
            refuse(step.ops[-1], ALONE)
        for nest in nests:
            lines = NestWriter(nest, self._library, self.pointer).lines()
            self._lines += [f"/* {name_of(step.ops)} */ {{", *lines, "}"]

    def _call(self, op: Op) -> None:
        """Emit a custom call of a C function; aliased results are initialized with the operand's elements and passed
        instead.
        """
        check_linked(op, self.name)
        of = self.region.memory.of
        inputs, outputs = ([f"(void *){self.pointer(v, I8)}" for v in values] for values in (op.operands, op.results))
        for place, (index, _) in aliased(op).items():
            number_of = result_of(op, place)
            self._copy(of(op.results[number_of]), of(op.operands[index]), nbytes(op.operands[index]))
            inputs[index] = outputs[number_of]
        self.c_targets[op["call_target_name"]] = None
        lines = [f"void *in[] = {{{', '.join(inputs) or '0'}}};"]
        out = _address(output_type(op), iter(outputs), lines)
        self._lines += [f"/* {name_of([op])} */ {{", *lines, f"{op['call_target_name']}({out}, in);", "}"]

    def _begin(self, initial: Initial) -> None:
        """Emit the initialization of an update's result."""
        target, element = self.region.memory.of(initial.result), initial.element
        if element is None:
            self._copy(target, self.region.memory.of(initial.operand), nbytes(initial.operand))
            return
        pattern, size = self._constant(element.reshape(-1)[:1], I8), element.itemsize
        copy = f"memcpy({self._named(target, I8)} + i * {size}, {pattern}, {size});"
        self._lines.append(f"for (int64_t i = 0; i < {element.size}; i++) {copy}")

    def _copy(self, target: Buffer, source: Buffer, size: int) -> None:
        if size and (source.array is not None or self._place(target) != self._place(source)):
            self._lines.append(f"memcpy({self._named(target, I8)}, {self._named(source, I8)}, {size});")

    # --- memory ---

    def pointer(self, value: Value, type: MachineType) -> str:
        """Return the name of the memory of `value`, as a pointer to `type`."""
        return self._named(self.region.memory.of(value), type)

    def _named(self, buffer: Buffer, type: MachineType) -> str:
        if buffer.array is not None:
            return self._constant(buffer.array, type)
        stem, const, place = self._place(buffer)
        name, of = f"{stem}_{type.value}", c_type(type)
        self._pointers[name] = f"{const}{of} *const {name} = ({const}{of} *){place};"
        return name

    def _place(self, buffer: Buffer) -> tuple[str, str, str]:
        """Return a name for a buffer, `const` if it is read-only, and its address."""
        while buffer.alias is not None:
            buffer = buffer.alias
        block: int | None = buffer.number
        offset, inputs = 0, self.region.inputs
        if buffer.home is Home.STACK:
            if buffer not in self._slots:
                self._slots[buffer] = self.scratch
                self.scratch += -(-buffer.nbytes // _ALIGNMENT) * _ALIGNMENT
            block, offset = None, self._slots[buffer]
        elif buffer.home is Home.ARENA:
            placement = self.region.placement
            block, offset = placement.blocks[buffer.number], placement.offsets[buffer.number]
        if block is None:
            return f"temp{offset}", "", f"((uint8_t *)scratch + {offset})"
        is_input = block < len(inputs)
        base = f"arg{block}" if is_input else f"result{block - len(inputs)}"
        const = "const " if is_input and inputs[block] not in self.region.overwrites.values() else ""
        return (f"{base}_at{offset}", const, f"((uint8_t *){base} + {offset})") if offset else (base, const, base)

    def _constant(self, array: Array, type: MachineType) -> str:
        """Return the name of a constant array."""
        kind = {True: "float", False: "uint"}[type.is_float]
        values = np.ascontiguousarray(array).reshape(-1).view(f"{kind}{type.bits}").tolist()
        texts = [number(value, type) for value in values] or ["0"]
        lines = ",\n  ".join(", ".join(texts[start : start + 8]) for start in range(0, len(texts), 8))
        text = f"[] = {{\n  {lines}}};"
        for number_of, known in enumerate(self._constants):
            if known.startswith(f"static const {c_type(type)} ") and known.endswith(text):
                return f"constant{number_of}"
        self._constants.append(f"static const {c_type(type)} constant{len(self._constants)}{text}")
        return f"constant{len(self._constants) - 1}"


def _address(type: Type, leaves: Iterator[str], lines: list[str]) -> str:
    """Return the address of a value of `type` with arrays at `leaves`; declarations of tuples are added to `lines`."""
    if not isinstance(type, TupleType):
        return next(leaves)
    parts = [_address(part, leaves, lines) for part in type.types]
    lines.append(f"void *out{len(lines)}[] = {{{', '.join(parts) or '0'}}};")
    return f"out{len(lines) - 1}"
