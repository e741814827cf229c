"""Print programs: the pretty form where an op has one, else MLIR's generic form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from spmd.ir import AttributeValue, Block, Function, Module, NumberedValue, Op, Region, Value, register_printer
from spmd.ir.attributes import Attribute, DenseArrayAttr
from spmd.syntax.assembly import assembly_format
from spmd.syntax.attribute_printer import (
    format_attribute,
    format_entries,
    format_stripped,
    format_symbol,
)
from spmd.syntax.directives import SEGMENTS
from spmd.types import I32, FunctionType, Type, TypeOfTypes, spelled_by

_STEP = "  "
#: Types of more than `_LARGE` parts are printed with aliases for their components of more than `_SMALL` parts.
_LARGE = 1 << 16
_SMALL = 1 << 6
_NAME = re.compile(r"[A-Za-z_][\w$.\-]*|\d+", re.ASCII)


class Declined(Exception):
    """Raised for an op that its pretty form cannot express; it is printed in the generic form."""


class Printer:
    """Prints ops, and records the names of values and blocks."""

    def __init__(self, *, generic: bool = False, keep_names: bool = False, debug_info: bool = False) -> None:
        self.generic = generic
        self.keep_names = keep_names
        self.debug_info = debug_info
        self.indentation = ""
        self.default_dialect = ""
        self._names: dict[Value, str] = {}
        self._types: dict[Type, str] = {}
        self._used: set[str] = set()
        self._repeats: dict[str, int] = {}
        self._numbers = 0
        self._arguments = 0
        self._labels: list[str] = []

    # --- ops ---

    def op(self, op: Op) -> str:
        """Return the text of the op, without indentation or a final newline."""
        results = self._result_names(op)
        text = None
        if not self.generic:
            form = assembly_format(op.definition) if op.definition is not None else None
            if form is not None:
                try:
                    text = self._shown_name(op) + form.print(self, op)
                except Declined:
                    text = None
        return results + (text if text is not None else self._generic_op(op)) + self.located(op)

    def located(self, value: Value) -> str:
        """Return ` loc(...)` if locations are printed and the op or block argument has one."""
        text = value.debug_location if self.debug_info and isinstance(value, Op | NumberedValue) else None
        return "" if text is None else f" loc({text})"

    def decline(self) -> NoReturn:
        """Raise Declined: the pretty form cannot express this op."""
        raise Declined

    def _shown_name(self, op: Op) -> str:
        dialect, _, rest = op.name.partition(".")
        if op.name == "builtin.module" or (dialect == "func" and self.default_dialect == "func" and rest != "func"):
            return rest
        return op.name

    def _result_names(self, op: Op) -> str:
        count = len(op.results)
        if not count:
            return ""
        hint = op.results[0].name_hint if self.keep_names else None
        base = self._fresh(hint.partition("#")[0] if hint else None, "")
        for index, result in enumerate(op.results):
            self._names[result] = f"%{base}" if count == 1 else f"%{base}#{index}"
        return f"%{base} = " if count == 1 else f"%{base}:{count} = "

    def _generic_op(self, op: Op) -> str:
        text = f'"{op.name}"({self.names(op.operands)})'
        attributes = dict(op.attributes)
        successors = attributes.pop("successors", None) if op.definition is None else None
        if successors is not None:
            text += f"[{', '.join(self._labels[number] for number in successors)}]"
        properties = self._encoded(op, attributes)
        if properties:
            text += f" <{{{format_entries(properties)}}}>"
        if op.regions:
            text += f" ({', '.join(self.region(region, isolated=_isolated(op)) for region in op.regions)})"
        if op.discardable:
            text += f" {{{format_entries(op.discardable)}}}"
        return f"{text} : {self.signature(op)}"

    def _encoded(
        self, op: Op, attributes: Mapping[str, AttributeValue], without: Iterable[str] = ()
    ) -> dict[str, Attribute]:
        """Return decoded attributes in MLIR's form, in the order of their declaration."""
        if op.definition is None:
            return {}
        encoded: dict[str, Attribute] = {}
        for name, declared in op.definition.attribute_table.items():
            if name in attributes and name not in without:
                encoded[name] = declared.kind.encode(attributes[name])
        for name in SEGMENTS:
            if name in attributes and name not in without and name not in encoded:
                encoded[name] = DenseArrayAttr(I32, tuple(attributes[name]))
        return encoded

    # --- parts of forms ---

    def name(self, value: Value) -> str:
        """Return the name of a value, `%?` if nothing printed defines it."""
        return self._names.get(value, "%?")

    def names(self, values: Sequence[Value]) -> str:
        return ", ".join([self._names.get(value, "%?") for value in values])

    def type(self, type: Type) -> str:
        """Return a type's text, computed once per type."""
        text = self._types.get(type)
        if text is None:
            text = self._types[type] = str(type)
        return text

    def types(self, types: Iterable[Type]) -> str:
        """Return types separated by commas."""
        return ", ".join(map(self.type, types))

    def signature(self, op: Op) -> str:
        """Return `(operand types) -> result types`."""
        results = op.result_types
        single = len(results) == 1 and not isinstance(results[0], FunctionType)
        shown = self.type(results[0]) if single else f"({self.types(results)})"
        return f"({self.types(op.operand_types)}) -> {shown}"

    def attribute(self, attribute: Attribute) -> str:
        return format_attribute(attribute)

    def stripped(self, attribute: Attribute, *, typed: bool = True) -> str:
        return format_stripped(attribute, typed=typed)

    def symbol(self, name: str) -> str:
        return format_symbol(name)

    def entries(self, attributes: Mapping[str, Attribute]) -> str:
        """Return ` {...}`, or nothing when there are none."""
        return f" {{{format_entries(attributes)}}}" if attributes else ""

    def dictionary(self, op: Op, without: Iterable[str]) -> str:
        """Return `{...}` of all attributes but `without`; nothing when there are none."""
        if not op.attributes and not op.discardable:
            return ""
        without = {*without, *SEGMENTS}
        if op.definition is not None:
            entries = self._encoded(op, op.attributes, without)
        entries |= {name: value for name, value in op.discardable.items() if name not in without}
        return f"{{{format_entries(entries)}}}" if entries else ""

    # --- regions ---

    def region(
        self,
        region: Region,
        *,
        isolated: bool = False,
        dialect: str = "",
        arguments: Sequence[str] | None = None,
        may_be_empty: bool = False,
    ) -> str:
        """Return `{...}`. `arguments` are the names of the first block's arguments if the op's form shows them.

        `may_be_empty`: `{ }` parses as one empty block, which then needs no label.
        """
        outer = self._enter(isolated, dialect)
        names = [f"^bb{index}" for index in range(len(region.blocks))]
        outer_labels, self._labels = self._labels, names
        lines = ["{"]
        for index, block in enumerate(region.blocks):
            shown = index == 0 and arguments is not None
            if shown:
                self._names.update(zip(block.arguments, arguments or (), strict=True))
            elif index or block.arguments or not (block.ops or may_be_empty):
                lines.append(self._label(names[index], block))
            lines += [self.indentation + self.op(op) for op in block.ops]
        self._labels = outer_labels
        self._leave(outer)
        lines.append(f"{self.indentation}}}")
        return "\n".join(lines)

    def _enter(self, isolated: bool, dialect: str) -> tuple[Any, ...]:
        outer = (self.indentation, self.default_dialect, self._used, self._repeats, self._numbers, self._arguments)
        self.indentation += _STEP
        self.default_dialect = dialect
        if isolated:
            self._used, self._repeats, self._numbers, self._arguments = set(), {}, 0, 0
        elif self.keep_names:
            self._used = set(self._used)
        return (*outer, isolated)

    def _leave(self, outer: tuple[Any, ...]) -> None:
        self.indentation, self.default_dialect, used, repeats, numbers, arguments, isolated = outer
        if isolated:
            self._used, self._repeats, self._numbers, self._arguments = used, repeats, numbers, arguments
        elif self.keep_names:
            self._used = used

    def _label(self, label: str, block: Block) -> str:
        indentation = self.indentation.removesuffix(_STEP)
        if not block.arguments:
            return f"{indentation}{label}:"
        names = self.enter_arguments(block, "arg")
        return f"{indentation}{label}({', '.join(self.shown_arguments(names, block))}):"

    def shown_arguments(self, names: Sequence[str], block: Block) -> list[str]:
        """Return `%name: type` of each argument of `block`."""
        pairs = zip(names, block.arguments, strict=True)
        return [f"{name}: {self.type(argument.type)}{self.located(argument)}" for name, argument in pairs]

    def enter_arguments(self, block: Block, prefix: str) -> list[str]:
        """Name the arguments of `block`."""
        names = []
        for argument in block.arguments:
            hint = argument.name_hint if self.keep_names else None
            name = f"%{self._fresh(hint, prefix)}"
            self._names[argument] = name
            names.append(name)
        return names

    def function_body(self, op: Function) -> tuple[str, str]:
        """Return a function's arguments as its header shows them, and its body."""
        region = op.regions[0]
        outer = self._enter(True, "func")
        self.indentation = outer[0]
        names = self.enter_arguments(region.blocks[0], "arg")
        attributes = op.argument_attributes
        parts = zip(names, region.blocks[0].arguments, attributes, strict=True)
        header = ", ".join(
            f"{name}: {self.type(a.type)}{self.entries(entries)}{self.located(a)}" for name, a, entries in parts
        )
        # The body shares the names of the header: it is not isolated from that.
        body = self.region(region, dialect="func", arguments=names)
        self._leave(outer)
        return header, body

    # --- names ---

    def _fresh(self, hint: str | None, prefix: str) -> str:
        """Return a name that is not visible here, without its `%`."""
        if hint and _NAME.fullmatch(hint):
            return self._unique(hint)
        if prefix == "arg":
            self._arguments += 1
            return self._unique(f"arg{self._arguments - 1}")
        if prefix:
            return self._unique(prefix)
        self._numbers += 1
        return self._unique(str(self._numbers - 1)) if self.keep_names else str(self._numbers - 1)

    def _unique(self, base: str) -> str:
        name = base
        while name in self._used:
            repeat = self._repeats.get(base, 0)
            self._repeats[base] = repeat + 1
            name = f"{base}_{repeat}" if not base.isdecimal() else str(int(base) + repeat + 1)
        self._used.add(name)
        return name


class TypeAliases:
    """Aliases for components of types that would be too long written out; each is defined once, in `lines`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._names: dict[Type, str] = {}
        self._inside = False

    def __call__(self, type: TypeOfTypes) -> str | None:
        if type.parts <= (_SMALL if self._inside else _LARGE):
            return None
        name = self._names.get(type)
        if name is None:
            outer, self._inside = self._inside, True
            text = type.written()
            self._inside = outer
            name = self._names[type] = f"!type{len(self.lines)}"
            self.lines.append(f"{name} = {text}")
        return name


def _isolated(op: Op) -> bool:
    """Return whether names start again inside; in MLIR the region of any other op cannot reuse a visible name."""
    return isinstance(op, (Function, Module))


def print_op(op: Op, *, generic: bool = False, keep_names: bool = False, debug_info: bool = False) -> str:
    """Return the text of `op`; that of a module ends with a newline.

    `generic` prints every op in MLIR's generic form, `keep_names` the value names of the source if they are unique,
    `debug_info` the `loc(...)` of ops and block arguments.
    """
    printer = Printer(generic=generic, keep_names=keep_names, debug_info=debug_info)
    if isinstance(op, Module):
        aliases = TypeAliases()
        with spelled_by(aliases):
            text = printer.op(op)
        return "\n".join([*aliases.lines, text]) + "\n"
    if not isinstance(op, Function):
        _name_outer_values(printer, op)
    return printer.op(op)


def _name_outer_values(printer: Printer, op: Op) -> None:
    """Name the values from outside of an op printed alone as in the source."""
    for inner in op.walk():
        for value in inner.operands:
            name = value.name_hint
            if name is not None:
                printer._names.setdefault(value, f"%{name}")


register_printer(print_op)
