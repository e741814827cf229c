"""The elements of a form that denote a declared operand, attribute, region or type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from spmd import types as t
from spmd.dialects import kinds
from spmd.dialects.core import AttributeDef, OpDef
from spmd.dialects.structs import STRUCTS
from spmd.ir import AttributeValue, Op
from spmd.ir.attributes import Attribute
from spmd.syntax.attribute_parser import ATTRIBUTE_PARSERS
from spmd.syntax.directives import Argument, Directive

if TYPE_CHECKING:
    from spmd.syntax.op_parser import OperationParser
    from spmd.syntax.operand_parser import OperationState
    from spmd.syntax.printer import Printer


# --- operands --------------------------------------------------------------------------------------------------------


class OperandVariable(Directive):
    def __init__(self, name: str) -> None:
        self.name = name

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        parser.parse_operand(state)

    def print(self, printer: Printer, op: Op) -> str:
        return printer.name(op.operand(self.name))

    def begins(self, parser: OperationParser) -> bool:
        return parser.tokens[parser.position][:1] == "%"


class OperandsVariable(Directive):
    """A variadic operand."""

    def __init__(self, name: str) -> None:
        self.name = name

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        note_size(state, self.name, parser.parse_operand_list(state))

    def print(self, printer: Printer, op: Op) -> str:
        return printer.names(op.operand_group(self.name))

    def present(self, op: Op) -> bool:
        return bool(op.operand_group(self.name))

    def begins(self, parser: OperationParser) -> bool:
        return parser.tokens[parser.position][:1] == "%"


def note_size(state: OperationState, name: str, count: int) -> None:
    """Record how many values a variadic operand has."""
    if state.sizes is None:
        state.sizes = {}
    state.sizes[name] = count


class AllOperands(Directive):
    def __init__(self, definition: OpDef) -> None:
        variadic = [entry.name for entry in definition.operands if entry.variadic]
        self.variadic = variadic[0] if len(variadic) == 1 else None
        self.fixed = len(definition.operands) - 1

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        count = parser.parse_operand_list(state)
        if self.variadic is not None:
            note_size(state, self.variadic, count - self.fixed)

    def print(self, printer: Printer, op: Op) -> str:
        return printer.names(op.operands)

    def present(self, op: Op) -> bool:
        return bool(op.operands)

    def begins(self, parser: OperationParser) -> bool:
        return parser.tokens[parser.position][:1] == "%"


# --- types -----------------------------------------------------------------------------------------------------------


class OperandType(Directive):
    def __init__(self, name: str, variadic: bool) -> None:
        self.name = name
        self.variadic = variadic

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        if state.typed is None:
            state.typed = {}
        state.typed[self.name] = type_sequence(parser) if self.variadic else [parser.parse_type()]

    def print(self, printer: Printer, op: Op) -> str:
        return printer.types([value.type for value in op.operand_group(self.name)])

    def present(self, op: Op) -> bool:
        return bool(op.operand_group(self.name))


class ResultType(Directive):
    """The type of a result, or of all of them; results are named in order."""

    def __init__(self, first: int, count: int | None) -> None:
        self.first = first
        self.count = count

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        types = [parser.parse_type()] if self.count == 1 else type_sequence(parser)
        state.result_types = [*(state.result_types or ()), *types]

    def print(self, printer: Printer, op: Op) -> str:
        last = None if self.count is None else self.first + self.count
        return printer.types(op.result_types[self.first : last])

    def present(self, op: Op) -> bool:
        return bool(op.results)


class AllOperandTypes(Directive):
    def parse(self, parser: OperationParser, state: OperationState) -> None:
        state.operand_types = type_sequence(parser)

    def print(self, printer: Printer, op: Op) -> str:
        return printer.types(op.operand_types)

    def present(self, op: Op) -> bool:
        return bool(op.operands)


def type_sequence(parser: OperationParser) -> list[t.Type]:
    """Parse types separated by commas, as many as there are."""
    if not parser.at_type():
        return []
    types = [parser.parse_type()]
    while parser.tokens[parser.position] == ",":
        parser.position += 1
        types.append(parser.parse_type())
    return types


class FunctionalType(Directive):
    def parse(self, parser: OperationParser, state: OperationState) -> None:
        signature = parser.types.get(parser.tokens[parser.position])
        if signature.__class__ is t.FunctionType:
            parser.position += 1
        else:
            signature = parser.parse_function_type()
        state.operand_types = signature.inputs
        state.result_types = signature.results

    def print(self, printer: Printer, op: Op) -> str:
        return printer.signature(op)


# --- attributes ------------------------------------------------------------------------------------------------------


class AttributeDictionary(Directive):
    def __init__(self, named: set[str], keyword: str = "") -> None:
        self.named = named
        self.keyword = keyword

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        token = parser.tokens[parser.position]
        if token == "{" and not self.keyword:
            parser.parse_entries(state)
        elif token == "<":
            parser.position += 1
            parser.parse_entries(state)
            parser.expect(">")
        elif self.keyword and parser.consume_if(self.keyword):
            parser.parse_entries(state)

    def print(self, printer: Printer, op: Op) -> str:
        text = printer.dictionary(op, self.named)
        return f"{self.keyword} {text}" if text and self.keyword else text

    def present(self, op: Op) -> bool:
        return any(name not in self.named for name in (*op.attributes, *op.discardable))


class AttributeVariable(Directive):
    """An attribute in the shortest form that its kind allows."""

    def __init__(self, definition: OpDef, declared: AttributeDef) -> None:
        self.name = declared.name
        self.declared = declared
        self.kind = declared.kind
        self.read = self._reader()

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        position = parser.position
        value = self.read(parser)
        if isinstance(value, Attribute):
            try:
                value = self.kind.decode(value)
            except ValueError as error:
                parser.fail(f"attribute '{self.name}': {error}", position)
        state.attributes[self.name] = value

    def print(self, printer: Printer, op: Op) -> str:
        if self.name not in op.attributes:
            return (
                ""
                if self.declared.default is None or self.declared.optional
                else self._text(printer, op, op[self.name])
            )
        return self._text(printer, op, op.attributes[self.name])

    def _text(self, printer: Printer, op: Op, value: object) -> str:
        if self.kind.cases:
            return str(value)
        return printer.stripped(self.kind.encode(value), typed=self.kind.type is None)

    def present(self, op: Op) -> bool:
        return self.name in op.attributes

    def begins(self, parser: OperationParser) -> bool:
        token = parser.tokens[parser.position]
        if self.kind.cases:
            return token in self.kind.cases
        return bool(token) and (token[0] in '"@#[{-' or token[0].isdigit() or token.split("<", 1)[0] in _VALUE_WORDS)

    def _reader(self) -> Callable[[OperationParser], AttributeValue]:
        kind = self.kind
        if kind.cases:
            return self._case
        if kind in (kinds.I64_ARRAY, kinds.I32_ARRAY):
            return _integers
        if kind is kinds.BOOL_ARRAY:
            return _booleans
        if kind.type is not None:
            return self._number
        struct = _STRUCT_SPELLINGS.get(kind.text)
        if struct is not None:
            dialect, mnemonic = struct
            return lambda parser: _stripped_struct(parser, dialect, mnemonic)
        return lambda parser: parser.parse_attribute(typed=kind is not kinds.STRING)

    def _case(self, parser: OperationParser) -> AttributeValue:
        token = parser.tokens[parser.position]
        if token in self.kind.cases:
            parser.position += 1
            return token
        if token[:1] in ('"', "#") or token[:1].isdigit():
            return parser.parse_attribute(typed=not token.startswith('"'))
        parser.expected(f"{self.name} to be one of: {', '.join(self.kind.cases)}")

    def _number(self, parser: OperationParser) -> AttributeValue:
        number = parser.parse_attribute(self.kind.type, typed=False)
        position = parser.position
        # The type may be given; any other colon belongs to what follows.
        if parser.tokens[position] == ":" and parser.tokens[position + 1] == str(self.kind.type):
            parser.position += 2
        return number


def _integers(parser: OperationParser) -> AttributeValue:
    token = parser.tokens[parser.position]
    return parser.parse_integer_list() if token[:1] == "[" else parser.parse_attribute()


def _booleans(parser: OperationParser) -> AttributeValue:
    if not parser.at("["):
        return parser.parse_attribute()
    parser.position += 1
    return tuple([_boolean(parser) for _ in parser.items("]")])


def _boolean(parser: OperationParser) -> bool:
    if parser.consume_if("true"):
        return True
    if parser.consume_if("false"):
        return False
    return parser.parse_integer("true or false") != 0


def _stripped_struct(parser: OperationParser, dialect: str, mnemonic: str) -> Attribute:
    if parser.tokens[parser.position][:1] == "#":
        return parser.parse_attribute()
    special = ATTRIBUTE_PARSERS.get((dialect, mnemonic))
    return special(parser) if special is not None else parser.parse_struct(STRUCTS[dialect, mnemonic])


_VALUE_WORDS = frozenset({"true", "false", "unit", "dense", "array", "dense_resource"})
_STRUCT_SPELLINGS: dict[str, tuple[str, str]] = {}


def _fill_spellings() -> None:
    for (dialect, mnemonic), cls in STRUCTS.items():
        _STRUCT_SPELLINGS[str(getattr(cls, "SPELLING", ""))] = (dialect, mnemonic)


# --- regions ---------------------------------------------------------------------------------------------------------


class RegionVariable(Directive):
    def __init__(self, name: str, variadic: bool) -> None:
        self.name = name
        self.variadic = variadic

    def parse(self, parser: OperationParser, state: OperationState) -> None:
        if self.variadic and parser.tokens[parser.position] != "{":
            return
        state.regions += (parser.parse_region(),)
        while self.variadic and parser.consume_if(","):
            state.regions += (parser.parse_region(),)

    def print(self, printer: Printer, op: Op) -> str:
        if self.variadic:
            return ", ".join(printer.region(region) for region in op.regions)
        return printer.region(op.region(self.name))

    def present(self, op: Op) -> bool:
        return bool(op.regions) if self.variadic else bool(op.region(self.name).blocks)

    def begins(self, parser: OperationParser) -> bool:
        return parser.tokens[parser.position] == "{"


# --- by name ---------------------------------------------------------------------------------------------------------


def variable(definition: OpDef, name: str) -> Directive:
    """Return the element `$name`."""
    if not _STRUCT_SPELLINGS:
        _fill_spellings()
    for entry in definition.operands:
        if entry.name == name:
            return OperandsVariable(name) if entry.variadic else OperandVariable(name)
    if name in definition.attribute_table:
        return AttributeVariable(definition, definition.attribute_table[name])
    for region in definition.regions:
        if region.name == name:
            return RegionVariable(name, region.variadic)
    raise ValueError(f"{definition.name}: its form names ${name}, which is not declared")


def types_of(definition: OpDef, name: str) -> Directive:
    """Return the element `type($name)` or `type(operands)`, `type(results)`."""
    if name == "operands" and all(entry.name != "operands" for entry in definition.operands):
        return AllOperandTypes()
    for entry in definition.operands:
        if entry.name == name:
            return OperandType(name, entry.variadic)
    if name == "results" and all(entry.name != "results" for entry in definition.results):
        loose = any(entry.variadic for entry in definition.results)
        return ResultType(0, None if loose or len(definition.results) != 1 else 1)
    for index, entry in enumerate(definition.results):
        if entry.name == name:
            return ResultType(index, None if entry.variadic else 1)
    raise ValueError(f"{definition.name}: its form names type(${name}), which is not declared")


def word(
    definition: OpDef, text: str, arguments: Callable[[], Sequence[Argument]], named: set[str]
) -> Directive | None:
    """Return the element that the word `text` is; None when it is a literal."""
    if text == "type":
        return types_of(definition, arguments()[0].name)
    if text == "qualified":
        return variable(definition, arguments()[0].name)
    if text == "operands":
        return AllOperands(definition)
    if text == "functional-type":
        arguments()
        return FunctionalType()
    if text == "attr-dict":
        return AttributeDictionary(named)
    if text == "attr-dict-with-keyword":
        return AttributeDictionary(named, "attributes")
    return None
