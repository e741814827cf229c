"""The words of HLO text and where each stands. Lines have no meaning: XLA's lexer skips spaces and comments."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate, chain, compress

from spmd.errors import Location, ParseError, Source

_STRING = r'"(?:[^"\\]++|\\.|(?!))*+"'
_COMMENT = r"/\*.*?\*/|//[^\n]*"


def _braces(depth: int) -> str:
    """Return a pattern of balanced braces, with others inside at most `depth` deep."""
    inside = "|" + _braces(depth - 1) if depth else ""
    return rf'\{{(?:[^{{}}"/]++|{_STRING}|{_COMMENT}|/{inside}|(?!))*+\}}'


_ARRAY = r"[a-z]\w*+\[[\d,<=]*+\](?:\{[^{}=\"%\[\]\n]*+\}|(?!))?+"
_IDENTIFIER = r"[A-Za-z_][\w.\-]*+"


def _tuple(depth: int) -> str:
    """Return a pattern of the shape of a tuple, with others inside at most `depth` deep."""
    inside = "|" + _tuple(depth - 1) if depth else ""
    return rf'\((?:[^()"\n]++{inside}|(?!))*+\)'


_COUNT = r"(?:/\*[^*\n]*+\*/|(?!))?+"
_SHAPE = rf"{_ARRAY}|{_tuple(3)}"
_OPERAND = rf"{_COUNT}(?:(?:{_SHAPE}) |(?!))?+%?+{_IDENTIFIER}"
_VALUE = rf'(?:{_braces(3)}|{_STRING}|\[[\d,]*+\](?:<=\[[\d,]*+\](?:T\([\d,]*+\)|(?!))?+|(?!))?+|[^\s{{}}"(),/=\[]++)'
_ATTRIBUTE = rf", (?!metadata=|device_ids=){_IDENTIFIER}={_VALUE}(?=, |\s)"
#: An instruction on a line of its own, spaced as XLA prints it: whether it is a root, its name, shape, opcode, operands
#: (or a literal), attributes, metadata, and the attributes behind these.
_INSTRUCTION = (
    rf"(?<=\n)([ ]*+(?:ROOT |(?!))?+)%?+({_IDENTIFIER}) = ({_SHAPE}) ([a-z][\w\-]*+)"
    rf'\(((?<=[ ]constant\()[^()"/\n]*+|(?<=[ ]parameter\()[^()"/\n]*+|(?:{_OPERAND}(?:, {_OPERAND}|(?!))*+|(?!))?+)\)'
    rf"((?:{_ATTRIBUTE}|(?!))*+)(?:, metadata=({_braces(1)})|(?!))?+((?:{_ATTRIBUTE}|(?!))*+)[ ]*+(?=\n\s*+[%\w}}])"
)
#: An instruction, a string, a comment, the shape of an array, a name or number, the braces of an attribute's value,
#: other braces that hold no instructions, and single marks. What stands in braces is one word: most of it is never
#: looked at.
_WORD = re.compile(
    rf"({_INSTRUCTION}|{_STRING}|{_COMMENT}"
    r'|[A-Za-z]\w*\[(?:[^\[\]"={}<]|<=)*\](?:\{[^{}="%\[\]]*\})?'
    r"|%?\w[\w.\-]*+"
    rf"|(?<==){_braces(3)}"
    r'|\{[^{}()="\[\]%/]*+\}'
    r"|->|\S)",
    re.S,
)
#: Of a word, what stands before it, itself and the parts of an instruction.
_PARTS = 1 + _WORD.groups
_NO_INSTRUCTION: tuple[str | None, ...] = (None,) * (_PARTS - 2)
#: The shapes, empty where there are none, and names of an instruction's operands.
OPERANDS = re.compile(rf"{_COUNT}(?:({_SHAPE}) |(?!))?+%?+({_IDENTIFIER})(?:, |(?!))?+")
#: The names and values of an instruction's attributes.
ATTRIBUTES = re.compile(rf", ({_IDENTIFIER})=({_VALUE})", re.S)
_OPENING, _CLOSING = frozenset("{(["), frozenset("})]")


class Tokens:
    """The words of `text`, which begins at `start` of `source`, without comments; the last one is empty."""

    def __init__(self, source: Source, start: int, text: str) -> None:
        self.source = source
        parts = _WORD.split(text)
        gaps, words = parts[0::_PARTS], parts[1::_PARTS]
        ends = accumulate(chain.from_iterable(zip(map(len, gaps), map(len, [*words, ""]), strict=True)), initial=start)
        self.words: list[str] = [*words, ""]
        self.offsets: list[int] = list(ends)[1::2]
        #: Of a word that is an instruction, its parts; of others, None in place of them.
        self.instructions = [*zip(*(parts[at::_PARTS] for at in range(2, _PARTS)), strict=True), _NO_INSTRUCTION]
        if "/*" in text or "//" in text:
            code = [word[:2] not in ("/*", "//") for word in self.words]
            self.words, self.offsets = list(compress(self.words, code)), list(compress(self.offsets, code))
            self.instructions = list(compress(self.instructions, code))

    def location(self, at: int) -> Location:
        return Location(self.source, self.offsets[at])

    def error(self, message: str, at: int) -> ParseError:
        return ParseError(message, self.location(at))

    def text(self, start: int, end: int) -> str:
        """Return the text of the words from `start` to before `end`, with what is between them."""
        if end - start <= 1:
            return self.words[start] if end > start else ""
        return self.source.text[self.offsets[start] : self.offsets[end - 1] + len(self.words[end - 1])]

    def behind(self, offset: int) -> int:
        """Return the first word that begins at `offset` of the source or behind it."""
        return bisect_left(self.offsets, offset)

    def is_spaced(self, at: int) -> bool:
        """Return whether there is something between a word and the one before."""
        return self.offsets[at] > self.offsets[at - 1] + len(self.words[at - 1])

    def closing(self, start: int) -> int:
        """Return where the bracket that is word `start` is closed; ParseError where it is not."""
        depth, at, words = 0, start, self.words
        while word := words[at]:
            if word in _OPENING:
                depth += 1
            elif word in _CLOSING:
                depth -= 1
                if depth == 0:
                    return at
            at += 1
        raise self.error(f"the {words[start]} is never closed", start)

    def separators(self) -> Iterator[int]:
        """Yield the commas outside of brackets, then the end."""
        at = 0
        while word := self.words[at]:
            if word == ",":
                yield at
            at = self.closing(at) + 1 if word in _OPENING else at + 1
        yield at
