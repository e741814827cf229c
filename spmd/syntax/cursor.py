"""A place in a list of tokens, and the types that can be read there."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NoReturn

from spmd import types as t
from spmd.attributes import Attribute
from spmd.dialects.type_rules import type_fault
from spmd.syntax.lexer import END, part_offsets, split_parts

#: How deep types, attributes and regions may nest.
DEEPEST = 64
_LARGEST = 2**63 - 1
_LARGEST_RANK = 64

_WORD = re.compile(r"[A-Za-z_][\w$.]*", re.ASCII)
_INTEGER = re.compile(r"-?\d+|0x[\da-fA-F]+", re.ASCII)
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_STORAGE = re.compile(r"(u|ui|i|si)(\d+)", re.ASCII)


@dataclass
class Names:
    """What a text has named so far, and what was read of it: aliases, resources, and tables by token."""

    types: dict[str, t.Type] = field(default_factory=lambda: dict(t.ELEMENT_TYPES))
    attributes: dict[str, Attribute] = field(default_factory=dict)
    type_aliases: dict[str, t.Type] = field(default_factory=dict)
    attribute_aliases: dict[str, Attribute] = field(default_factory=dict)
    load_locations: Callable[[], dict[str, str]] = dict
    load_resources: Callable[[], dict[str, bytes]] = dict

    @cached_property
    def location_aliases(self) -> dict[str, str]:
        """Locations by `#loc` name; they may be defined behind their uses, and are looked for at the first of these."""
        return self.load_locations()

    @cached_property
    def resources(self) -> dict[str, bytes]:
        """The bytes of `dense_resource` constants by key, from the file's end."""
        return self.load_resources()


class Cursor:
    """Reads tokens from `tokens[position]` on; empty ones end the list."""

    inner: ClassVar[type[Cursor]]

    def __init__(self, tokens: list[str], names: Names, text: str = "", outer: Cursor | None = None) -> None:
        self.tokens = tokens
        self.position = 0
        self.names = names
        self.types = names.types
        self.text = text
        self.outer = outer
        self.outer_position = outer.position if outer else 0
        self.depth = outer.depth if outer else 0

    # --- errors ---

    def fail(self, message: str, position: int | None = None) -> NoReturn:
        """Raises the error `message` at `position` (the next token by default)."""
        self.fail_at(self.position if position is None else position, 0, message)

    def fail_at(self, position: int, offset: int, message: str, *, misplaced: bool = False, also: str = "") -> NoReturn:
        """Raises the error `message`, `offset` characters behind the start of the token at `position`.

        `misplaced` says that the token there is not what the grammar wants: when it is the first of its line, the
        place told is the end of what stands before it. `also` is a second error, at the token itself.
        """
        assert self.outer is not None
        offsets = part_offsets(self.text)
        start = offsets[position] if position < len(offsets) else len(self.text)
        self.outer.fail_at(self.outer_position, start + offset, message, misplaced=misplaced, also=also)

    def expected(self, what: str, *, also: str = "") -> NoReturn:
        self.fail_at(self.position, 0, f"expected {what}, got {self.shown()}", misplaced=True, also=also)

    def shown(self) -> str:
        """The next token as an error quotes it."""
        token = self.tokens[self.position]
        return f"'{token[:40]}'" + ("..." if len(token) > 40 else "") if token else "the end of the text"

    # --- tokens ---

    def split(self) -> None:
        """Takes the next token apart, if it is composite."""
        parts = split_parts(self.tokens[self.position])
        if len(parts) > 1:
            self.tokens[self.position : self.position + 1] = parts

    def at(self, token: str) -> bool:
        """Whether `token` is next; a composite token is split when `token` may be its first part."""
        next_token = self.tokens[self.position]
        if next_token == token:
            return True
        if len(next_token) > len(token) and next_token.startswith(token):
            self.split()
            return self.tokens[self.position] == token
        return False

    def take(self, token: str) -> bool:
        """Passes over `token` if it is next."""
        if self.tokens[self.position] == token or self.at(token):
            self.position += 1
            return True
        return False

    def expect(self, token: str) -> None:
        if self.tokens[self.position] == token or self.at(token):
            self.position += 1
        else:
            self.expected(f"'{token}'")

    def keyword(self, what: str = "a keyword") -> str:
        token = self.tokens[self.position]
        if not _WORD.fullmatch(token):
            self.expected(what)
        self.position += 1
        return token

    def integer(self, what: str = "an integer") -> int:
        token = self.tokens[self.position]
        if not _INTEGER.fullmatch(token):
            if token[:1] == "[":
                self.split()
            self.expected(what)
        self.position += 1
        return self.parse_integer(token, self.position - 1)

    def parse_integer(self, text: str, position: int) -> int:
        if len(text) > 64:
            self.fail(f"the integer of {len(text)} digits is too large", position)
        return int(text, 16) if text[1:2] == "x" else int(text)

    def int64(self, what: str = "an integer") -> int:
        position = self.position
        value = self.integer(what)
        if not -_LARGEST - 1 <= value <= _LARGEST:
            self.fail(f"integer {value} does not fit 64 bits", position)
        return value

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            self.fail(f"nesting deeper than {DEEPEST} levels")

    def integer_list(self) -> tuple[int, ...]:
        """`[1, 2]`, signed 64-bit integers."""
        token = self.tokens[self.position]
        if token[:1] == "[" and len(token) > 1 and ":" not in token:
            found = _list_of_integers(token)
            if found is not None:
                self.position += 1
                return found
        self.expect("[")
        values: list[int] = []
        if self.take("]"):
            return ()
        while True:
            values.append(self.int64("an integer value"))
            if not self.take(","):
                break
        self.expect("]")
        return tuple(values)

    def balanced(self) -> str:
        """The text of a balanced bracketed group that opens at the next token, as its tokens with spaces between."""
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
                self.expected(f"'{closing[-1]}'" if closing else "a balanced group")
            self.position += 1
            if not closing:
                return self._between(start, self.position)

    def _between(self, start: int, end: int) -> str:
        """The text of the tokens from `start` up to `end`: as it stands inside a composite token, else respaced."""
        offsets = part_offsets(self.text) if self.text else []
        if len(offsets) == len(self.tokens) - len(END) + 1:
            return self.text[offsets[start] : offsets[end - 1] + len(self.tokens[end - 1])]
        return " ".join(self.tokens[start:end])

    # --- types ---

    def at_type(self) -> bool:
        """Whether a type stands next."""
        token = self.tokens[self.position]
        if token in self.types:
            return True
        return token[:1] in ("!", "(") or token.split("<", 1)[0] in _TYPE_WORDS or _is_integer_type(token)

    def type(self) -> t.Type:
        """Any type."""
        token = self.tokens[self.position]
        found = self.types.get(token)
        if found is None:
            return self._new_type(token)
        self.position += 1
        return found

    def _new_type(self, token: str) -> t.Type:
        position = self.position
        if "<" in token or (token[:1] == "(" and len(token) > 1):
            made = self.inside(token).whole_type()
            self.position += 1
        elif self.outer is None and token[:1] != "(" and self.tokens[position + 1] == "<":
            # Written over several lines: the outermost text's tokens are read only as a whole.
            inner = self.inside("")
            self.position += 1
            inner.tokens = split_parts(token + self.balanced()) + END
            return inner.whole_type()
        else:
            return self._type_of_parts()
        if "!" not in token or not self.names.type_aliases:
            self.types[token] = made
        return made

    def inside(self, text: str) -> Any:
        """A cursor over the parts of the next token, which is composite; its errors have their places in it."""
        return self.inner(split_parts(text) + END, self.names, text, self)

    def whole_type(self) -> t.Type:
        """The type that all of the text is."""
        made = self.type()
        if self.tokens[self.position]:
            self.expected("the end of the type")
        return made

    def _type_of_parts(self) -> t.Type:
        self.deeper()
        position = self.position
        token = self.tokens[position]
        if token == "(":
            made: t.Type = self._function_type()
        elif token[:1] == "!":
            made = self._dialect_type()
        elif token in _TYPE_WORDS:
            self.position += 1
            made = _TYPE_WORDS[token](self)
        elif token == "none":
            self.position += 1
            made = t.OpaqueType("none")
        elif _is_integer_type(token):
            self.position += 1
            bits = token.lstrip("sui")
            if len(bits) > 8 or not 0 < int(bits) < 2**24:
                self.fail("integer types have from 1 to 16777215 bits", self.position - 1)
            made = t.OpaqueType(token)
            if token[0] == "s":
                made = t.ELEMENT_TYPES.get(token[1:], made)
        else:
            self.expected("a type")
        self.depth -= 1
        fault = type_fault(made)
        if fault is not None:
            label, message = fault
            self.fail(f"({label}) {message}" if label else message, position)
        return made

    def type_list(self, closing: str) -> tuple[t.Type, ...]:
        """Types with commas between, up to and over `closing`."""
        found: list[t.Type] = []
        if self.take(closing):
            return ()
        while True:
            found.append(self.type())
            if not self.take(","):
                break
        self.expect(closing)
        return tuple(found)

    def function_type(self) -> t.FunctionType:
        """`(inputs) -> results`; any other type is an error."""
        position = self.position
        made = self.type()
        if not isinstance(made, t.FunctionType):
            self.fail(f"expected a function type, got {made}", position)
        return made

    def _function_type(self) -> t.FunctionType:
        self.expect("(")
        inputs = self.type_list(")")
        if not self.take("->"):
            self.expected("'->' in function type")
        return t.FunctionType(inputs, self.result_types())

    def result_types(self) -> tuple[t.Type, ...]:
        """One type without parentheses, or a list in parentheses."""
        if not self.at("("):
            return (self.type(),)
        self.position += 1
        return self.type_list(")")

    def _dialect_type(self) -> t.Type:
        position = self.position
        name = self.tokens[position]
        if name in self.names.type_aliases and self.tokens[position + 1] != "<":
            self.position += 1
            return self.names.type_aliases[name]
        self.position += 1
        known = _DIALECT_TYPES.get(name)
        if known is not None:
            return known(self, position)
        if name.startswith("!stablehlo."):
            self.fail(f"unknown stablehlo type: {name[11:]}", position)
        if name.startswith("!quant."):
            self.fail(f"unknown quant type: {name[7:]}", position)
        if "." not in name and self.tokens[self.position] != "<":
            self.fail(f"undefined type alias '{name}'", position)
        if self.tokens[self.position] == "<":
            return t.OpaqueType(name + self.balanced())
        return t.OpaqueType(name)

    def _dimensions(self) -> tuple[int | None, ...]:
        """`4x?x`, from tokens that may hold several dimensions or one."""
        found: list[int | None] = []
        while True:
            token = self.tokens[self.position]
            if not (token[:1].isdigit() or token == "?" or token[:2] == "?x"):
                return tuple(found)
            several = token[-1] == "x"
            if not several and not token.isdigit() and token != "?":
                self.expected("a dimension")
            rank = len(found) + (token.count("x") if several else 1)
            if rank > _LARGEST_RANK:
                self.fail(f"more than {_LARGEST_RANK} dimensions")
            found += [self._dimension(part) for part in token.removesuffix("x").split("x")]
            self.position += 1
            if not several:
                self._cross()

    def _cross(self) -> None:
        """The `x` between dimensions, which may be stuck to what follows."""
        token = self.tokens[self.position]
        if token[:1] != "x":
            self.expected("'x' in dimension list")
        rest = re.fullmatch(r"x(\d+)(x.*)", token)
        if token == "x":
            self.position += 1
        elif rest:
            self.tokens[self.position : self.position + 1] = [rest[1], rest[2]]
        else:
            self.tokens[self.position] = token[1:]

    def _dimension(self, text: str) -> int | None:
        if text == "?":
            return None
        if not (text.isascii() and text.isdigit()):
            self.fail(f"expected a dimension, got '{text[:40]}'")
        if len(text) > 19 or int(text) > _LARGEST:
            self.fail(f"dimension {text[:40]} does not fit 64 bits")
        return int(text)

    def _tensor(self) -> t.Type:
        self.expect("<")
        if self.take("*"):
            self._cross()
            element = self.type()
            if self.take(","):
                self.fail("an unranked tensor has no encoding")
            self.expect(">")
            return t.UnrankedTensorType(element)
        position = self.position
        shape = self._dimensions()
        at_element = self.position
        element = self._element_type("tensor", at_element)
        bounds, encoding = self._encoding() if self.take(",") else (None, None)
        self.expect(">")
        if isinstance(element, t.QuantizedType) and element.block_sizes:
            self._check_blocks(element, shape, position)
        return t.TensorType(shape, element, bounds, encoding)

    def _element_type(self, holder: str, position: int) -> Any:
        element = self.type()
        if isinstance(
            element, (t.TensorType, t.TupleType, t.FunctionType, t.TokenType, t.FutureType, t.UnrankedTensorType)
        ):
            self.fail(f"a {holder} does not have elements of type {element}", position)
        return element

    def _check_blocks(self, element: t.QuantizedType, shape: tuple[int | None, ...], position: int) -> None:
        """Sub-channel quantization: the blocks divide the dimensions, and there are parameters for each."""
        blocks = dict(element.block_sizes)
        for dimension, size in element.block_sizes:
            extent = shape[dimension] if dimension < len(shape) else 0
            if (not extent and extent is not None) or (extent or 0) % size:
                self.fail(f"blocks of {size} do not divide dimension {dimension} of shape {shape}", position)
        if None not in shape:
            counts = [extent // blocks.get(index, extent) for index, extent in enumerate(shape) if extent]
            if math.prod(counts) != len(element.scales):
                self.fail(f"{len(element.scales)} scales for {math.prod(counts)} blocks", position)

    def _encoding(self) -> tuple[tuple[int | None, ...] | None, str | None]:
        position = self.position
        token = self.tokens[position]
        body = ""
        if token.split("<", 1)[0] not in _BOUNDS_NAMES:
            return None, self.attribute_text()
        if "<" in token:
            self.position += 1
            body = token[token.index("<") :]
        else:
            self.position += 1
            body = self.balanced()
        listed = re.fullmatch(_BOUNDS_NAMES[token.split("<", 1)[0]], body, re.ASCII)
        if not listed:
            self.fail("expected bounds such as #stablehlo.bounds<?, 4>", position)
        entries = [entry.strip() for entry in listed[1].split(",")] if listed[1].strip() else []
        bounds = tuple(self._dimension(entry) for entry in entries)
        return bounds, None

    def attribute_text(self) -> str:
        """The text of an attribute that only its text is kept of."""
        token = self.tokens[self.position]
        if not token or token in (",", ">"):
            self.expected("an attribute")
        self.position += 1
        if self.tokens[self.position] == "<":
            return token + self.balanced()
        return token

    def _memref(self) -> t.Type:
        self.expect("<")
        shape = self._dimensions()
        element = self._element_type("memref", self.position)
        memory: list[str] = []
        while self.take(","):
            memory.append(self._memory())
        self.expect(">")
        return t.BufferType(shape, element, ", ".join(memory) or None)

    def _memory(self) -> str:
        text = self.attribute_text()
        while self.tokens[self.position] not in (",", ">", ""):
            text += " " + self.attribute_text()
        return text

    def _complex(self) -> t.Type:
        self.expect("<")
        position = self.position
        part = self.type()
        self.expect(">")
        if part is t.F32 or part is t.F64:
            return t.ELEMENT_TYPES[f"complex<{part}>"]
        if not isinstance(part, t.ElementType) or not (part.is_float or part.is_integer or part.is_boolean):
            self.fail(f"invalid element type {part} of a complex type", position)
        return t.OpaqueType(f"complex<{part}>")

    def _tuple(self) -> t.Type:
        self.expect("<")
        return t.TupleType(self.type_list(">"))

    def _vector(self) -> t.Type:
        return t.OpaqueType("vector" + self.balanced())

    def _token(self, position: int) -> t.Type:
        return t.TOKEN

    def _future(self, position: int) -> t.Type:
        self.expect("<")
        return t.FutureType(self.type_list(">"))

    # --- quantized types ---

    def _quantized(self, position: int) -> t.Type:
        self.expect("<")
        storage = self._storage_type()
        low, high = t.storage_range(storage)
        if self.take("<"):
            low = self.integer("the smallest storage value")
            self.expect(":")
            high = self.integer("the largest storage value")
            self.expect(">")
        self.expect(":")
        at = self.position
        expressed = self.type()
        if not isinstance(expressed, t.ElementType) or not expressed.is_float or expressed.numpy is None:
            self.fail(f"expressed type must be a floating-point type, got {expressed} (C4)", at)
        reader = _Parameters(self, expressed, low, high)
        made = reader.read(storage)
        self.expect(">")
        return made

    def _storage_type(self) -> t.ElementType:
        token = self.keyword("a storage type")
        match = _STORAGE.fullmatch(token)
        if match is None:
            self.fail(f"expected an integer storage type, got '{token}'", self.position - 1)
        name = ("ui" if match[1][0] == "u" else "i") + match[2]
        storage = t.ELEMENT_TYPES.get(name)
        if storage is None or not storage.is_integer or storage.bits > 32:
            at = self.position - 1
            self.fail(f"illegal storage type {token}: an integer of 2, 4, 8, 16 or 32 bits is needed", at)
        if match[1] == "si":
            # MLIR tells si8 from i8; no op takes it, but it can be written.
            return t.ElementType(token, "other", storage.bits)
        return storage


class _Parameters:
    """Reads what follows a quantized type's expressed type: axis or blocks, scales and zero points."""

    def __init__(self, cursor: Cursor, expressed: t.ElementType, low: int, high: int) -> None:
        self.cursor = cursor
        self.expressed = expressed
        self.low = low
        self.high = high
        self.scales: list[float] = []
        self.zero_points: list[int] = []

    def read(self, storage: t.ElementType) -> t.QuantizedType:
        cursor = self.cursor
        axis: int | None = None
        blocks: tuple[tuple[int, int], ...] = ()
        shape: tuple[int, ...] = ()
        if cursor.take(":"):
            if cursor.take("{"):
                blocks = self._blocks()
            else:
                axis = cursor.int64("the quantization dimension")
        cursor.expect(",")
        if blocks:
            shape = self._nested(0)
        elif axis is not None:
            self._flat()
        else:
            self._one()
        return t.QuantizedType(
            storage, self.expressed, self.low, self.high, tuple(self.scales), tuple(self.zero_points), axis, blocks, shape
        )  # fmt: skip

    def _blocks(self) -> tuple[tuple[int, int], ...]:
        cursor = self.cursor
        found: dict[int, int] = {}
        while not cursor.take("}"):
            position = cursor.position
            dimension = cursor.int64("a dimension")
            cursor.expect(":")
            size = cursor.int64("a block size")
            if dimension < 0 or size <= 0 or dimension in found:
                cursor.fail(f"illegal block {dimension}:{size}", position)
            found[dimension] = size
            if not cursor.take(","):
                cursor.expect("}")
                break
        return tuple(found.items())

    def _flat(self) -> None:
        cursor = self.cursor
        cursor.expect("{")
        while True:
            self._one()
            if not cursor.take(","):
                break
        cursor.expect("}")

    def _nested(self, depth: int) -> tuple[int, ...]:
        cursor = self.cursor
        if not cursor.at("{"):
            self._one()
            return ()
        cursor.deeper()
        cursor.position += 1
        shapes: list[tuple[int, ...]] = []
        while True:
            position = cursor.position
            shapes.append(self._nested(depth + 1))
            if shapes[-1] != shapes[0]:
                cursor.fail("the blocks' parameters are not of one shape", position)
            if not cursor.take(","):
                break
        cursor.expect("}")
        cursor.depth -= 1
        return (len(shapes), *shapes[0])

    def _one(self) -> None:
        cursor = self.cursor
        try:
            scale = float(cursor.tokens[cursor.position])
        except ValueError:
            cursor.expected("a scale")
        cursor.position += 1
        zero_point = cursor.integer("a zero point") if cursor.take(":") else 0
        self.scales.append(scale)
        self.zero_points.append(zero_point)


def _is_integer_type(token: str) -> bool:
    return _INTEGER_TYPE.fullmatch(token) is not None


_INTEGER_TYPE = re.compile(r"[su]?i\d+", re.ASCII)
_LISTS: dict[str, tuple[int, ...] | None] = {}


def _list_of_integers(token: str) -> tuple[int, ...] | None:
    """The integers of a token `[1, 2]`; None when it is something else or one does not fit 64 bits."""
    found = _LISTS.get(token)
    if found is None:
        body = token[1:-1].strip()
        try:
            found = tuple(map(int, body.split(","))) if body else ()
        except ValueError:
            return None
        if found and not (min(found) >= -_LARGEST - 1 and max(found) <= _LARGEST):
            return None
        if len(_LISTS) > 10_000:
            _LISTS.clear()
        _LISTS[token] = found
    return found


_TYPE_WORDS: dict[str, Any] = {
    "tensor": Cursor._tensor,
    "memref": Cursor._memref,
    "complex": Cursor._complex,
    "tuple": Cursor._tuple,
    "vector": Cursor._vector,
}
_DIALECT_TYPES: dict[str, Any] = {
    "!stablehlo.token": Cursor._token,
    "!stablehlo.future": Cursor._future,
    "!quant.uniform": Cursor._quantized,
}
_BOUNDS_NAMES = {
    "#stablehlo.bounds": r"\s*<([\s\d?,]*)>\s*",
    "#stablehlo.type_extensions": r"\s*<\s*bounds\s*=\s*\[([\s\d?,]*)\]\s*>\s*",
}
