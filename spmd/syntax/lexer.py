"""Split text into tokens.

One regular expression splits the text; units that most programs repeat are one token: a whole type, a
function type, a list of integers, a constant without strings inside. The parser keeps tables from such a token's text
to its meaning, so each distinct type is parsed once. A composite token where the grammar
expects its parts is split into them (`Tokens.split`).

A token is only its text: locations are computed from the token's number on demand. The text is lexed in pieces, so
that an error near the start of a huge file is reported at once.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from spmd.errors import Location, Source


def _group(*alternatives: str) -> str:
    """Return a group of the alternatives, to be followed by a possessive quantifier.

    CPython before 3.11.5 does not undo what a failed repetition of a possessive group matched (gh-106052), unless
    another alternative is tried after it, so the last alternative is one that never matches.
    """
    return "(?:" + "|".join((*alternatives, "(?!)")) + ")"


_STRING = r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"'
_BALANCED = ""  # text between < and >, itself balanced; four levels deep
for _ in range(4):
    _BALANCED = _group(r'[^<>"\n\-]++', "->", "-", _STRING, *([f"<{_BALANCED}>"] if _BALANCED else [])) + "*+"
_SCALAR = r"(?:[su]?i\d++|bf16|tf32|f\d\w*+|index|none)(?![\w$.])"
_TYPE = (
    rf"(?:tensor<(?:[\w?]++>|{_BALANCED}>)|(?:tuple|complex|memref|vector)<{_BALANCED}>"
    rf"|![A-Za-z_][\w$.]*+{_group(f'<{_BALANCED}>')}?+|{_SCALAR})"
)
_TYPES = rf"\({_group(_TYPE + _group(f', {_TYPE}') + '*+')}?+\)"
_SYMBOL = rf"@(?:[A-Za-z_][\w$.]*+|{_STRING})"
_COMPOSITE = (
    rf"{_TYPES} -> (?:{_TYPE}|{_TYPES})(?! ->)",
    _TYPE,
    r'dense<[^"<>/]*+>' + _group(r" : tensor<[\w?]++>") + "?+",
    r'array<[^"<>\n/]*+>',
    r"\[[-\d:, ]*+\]",
    r"loc\(#\w++\)",
    rf"\#[A-Za-z_][\w$.\-]*+<{_BALANCED}>",
)
_VALUE = r"%(?:\d++|[A-Za-z_$.\-][\w$.\-]*+)" + _group(r"[#:]\d++") + "?+"
_SIMPLE = (
    r"(?:(?<=tensor<)|(?<=memref<)|(?<=vector<))(?:\d++|\?)" + _group(r"x\d++", r"x\?") + "*+x",
    r"[A-Za-z_][\w$.]*+",
    r"->",
    r"\{-\#|\#-\}",
    rf"-?\d++\.\d*+{_group('[eE][-+]?[0-9]++')}?+|-?0x[\da-fA-F]++(?!\w)|-?\d++[eE][-+]?\d++(?![\w.])|-?\d++",
    _STRING,
    rf"{_SYMBOL}{_group(f'::{_SYMBOL}')}*+",
    r"\^[\w$.\-]++",
    r"\#[A-Za-z_\d][\w$.\-]*+|![A-Za-z_][\w$.]*+",
    r"::|.|\Z",
)
_SKIP = r"(?>[ \t\r\n]++|//[^\n]*+)*+"


def _compile(*alternatives: str) -> re.Pattern[str]:
    return re.compile(_SKIP + "(" + "|".join(alternatives) + ")", re.ASCII | re.DOTALL)


_TOKEN = _compile(_VALUE, r"[,=]|:(?!:)", *_COMPOSITE, *_SIMPLE)
_PART = _compile(_VALUE, *_SIMPLE)

#: How many characters are lexed at a time, and from what length a hex string is a LongHex token.
_PIECE = 1 << 13
_LONG = 1 << 12
_RESULT = re.compile(r"%([\w$.\-]+)", re.ASCII)


class LongHex(str):
    """The token of a long `"0x..."`: not copied from the text; `digits` is what follows `0x`."""

    __slots__ = ("_end", "_source", "_start")
    _source: str
    _start: int
    _end: int

    def __new__(cls, source: str, start: int, end: int) -> LongHex:
        long_hex = super().__new__(cls, '"0x"')
        long_hex._source, long_hex._start, long_hex._end = source, start, end
        return long_hex

    @property
    def digits(self) -> str:
        return self._source[self._start : self._end]


#: Sentinels that end every list of tokens: as many as the parser ever looks ahead.
END = [""] * 4


def split_parts(text: str) -> list[str]:
    """Return the tokens of a composite token's text, none of them composite."""
    tokens: list[str] = _PART.findall(text)
    while tokens and not tokens[-1]:
        tokens.pop()
    return tokens


def part_offsets(text: str) -> list[int]:
    """Return the offset where each token of `split_parts(text)` starts, and the length of the text."""
    return [*(match.start(1) for match in _PART.finditer(text) if match[1]), len(text)]


class OutOfTokens(Exception):
    """An op is longer than the lookahead: the text must be lexed again with a longer one."""


class Tokens:
    """The tokens of a text: `list` is a window of them, then the END; `base` is the number of `list[0]`.

    The window has at least `ready` tokens, if the text has as many; at least `piece` characters are lexed at a time.
    """

    __slots__ = ("_ends", "_firsts", "_seen", "_splits", "_starts", "base", "list", "piece", "ready", "source")

    def __init__(self, source: Source, ready: int, piece: int = _PIECE) -> None:
        self.source = source
        self.ready = ready
        self.piece = max(piece, ready)
        self.list: list[str] = list(END)
        self.base = 0
        self._firsts = array("Q")  # for each piece of the text, the number of its first token
        self._ends = array("Q", [0])  # where each ends, relative to the start of the first one
        self._splits = array("Q")  # numbers of the tokens that were split
        self._seen = (-1, 0)
        self._starts: Sequence[int] = ()

    @property
    def at_end(self) -> bool:
        """Whether the whole text has been lexed."""
        return self._ends[-1] >= len(self.source.text)

    def fill(self, position: int) -> int:
        """Drop the tokens before `position`, lex more text, and return the new position of the same token."""
        window = self.list[position:]
        self.base += position
        del window[-len(END) :]
        while len(window) < self.ready and not self.at_end:
            start, end = self._ends[-1], self._piece_end()
            self._firsts.append(self.base + len(window))
            self._ends.append(end)
            window += self._take(start, end)
        window += END
        self.list = window
        return 0

    def forget(self) -> None:
        """Drop the window; locations can still be computed."""
        self.list = list(END)

    def _piece_end(self) -> int:
        """Return the end of the next piece: a line's end, or the last complete token of a longer line."""
        text, start = self.source.text, self._ends[-1]
        if text.startswith('"0x', start):
            closed = text.find('"', start + 1) + 1
            if closed - start > _LONG:
                return closed
        end = start + self.piece
        if end >= len(text):
            end = len(text)
        else:
            line_end = text.rfind("\n", start, end) + 1
            end = line_end if line_end > start else self._long_line_end(start, start + 8 * self.piece)
        # A long hex string is its own piece: finding its end is all the lexing it needs.
        quote = text.find('"0x', start + 1, end)
        while quote >= 0:
            closed = text.find('"', quote + 1) + 1
            if closed - quote > _LONG and text[quote - 1] in "< :":
                return quote
            if closed <= 0:
                break
            quote = text.find('"0x', max(closed, quote + 1), end)
        return end

    def _long_line_end(self, start: int, end: int) -> int:
        text = self.source.text
        following = text.find("\n", start, end + 128 * self.piece) + 1
        if following:
            return following
        last = prior = start
        for match in _TOKEN.finditer(text, start, min(len(text), end + self.piece)):
            token = match[1]
            if token == '"':
                # A string that ends beyond this piece.
                prior = match.start(1)
                break
            if token:
                prior, last = last, match.end()
        # The last token may continue beyond this piece.
        return len(text) if last >= len(text) or prior <= start else prior

    def _take(self, start: int, end: int) -> list[str]:
        text = self.source.text
        if end - start > _LONG and text.startswith('"0x', start):
            return [LongHex(text, start + 3, end - 1)]
        tokens: list[str] = _TOKEN.findall(text, start, end)
        while tokens and not tokens[-1]:
            tokens.pop()
        return tokens

    def split(self, position: int) -> None:
        """Replace the composite token at `position` by its parts."""
        parts = split_parts(self.list[position])
        if len(parts) < 2:
            return
        number = self.base + position
        self._splits.append(number)
        self.list[position : position + 1] = parts
        for index in range(len(self._firsts) - 1, -1, -1):
            if self._firsts[index] <= number:
                break
            self._firsts[index] += len(parts) - 1

    def offset(self, number: int) -> int:
        """Return the offset in the text where token `number` starts."""
        at = bisect_right(self._firsts, number) - 1
        if at < 0:
            return 0
        # Offsets are mostly asked for in runs: the last piece is cached until a token is split.
        seen = (at, len(self._splits))
        if self._seen != seen:
            self._seen, self._starts = seen, array("Q", self._token_starts(at))
        within = number - self._firsts[at]
        if within < len(self._starts):
            return self._starts[within]
        return len(self.source.text.rstrip()) if at + 1 == len(self._firsts) else self._ends[at + 1]

    def result_name(self, number: int) -> str | None:
        """Return the name, without `%`, that the source gives the result of the op whose own name is token `number`."""
        if number < 2 or not self.source.text.startswith("=", self.offset(number - 1)):
            return None
        match = _RESULT.match(self.source.text, self.offset(number - 2))
        return match[1] if match else None

    def _token_starts(self, at: int) -> list[int]:
        """Return the offset where each token of piece `at` starts."""
        first, start, end = self._firsts[at], self._ends[at], self._ends[at + 1]
        text = self.source.text
        if end - start > _LONG and text.startswith('"0x', start):
            return [start]
        spans = [match.span(1) for match in _TOKEN.finditer(text, start, end) if match[1]]
        starts = [begin for begin, _ in spans]
        following = self._firsts[at + 1] if at + 1 < len(self._firsts) else None
        for split in self._splits:
            if first <= split and (following is None or split < following) and split - first < len(spans):
                begin, finish = spans[split - first]
                offsets = part_offsets(text[begin:finish])
                parts = [(begin + a, begin + b) for a, b in pairwise(offsets)]
                spans[split - first : split - first + 1] = parts
                starts[split - first : split - first + 1] = [a for a, _ in parts]
        return starts


class TokenLocation(Location):
    """The location of a token, computed on demand."""

    __slots__ = ("_tokens", "number")

    def __init__(self, tokens: Tokens, number: int) -> None:
        self.source = tokens.source
        self._tokens = tokens
        self.number = number

    @property
    def offset(self) -> int:  # type: ignore[override]
        return self._tokens.offset(self.number)


class TokenPage:
    """A page of consecutive tokens, shared by the locations of the ops parsed there."""

    __slots__ = ("_tokens", "first")

    #: How many tokens a page has: Python keeps one object for each number below that.
    SIZE = 256

    def __init__(self, tokens: Tokens, first: int) -> None:
        self._tokens = tokens
        self.first = first

    def location(self, token: int) -> TokenLocation:
        return TokenLocation(self._tokens, self.first + token)

    def name_hint(self, token: int) -> str | None:
        return self._tokens.result_name(self.first + token)

    def debug_location(self, token: int) -> None:
        """Return "": an op parsed from text holds its own `loc(...)`."""
