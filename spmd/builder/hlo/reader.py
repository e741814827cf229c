"""HLO text taken apart: a module's header, its computations, their instructions.

    [ROOT] %name = shape opcode(operands), attribute=value, ...

Nothing here depends on what an opcode means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from spmd.builder.hlo.places import PlaceTables
from spmd.builder.hlo.tokens import ATTRIBUTES, OPERANDS, Tokens
from spmd.builder.shape import Shape
from spmd.errors import Diagnostic, Location, ParseError, Source

_NAME = re.compile(r"%?[A-Za-z_][\w.\-]*+|%[\w.\-]++")
_OPCODE = re.compile(r"[a-z][\w\-]*")
_NUMBER = re.compile(r"[-\d]|(?:true|false|nan|inf)\b")
_LAYOUT = re.compile(r"\{\s*\d[^{}]*\}")
_OPENING, _ENDS = frozenset("([{"), frozenset((",", "}", ")", ""))
#: What stands in the brackets of these is no list of operands.
_LITERALS = frozenset(("constant", "parameter"))
#: How deep instructions may stand in the operands of others.
_DEEPEST = 100


@dataclass(frozen=True, slots=True)
class AttributeText:
    """The text of an attribute's value, which begins at `offset`, and where the attribute stands."""

    text: str
    offset: int
    location: Location

    def _inner(self) -> Tokens:
        """Return the words of a value in braces, without these."""
        return Tokens(self.location.source, self.offset + 1, self.text[1:-1])

    def entries(self) -> list[AttributeText]:
        """Return the entries of a list in braces, each where it stands; of a value that is no list, that."""
        if not self.text.startswith("{"):
            return [self]
        tokens, found, first = self._inner(), list[AttributeText](), 0
        for at in tokens.separators():
            if at > first:
                found.append(AttributeText(tokens.text(first, at), tokens.offsets[first], tokens.location(first)))
            first = at + 1
        return found

    def computation(self, name: str) -> ComputationText:
        """Return the computation whose instructions stand in braces where the name of one may, as `name`."""
        return ComputationText(name, False, _Reader(self._inner()).instructions(""), self.location)


#: Attributes that name a computation which is applied to elements.
_APPLIED = ("to_apply", "select", "scatter")


class Attributes(dict[str, str]):
    """The texts of an instruction's attributes, but for its metadata, by their names.

    `applied` are the names of the computations that are applied to elements; `others` the attributes beside these.
    """

    __slots__ = ("applied", "others")

    def __init__(self, texts: Mapping[str, str]) -> None:
        super().__init__(texts)
        self.applied = tuple([self[name].lstrip("%") for name in _APPLIED if name in self])
        self.others = tuple([item for item in self.items() if item[0] not in _APPLIED])


@dataclass(slots=True)
class Instruction:
    """One instruction; `shape` is None where the text has none, `text` what stands for operands of a constant."""

    name: str
    is_root: bool
    shape: Shape | None
    opcode: str
    operands: tuple[str, ...]
    text: str
    attributes: Attributes
    metadata: str
    source: Source
    offset: int

    @property
    def location(self) -> Location:
        return Location(self.source, self.offset)

    def attribute(self, name: str) -> AttributeText:
        """Return an attribute that is there, with its place."""
        text = self.attributes[name]
        offset = self.source.text.index(text, self.offset)
        return AttributeText(text, offset, Location(self.source, offset))

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


def _is_shape(word: str) -> bool:
    """Return whether a word is the shape of an array: others have no brackets, or none behind a letter."""
    return "[" in word and word[0] not in '"{['


def read_module(text: str, name: str) -> ModuleText:
    """Return the parts of HLO text; ParseError with the place where it is not HLO."""
    return _Reader(Tokens(Source(name, text), 0, text)).module()


class _Reader:
    """Reads words in their order; `at` is the number of the next one."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.words = tokens.words
        self.at = 0
        self._shapes: dict[str, Shape] = {}
        #: Attributes by their text, as XLA prints them: before an instruction's metadata and behind.
        self._printed: dict[tuple[str, str], Attributes] = {}
        self._nested: list[Instruction] = []
        self._depth = 0

    def module(self) -> ModuleText:
        """Read `HloModule name, attributes`, which may be missing, then computations and the tables of a dump.

        The entry is the last computation where none says that it is.
        """
        location, name, attributes = self.tokens.location(0), "", dict[str, AttributeText]()
        if self._take("HloModule"):
            location, name = self.tokens.location(self.at), self._name("the name of the module")
            self._take(":")
            attributes = self._attributes()
        computations: dict[str, ComputationText] = {}
        entry, places = None, PlaceTables()
        while self.words[self.at]:
            if self._table(places):
                continue
            computation = self._computation()
            if computation.name in computations:
                raise ParseError(f"computation {computation.name} is defined twice", computation.location)
            computations[computation.name] = computation
            entry = computation if computation.is_entry or entry is None or not entry.is_entry else entry
        if entry is None:
            raise ParseError("HLO text is HloModule and a name, and computations behind it", location)
        return ModuleText(name or entry.name, attributes, computations, entry, places, location)

    def _table(self, places: PlaceTables) -> bool:
        """Read the table of a dump that stands here, if there is one."""
        position = self.tokens.offsets[self.at]
        after = places.read(self.tokens.source.text, position)
        self.at = self.tokens.behind(after) if after > position else self.at
        return after > position

    def _computation(self) -> ComputationText:
        is_entry, start = self._take("ENTRY"), self.at
        name = self._name("a computation: a name, and instructions in { }")
        if self.words[self.at] == "(":
            self.at = self.tokens.closing(self.at) + 1
            if self._take("->"):
                self._shape()
        if not self._take("{"):
            raise self.tokens.error("expected { and the instructions of the computation", self.at)
        instructions = self.instructions("}")
        self._attributes()  # such as execution_thread
        return ComputationText(name, is_entry, instructions, self.tokens.location(start))

    def instructions(self, end: str) -> tuple[Instruction, ...]:
        """Return the instructions before the word `end`, which is behind then."""
        start, found = self.at, list[Instruction]()
        while not self._take(end):
            if not self.words[self.at]:
                raise self.tokens.error("the { is never closed", start)
            instruction = self._instruction()
            found += [*self._nested, instruction]
            self._nested.clear()
        roots = [instruction for instruction in found if instruction.is_root]
        if len(roots) > 1:
            raise ParseError("a computation has one ROOT", roots[1].location)
        if not found:
            raise self.tokens.error("the computation has no instructions", start)
        return tuple(found)

    def _instruction(self) -> Instruction:
        if self.tokens.instructions[self.at][0] is not None:
            return self._line()
        is_root, start = self._take("ROOT"), self.at
        if not self._begins_instruction(start):
            raise self.tokens.error("expected an instruction: name = shape opcode(operands)", start)
        self.at += 2
        call = self._call(self.words[start].removeprefix("%"), start, self._optional_shape())
        texts = {name: attribute.text for name, attribute in self._attributes().items()}
        call.is_root, call.metadata, call.attributes = is_root, texts.pop("metadata", ""), Attributes(texts)
        return call

    def _line(self) -> Instruction:
        """Return the instruction that is the next word."""
        lead, name, shape_text, opcode, inside, before, metadata, behind = self.tokens.instructions[self.at]
        shape = self._shapes.get(shape_text) or self._shape_of(shape_text, self.at)
        attributes = self._printed.get((before, behind))
        if attributes is None:
            pairs = ATTRIBUTES.findall(before + behind)
            attributes = self._printed[before, behind] = Attributes(dict(pairs))
            if len(attributes) < len(pairs):
                names = [pair[0] for pair in pairs]
                twice = next(name for name in names if names.count(name) > 1)
                raise self.tokens.error(f"attribute {twice} is there twice", self.at)
        operands, text = tuple[str, ...](), ""
        if opcode in _LITERALS:
            text = inside.strip()
        elif "[" in inside or "/" in inside:
            operands = tuple([self._typed(*operand) for operand in OPERANDS.findall(inside)])
        elif inside:
            operands = tuple(inside.replace("%", "").split(", "))
        offset = self.tokens.offsets[self.at] + len(lead)
        self.at += 1
        return Instruction(
            name, "R" in lead, shape, opcode, operands, text, attributes, metadata or "", self.tokens.source, offset
        )

    def _typed(self, shape_text: str, name: str) -> str:
        """Return the name of an operand; ParseError where what stands before it is no shape."""
        if shape_text and shape_text not in self._shapes:
            self._shape_of(shape_text, self.at)
        return name

    def _begins_instruction(self, at: int) -> bool:
        return self.words[at] != "" and self.words[at + 1] == "=" and _NAME.fullmatch(self.words[at]) is not None

    def _call(self, name: str, start: int, shape: Shape | None) -> Instruction:
        """Read `opcode(operands)`."""
        opcode, first = self.words[self.at], self.at + 2
        if not _OPCODE.fullmatch(opcode) or self.words[first - 1] != "(":
            raise self.tokens.error("expected an opcode and its operands in ( )", self.at)
        operands, text = list[str](), ""
        if opcode in _LITERALS:
            end = self.tokens.closing(first - 1)
            text, self.at = self.tokens.text(first, end), end + 1
        else:
            self.at = first
            while not self._take(")"):
                operands.append(self._operand())
                if not self._take(",") and self.words[self.at] != ")":
                    raise self.tokens.error("expected , or ) behind an operand", self.at)
        source, offset = self.tokens.source, self.tokens.offsets[start]
        return Instruction(name, False, shape, opcode, tuple(operands), text, Attributes({}), "", source, offset)

    def _operand(self) -> str:
        """Return a name, or a call without attributes, which is an instruction of its own before this one.

        The shape before either may be missing.
        """
        start, shape = self.at, self._optional_shape()
        if not self.words[self.at] or self.words[self.at + 1] != "(":
            return self._name("the name of an operand")
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self.tokens.error(f"instructions stand more than {_DEEPEST} deep in the operands of others", start)
        nested = self._call(f"{self.words[self.at]}.operand.{start}", start, shape)
        self._depth -= 1
        self._nested.append(nested)
        return nested.name

    # --- words and shapes --------------------------------------------------------------------------------------------

    def _take(self, word: str) -> bool:
        """Return whether `word` is next; it is then behind."""
        taken = self.words[self.at] == word
        self.at += taken
        return taken

    def _name(self, what: str) -> str:
        word = self.words[self.at]
        if not _NAME.fullmatch(word):
            raise self.tokens.error(f"expected {what}", self.at)
        self.at += 1
        return word.removeprefix("%")

    def _optional_shape(self) -> Shape | None:
        word = self.words[self.at]
        return self._shape() if word == "(" or _is_shape(word) else None

    def _shape(self) -> Shape:
        start = self.at
        end = self.tokens.closing(start) + 1 if self.words[start] == "(" else start + 1
        if self.words[start] and "{" not in self.words[start] and _LAYOUT.fullmatch(self.words[end]):
            end += 1
        text = self.tokens.text(start, end)
        shape = self._shapes.get(text) or self._shape_of(text, start)
        self.at = end
        return shape

    def _shape_of(self, text: str, at: int) -> Shape:
        """Return the shape of a text; ParseError at word `at`."""
        try:
            shape = self._shapes[text] = Shape.parse(text)
        except ValueError as error:
            raise self.tokens.error(str(error), at) from None
        return shape

    # --- attributes --------------------------------------------------------------------------------------------------

    def _attributes(self) -> dict[str, AttributeText]:
        """Read `, name=value` as often as it is there."""
        found: dict[str, AttributeText] = {}
        while self._take(","):
            name, start = self.words[self.at], self.at
            if not self._begins_instruction(start):
                raise self.tokens.error("expected attribute=value", start)
            if name in found:
                raise self.tokens.error(f"attribute {name} is there twice", start)
            self.at = self._value_end(start + 2)
            value = self.tokens.text(start + 2, self.at)
            found[name] = AttributeText(value, self.tokens.offsets[start + 2], self.tokens.location(start))
        return found

    def _value_end(self, at: int) -> int:
        """Return the end of the value that begins with word `at`: a comma outside of brackets, or a word behind a
        space, unless that is the number behind a shape."""
        words, first = self.words, at
        while (word := words[at]) not in _ENDS:
            is_apart = at > first and word[0] not in "([{" and self.tokens.is_spaced(at)
            if is_apart and not (_is_shape(words[at - 1]) and _NUMBER.match(word)):
                break
            at = self.tokens.closing(at) if word in _OPENING else at
            at += 1
            if words[at] == "," and words[at + 1] == "device_ids":
                at += 3
        return at


_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|[0-7]{3}|.)", re.S)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


def unquoted(text: str) -> str:
    """Return the characters of a string in quotes; any other text as it is."""
    if text[:1] != '"':
        return text

    def character(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 1:
            return _ESCAPED.get(code, code)
        return chr(int(code[1:], 16) if code[0] == "x" else int(code, 8))

    return _ESCAPE.sub(character, text[1:-1])


_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|/\*.*?\*/|[{}()\[\],]', re.S)


def split(text: str) -> list[str]:
    """Return the entries of a list, split at commas outside of brackets and strings; outer brackets are taken off."""
    text = re.sub(r"/\*.*?\*/", "", text).strip()
    if text[:1] in ("{", "[") and text[-1:] in ("}", "]"):
        text = text[1:-1]
    parts, depth, start = [], 0, 0
    for match in _BRACKETS.finditer(text):
        if match[0] in "{([":
            depth += 1
        elif match[0] in "})]":
            depth -= 1
        elif match[0] == "," and depth == 0:
            parts.append(text[start : match.start()].strip())
            start = match.end()
    parts.append(text[start:].strip())
    return [part for part in parts if part]
