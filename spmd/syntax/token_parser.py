"""The base of the parsers: a position in a list of tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NoReturn

from spmd import types as t
from spmd.errors import Diagnostic, Location
from spmd.ir.attributes import Attribute
from spmd.syntax.lexer import END, part_offsets, split_parts

#: How deep types, attributes and regions may nest.
DEEPEST = 64
LARGEST = 2**63 - 1
#: The alias of a location.
LOCATION_NAME = re.compile(r"#loc\d*\b", re.ASCII)

_WORD = re.compile(r"[A-Za-z_][\w$.]*", re.ASCII)
_INTEGER = re.compile(r"-?(?:\d+|0x[\da-fA-F]+)", re.ASCII)
#: Tokens that are wrong anywhere, whatever is expected there.
_BROKEN = {'"': "a string without an end"} | {mark: f"'{mark}' without a name" for mark in "#!%@^"}
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}


@dataclass
class TextNames:
    """The names defined so far and the caches of a text: aliases, resources, and tables by token."""

    types: dict[str, t.Type] = field(default_factory=lambda: dict(t.ELEMENT_TYPES))
    attributes: dict[str, Attribute] = field(default_factory=dict)
    numbers: dict[tuple[str, t.Type | None], Attribute] = field(default_factory=dict)
    type_aliases: dict[str, t.Type] = field(default_factory=dict)
    attribute_aliases: dict[str, Attribute] = field(default_factory=dict)
    #: Constants that only the specification's text forbids, each where it was first met.
    advice: list[Diagnostic] = field(default_factory=list)
    load_locations: Callable[[], dict[str, str]] = dict
    load_resources: Callable[[], dict[str, bytes]] = dict

    @cached_property
    def location_aliases(self) -> dict[str, str]:
        """Locations by `#loc` name; they may be defined after their uses, and are searched at the first use."""
        return self.load_locations()

    @cached_property
    def resources(self) -> dict[str, bytes]:
        """The bytes of `dense_resource` constants by key, from the file's end."""
        return self.load_resources()


class TokenParser:
    """Parses tokens from `tokens[position]` on; empty ones end the list."""

    inner: ClassVar[type[TokenParser]]

    def __init__(self, tokens: list[str], names: TextNames, text: str = "", outer: TokenParser | None = None) -> None:
        self.tokens = tokens
        self.position = 0
        self.names = names
        self.types = names.types
        self.text = text
        self.outer = outer
        self.outer_position = outer.position if outer else 0
        self.depth: int = outer.depth if outer else 0
        self.type_depth: int = outer.type_depth if outer else 0

    # --- errors ---

    def fail(self, message: str, position: int | None = None) -> NoReturn:
        """Raise the error `message` at `position` (the next token by default)."""
        self.fail_at(self.position if position is None else position, 0, message)

    def fail_at(self, position: int, offset: int, message: str, *, misplaced: bool = False, also: str = "") -> NoReturn:
        """Raise the error `message`, `offset` characters after the start of the token at `position`.

        `misplaced` says that the token is not what the grammar expects: if it is the first of its line, the location
        given is the end of the text before it. `also` is a second error, at the token itself.
        """
        assert self.outer is not None
        offsets = part_offsets(self.text)
        start = offsets[position] if position < len(offsets) else len(self.text)
        self.outer.fail_at(self.outer_position, start + offset, message, misplaced=misplaced, also=also)

    def place(self, position: int, offset: int = 0) -> Location:
        """Return the location `offset` characters after the start of the token at `position`."""
        assert self.outer is not None
        offsets = part_offsets(self.text)
        start = offsets[position] if position < len(offsets) else len(self.text)
        return self.outer.place(self.outer_position, start + offset)

    def advise(self, notes: Iterable[tuple[str, str]], position: int) -> None:
        """Record constraints of the specification that the token at `position` violates: label and message of each."""
        for label, message in notes:
            self.names.advice.append(Diagnostic(self.place(position), message, label=label))

    def expected(self, what: str, *, also: str = "") -> NoReturn:
        token = self.tokens[self.position]
        if token in _BROKEN:
            self.unexpected(what)
        self.fail_at(self.position, 0, f"expected {what}, got {self.shown()}", misplaced=True, also=also)

    def unexpected(self, what: str) -> NoReturn:
        """Raise the same where a word or number is missing: MLIR reports that at the token itself, wherever it is."""
        self.fail(f"expected {what}, got {self.shown()}")

    def shown(self) -> str:
        """Return the next token as error messages quote it."""
        token = self.tokens[self.position]
        if token in _BROKEN:
            return _BROKEN[token]
        return f"'{token[:40]}'" + ("..." if len(token) > 40 else "") if token else "the end of the text"

    # --- tokens ---

    def split(self) -> None:
        """Split the next token, if it is composite."""
        parts = split_parts(self.tokens[self.position])
        if len(parts) > 1:
            self.tokens[self.position : self.position + 1] = parts

    def at(self, token: str) -> bool:
        """Return whether `token` is next; a composite token is split when `token` may be its first part."""
        next_token = self.tokens[self.position]
        if next_token == token:
            return True
        if len(next_token) > len(token) and next_token.startswith(token):
            self.split()
            return self.tokens[self.position] == token
        return False

    def consume_if(self, token: str) -> bool:
        """Consume `token` if it is next; return whether it was."""
        if self.tokens[self.position] == token or self.at(token):
            self.position += 1
            return True
        return False

    def expect(self, token: str) -> None:
        if self.tokens[self.position] == token or self.at(token):
            self.position += 1
        elif token[0].isalpha():
            self.unexpected(f"'{token}'")
        else:
            self.expected(f"'{token}'")

    def parse_keyword(self, what: str = "a keyword") -> str:
        token = self.tokens[self.position]
        if not _WORD.fullmatch(token):
            self.unexpected(what)
        self.position += 1
        return token

    def parse_integer(self, what: str = "an integer") -> int:
        token = self.tokens[self.position]
        if not _INTEGER.fullmatch(token):
            if token[:1] == "[":
                self.split()
            self.unexpected(what)
        self.position += 1
        return self.integer_of(token, self.position - 1)

    def integer_of(self, text: str, position: int) -> int:
        if len(text) > 64:
            self.fail(f"the integer of {len(text)} digits is too large", position)
        return int(text, 16) if "x" in text else int(text)

    def parse_int64(self, what: str = "an integer") -> int:
        position = self.position
        value = self.parse_integer(what)
        if not -LARGEST - 1 <= value <= LARGEST:
            self.fail(f"integer {value} does not fit 64 bits", position)
        return value

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            self.fail(f"nesting deeper than {DEEPEST} levels")

    def parse_integer_list(self) -> tuple[int, ...]:
        """Parse `[1, 2]`, signed 64-bit integers."""
        token = self.tokens[self.position]
        if token[:1] == "[" and len(token) > 1 and ":" not in token:
            integers = _list_of_integers(token)
            if integers is not None:
                self.position += 1
                return integers
        self.expect("[")
        values: list[int] = []
        if self.consume_if("]"):
            return ()
        while True:
            values.append(self.parse_int64("an integer value"))
            if not self.consume_if(","):
                break
        self.expect("]")
        return tuple(values)

    def items(self, closing: str) -> Iterator[None]:
        """Yield once for each entry of a list separated by commas; consume `closing` at its end."""
        if self.consume_if(closing):
            return
        while True:
            yield
            if not self.consume_if(","):
                break
        self.expect(closing)

    def parse_balanced(self) -> str:
        """Return the text of the balanced bracketed group that opens at the next token."""
        if self.tokens[self.position][:1] in _CLOSING and len(self.tokens[self.position]) > 1:
            self.position += 1
            return self.tokens[self.position - 1]
        start = self.position
        closing: list[str] = []
        while True:
            token = self.tokens[self.position]
            if not token:
                self.fail(f"'{self.tokens[start]}' is never closed", start)
            if token in _CLOSING:
                closing.append(_CLOSING[token])
                if len(closing) > DEEPEST:
                    self.fail(f"nesting deeper than {DEEPEST} levels")
            elif closing and token == closing[-1]:
                closing.pop()
            elif token in (")", "]", "}", ">"):
                if not closing:
                    self.expected("a balanced group")
                self.fail(f"expected '{closing[-1]}' before '{token}', to close '{self.tokens[start]}'", start)
            self.position += 1
            if not closing:
                return self._between(start, self.position)

    def _between(self, start: int, end: int) -> str:
        """Return the text of the tokens from `start` up to `end`: verbatim inside a composite token, else respaced."""
        offsets = part_offsets(self.text) if self.text else []
        if len(offsets) == len(self.tokens) - len(END) + 1:
            return self.text[offsets[start] : offsets[end - 1] + len(self.tokens[end - 1])]
        return " ".join(self.tokens[start:end])

    def inside(self, text: str) -> Any:
        """Return a parser of the parts of the next token, which is composite; its errors have their locations in it."""
        return self.inner(split_parts(text) + END, self.names, text, self)


_LISTS: dict[str, tuple[int, ...] | None] = {}


def _list_of_integers(token: str) -> tuple[int, ...] | None:
    """Return the integers of a token `[1, 2]`; None if it is something else or one does not fit 64 bits."""
    integers = _LISTS.get(token)
    if integers is None:
        body = token[1:-1].strip()
        try:
            integers = tuple(map(int, body.split(","))) if body else ()
        except ValueError:
            return None
        if integers and not (min(integers) >= -LARGEST - 1 and max(integers) <= LARGEST):
            return None
        if len(_LISTS) > 10_000:
            _LISTS.clear()
        _LISTS[token] = integers
    return integers
