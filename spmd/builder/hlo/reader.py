"""HLO text taken apart: a module's header, its computations, their instructions.

    [ROOT] %name = shape opcode(operands), attribute=value, ...

Nothing here knows what an opcode means.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from spmd.builder.hlo.places import PlaceTables
from spmd.builder.shape import Shape, parse_shape
from spmd.errors import Diagnostic, Location, ParseError, Source

_NAME = r"%?([A-Za-z_][\w.\-]*)"
_COMPUTATION = re.compile(rf"\s*(ENTRY\s+)?{_NAME}\s*(?=[({{])")
_INSTRUCTION = re.compile(rf"\s*(ROOT\s+)?(?!ROOT\s){_NAME}\s*=\s*")
_OPCODE = re.compile(r"\s*([a-z][\w\-]*)\(")
_ATTRIBUTE = re.compile(r"\s*,?\s*([A-Za-z_][\w\-]*)\s*=\s*")
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|/\*.*?\*/|//[^\n]*|[{}()\[\],\n]', re.S)
_OPENING, _CLOSING = "{([", "})]"
_ANOTHER = re.compile(r"(?<!,)\s+([\w%])")
#: The comma inside of `mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0)) {'y'}`, which is one value.
_DEVICE_IDS = re.compile(r",\s*device_ids=\(")


@dataclass(frozen=True)
class AttributeText:
    """The text of an attribute's value, and where it stands."""

    text: str
    location: Location


@dataclass(frozen=True)
class Instruction:
    name: str
    is_root: bool
    shape: Shape
    opcode: str
    operands: str
    attributes: dict[str, AttributeText]
    location: Location

    def fail(self, message: str) -> ParseError:
        return ParseError(Diagnostic(self.location, message, self.opcode))


@dataclass(frozen=True)
class ComputationText:
    name: str
    is_entry: bool
    instructions: tuple[Instruction, ...]
    location: Location


@dataclass(frozen=True)
class ModuleText:
    name: str
    attributes: dict[str, AttributeText]
    computations: dict[str, ComputationText]
    entry: ComputationText
    places: PlaceTables
    location: Location


def read_module(text: str, name: str) -> ModuleText:
    """The parts of HLO text; ParseError with the place where it is not HLO."""
    source = Source(name, text)
    header = re.compile(rf"(?:\s|//[^\n]*|/\*.*?\*/)*HloModule\s+{_NAME}", re.S).match(text)
    if header is None:
        raise ParseError("HLO text begins with HloModule and a name", Location(source, 0))
    end = _line_end(text, header.end())
    attributes = dict(_attributes(source, header.end(), end))
    computations: dict[str, ComputationText] = {}
    entry = None
    position, places = end, PlaceTables()
    while (position := _skip(text, position)) < len(text):
        after = places.read(text, position)
        if after > position:
            position = after
            continue
        computation, position = _computation(source, position)
        if computation.name in computations:
            raise ParseError(f"computation {computation.name} is defined twice", computation.location)
        computations[computation.name] = computation
        entry = computation if computation.is_entry else entry
    if entry is None:
        raise ParseError("the module has no ENTRY computation", Location(source, 0))
    return ModuleText(header[1], attributes, computations, entry, places, Location(source, header.start(1)))


_SPACE = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.S)


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _line_end(text: str, position: int) -> int:
    """The end of the logical line: the first newline outside of brackets and strings, with no comma before it, nor an =
    whose value is in braces below."""
    depth = 0
    for match in _BRACKETS.finditer(text, position):
        mark = match[0]
        if mark in _OPENING:
            depth += 1
        elif mark in _CLOSING:
            depth -= 1
        elif depth <= 0 and (mark == "\n" or mark.startswith("//")):
            last = text[position : match.start()].rstrip()[-1:] if mark == "\n" else ""
            if last == "," or (last == "=" and text.startswith("{", _skip(text, match.end()))):
                continue
            return match.start()
    return len(text)


def _closing(source: Source, position: int) -> int:
    """Where the bracket that opens at `position` is closed."""
    depth = 0
    for match in _BRACKETS.finditer(source.text, position):
        if match[0] in _OPENING:
            depth += 1
        elif match[0] in _CLOSING:
            depth -= 1
            if depth == 0:
                return match.start()
    raise ParseError(f"the {source.text[position]} is never closed", Location(source, position))


def _computation(source: Source, position: int) -> tuple[ComputationText, int]:
    text = source.text
    match = _COMPUTATION.match(text, position)
    if match is None:
        raise ParseError("expected a computation: a name, and instructions in { }", Location(source, position))
    start = match.end()
    if text[start] == "(":
        start = _skip(text, _closing(source, start) + 1)
        if text.startswith("->", start):
            try:
                start = _skip(text, parse_shape(text, start + 2)[1])
            except ValueError as error:
                raise ParseError(str(error), Location(source, start)) from None
    if text[start : start + 1] != "{":
        raise ParseError("expected { and the instructions of the computation", Location(source, start))
    end = _closing(source, start)
    location = Location(source, match.start(2))
    instructions = tuple(_instructions(source, start + 1, end))
    if not instructions:
        raise ParseError(f"computation {match[2]} has no instructions", location)
    after = end + 1
    tail = re.compile(r",[^\n]*").match(text, after)  # attributes of the computation, such as execution_thread
    return ComputationText(match[2], bool(match[1]), instructions, location), tail.end() if tail else after


def inline_computation(attribute: AttributeText, name: str) -> ComputationText:
    """The computation whose instructions stand in braces where the name of one may, as `name`."""
    source = attribute.location.source
    position = source.text.index("{", attribute.location.offset)
    location = Location(source, position)
    instructions = tuple(_instructions(source, position + 1, _closing(source, position)))
    if not instructions:
        raise ParseError("the computation has no instructions", location)
    return ComputationText(name, False, instructions, location)


def entries(attribute: AttributeText) -> list[AttributeText]:
    """The entries of a list in braces, each where it stands; of a value that is no list, that."""
    source, text = attribute.location.source, attribute.text
    if not text.startswith("{"):
        return [attribute]
    position = source.text.index("{", attribute.location.offset)
    end, found, start, depth = _closing(source, position), [], position + 1, 0
    for match in _BRACKETS.finditer(source.text, start, end):
        depth += (match[0] in _OPENING) - (match[0] in _CLOSING)
        if match[0] == "," and depth == 0:
            found.append((start, match.start()))
            start = match.end()
    parts = [(_skip(source.text, first), stop) for first, stop in [*found, (start, end)]]
    return [AttributeText(source.text[a:b].strip(), Location(source, a)) for a, b in parts if source.text[a:b].strip()]


def _instructions(source: Source, position: int, end: int) -> Iterator[Instruction]:
    text = source.text
    while True:
        position = _skip(text, position)
        if position >= end:
            return
        stop = min(_line_end(text, position), end)
        yield _instruction(source, position, stop)
        position = stop


def _instruction(source: Source, position: int, end: int) -> Instruction:
    text = source.text
    match = _INSTRUCTION.match(text, position, end)
    if match is None:
        raise ParseError("expected an instruction: name = shape opcode(operands)", Location(source, position))
    location = Location(source, match.start(2))
    try:
        shape, after = parse_shape(text, match.end())
    except ValueError as error:
        raise ParseError(str(error), Location(source, match.end())) from None
    opcode = _OPCODE.match(text, after, end)
    if opcode is None:
        raise ParseError("expected an opcode and its operands in ( )", Location(source, after))
    close = _closing(source, opcode.end() - 1)
    attributes = dict(_attributes(source, close + 1, end))
    operands = text[opcode.end() : close]
    return Instruction(match[2], bool(match[1]), shape, opcode[1], operands, attributes, location)


def _attributes(source: Source, position: int, end: int) -> Iterator[tuple[str, AttributeText]]:
    text = source.text
    while (position := _skip(text, position)) < end and text[position:end].strip(" ,"):
        match = _ATTRIBUTE.match(text, position, end)
        if match is None:
            raise ParseError("expected attribute=value", Location(source, position))
        position = _value_end(source, match.end(), end)
        yield match[1], AttributeText(text[match.end() : position].strip(), Location(source, match.start(1)))


def _value_end(source: Source, position: int, end: int) -> int:
    """Where an attribute's value ends: at the comma outside of brackets, or with the line."""
    text, depth, outside = source.text, 0, position
    for match in _BRACKETS.finditer(text, position, end):
        if depth == 0:
            _check_one_value(source, outside, match.start())
        if match[0] in _OPENING:
            depth += 1
        elif match[0] in _CLOSING:
            depth -= 1
        elif match[0] == "," and depth == 0 and not _DEVICE_IDS.match(text, match.start()):
            return match.start()
        outside = _skip(text, match.end()) if match[0][0] in "/," else match.end()
    if depth == 0:
        _check_one_value(source, outside, end)
    return end


def _check_one_value(source: Source, position: int, end: int) -> None:
    """No word follows behind a space in this part of a value: it would belong to something else."""
    match = _ANOTHER.search(source.text, position, end)
    if match is not None:
        raise ParseError("expected ',' or a new line behind an attribute's value", Location(source, match.start(1)))


_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|[0-7]{3}|.)", re.S)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


def unquoted(text: str) -> str:
    """The characters of a string in quotes; any other text as it is."""
    if text[:1] != '"':
        return text

    def character(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 1:
            return _ESCAPED.get(code, code)
        return chr(int(code[1:], 16) if code[0] == "x" else int(code, 8))

    return _ESCAPE.sub(character, text[1:-1])


def split(text: str) -> list[str]:
    """The entries of a list, split at commas outside of brackets and strings; outer brackets are taken off."""
    text = re.sub(r"/\*.*?\*/", "", text).strip()
    if text[:1] in ("{", "[") and text[-1:] in ("}", "]"):
        text = text[1:-1]
    parts, depth, start = [], 0, 0
    for match in _BRACKETS.finditer(text):
        if match[0] in _OPENING:
            depth += 1
        elif match[0] in _CLOSING:
            depth -= 1
        elif match[0] == "," and depth == 0:
            parts.append(text[start : match.start()].strip())
            start = match.end()
    parts.append(text[start:].strip())
    return [part for part in parts if part]
