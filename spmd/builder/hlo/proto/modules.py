"""HloModuleProto as HLO text: computations and instructions under their names, and constants by number.

Source: openxla/xla, hlo.proto, and how HloInstruction prints each opcode.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from spmd.builder.hlo.aliases import alias_text
from spmd.builder.hlo.proto.attributes import attributes, frontend, quoted
from spmd.builder.hlo.proto.literals import array, shape
from spmd.builder.shape import Shape
from spmd.support.arrays import Array
from spmd.support.protobuf import Message

#: Of an instruction, the attribute that names the computation that it calls.
_CALLED = {
    "call": ("to_apply",),
    "fusion": ("calls",),
    "async-start": ("calls",),
    "async-update": ("calls",),
    "async-done": ("calls",),
    "while": ("body", "condition"),
    "select-and-scatter": ("select", "scatter"),
}


def module_text(module: Message) -> tuple[str, Mapping[str, Array]]:
    """Return HLO text of a module and its constants, by what stands for them in the text; ValueError if it is none."""
    return _ModuleText(module).text()


class _ModuleText:
    """Names of computations by their ids, and the constants met so far."""

    def __init__(self, module: Message) -> None:
        self._module = module
        self._computations = module.messages(3)
        self._names = {computation.number(5): computation.text(1) for computation in self._computations}
        self._constants: dict[str, Array] = {}

    def text(self) -> tuple[str, Mapping[str, Array]]:
        entry, name = self._module.number(6), self._module.text(2)
        parts = [", ".join([f"HloModule {self._module.text(1)}", *self._header()]), *self._tables()]
        for computation in self._computations:
            is_entry = computation.number(5) == entry if entry else computation.text(1) == name
            parts.append(("ENTRY " if is_entry else "") + self._computation(computation))
        return "\n\n".join(parts) + "\n", self._constants

    def _header(self) -> Iterator[str]:
        if 7 in self._module:
            yield "is_scheduled=true"
        aliases = [
            alias_text((tuple(each.numbers(1)), (each.number(2), tuple(each.numbers(3)))), "may-alias")
            for each in self._module.message(8).messages(1)
        ]
        if aliases:
            yield f"input_output_alias={{ {', '.join(aliases)} }}"
        devices = self._module.message(15)
        for name, number in (("replica_count", 1), ("num_partitions", 2)):
            if devices.number(number) > 1:
                yield f"{name}={devices.number(number)}"
        if 19 in self._module:
            yield frontend(self._module.message(19))

    def _tables(self) -> Iterator[str]:
        """Yield the tables of places that metadata refers to."""
        index = self._module.message(17)
        for title, number in (("FileNames", 1), ("FunctionNames", 2)):
            rows = [f"{row} {quoted(name)}" for row, name in enumerate(index.texts(number), 1)]
            if rows:
                yield "\n".join([title, *rows])
        places = ("file_name_id", "function_name_id", "line", "column", "end_line", "end_column")
        frames = ("file_location_id", "parent_frame_id")
        for title, number, names in (("FileLocations", 3, places), ("StackFrames", 4, frames)):
            rows = [
                f"{row} {{{' '.join(f'{name}={each.number(at)}' for at, name in enumerate(names, 1) if at in each)}}}"
                for row, each in enumerate(index.messages(number), 1)
            ]
            if rows:
                yield "\n".join([title, *rows])

    def _computation(self, computation: Message) -> str:
        instructions = computation.messages(2)
        names = {each.number(35): each.text(1) for each in instructions}
        shapes = {each.number(35): shape(each.message(3)) for each in instructions}
        root = computation.number(6)
        lines = [
            f"  {'ROOT ' if each.number(35) == root else ''}%{each.text(1)} = {self._instruction(each, names, shapes)}"
            for each in instructions
        ]
        return f"%{computation.text(1)} {{\n" + "\n".join(lines) + "\n}"

    def _instruction(self, proto: Message, names: Mapping[int, str], shapes: Mapping[int, Shape]) -> str:
        opcode, operands = proto.text(2), proto.numbers(36)
        missing = [number for number in operands if number not in names]
        if missing:
            raise ValueError(f"{proto.text(1)}: operand {missing[0]} is no instruction of its computation")
        if opcode == "constant":
            inside = self._constant(proto.message(8))
        elif opcode == "parameter":
            inside = str(proto.number(9))
        else:
            inside = ", ".join(f"%{names[number]}" for number in operands)
        is_pair = bool(operands) and shapes[operands[0]].primitive_type.value == "pred"
        parts = [f"{shapes[proto.number(35)]} {opcode}({inside})", *attributes(proto)]
        return ", ".join([*parts, *self._called(proto, opcode, is_pair=is_pair)])

    def _constant(self, proto: Message) -> str:
        """Return what stands for a constant in the text: its number, of a tuple those of its parts."""
        declared = shape(proto.message(1))
        if declared.is_tuple():
            return f"({', '.join(map(self._constant, proto.messages(10)))})"
        name = f"#{len(self._constants)}"
        self._constants[name] = array(proto, declared)
        return name

    def _called(self, proto: Message, opcode: str, *, is_pair: bool) -> Iterator[str]:
        """Yield the attributes that name the computations an instruction calls; `is_pair`: a condition chooses."""
        called = [self._name(number) for number in proto.numbers(38)]
        if not called:
            return
        if opcode == "custom-call":
            yield f"called_computations={{{', '.join(called)}}}"
        elif opcode == "conditional" and not is_pair:
            yield f"branch_computations={{{', '.join(called)}}}"
        else:
            pair = ("true_computation", "false_computation")
            labels = pair if opcode == "conditional" else _CALLED.get(opcode, ("to_apply",))
            yield from (f"{label}={name}" for label, name in zip(labels, called, strict=True))

    def _name(self, number: int) -> str:
        if number not in self._names:
            raise ValueError(f"computation {number} is called and is not there")
        return f"%{self._names[number]}"
