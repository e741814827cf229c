"""Parse types. Source: StableHLO specification, "Types"; MLIR's builtin types for the spelling."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from spmd import types as t
from spmd.dialects.type_rules import element_fault, type_fault
from spmd.ir.attributes import OpaqueAttr
from spmd.syntax.lexer import END, split_parts
from spmd.syntax.token_parser import DEEPEST, LARGEST, TokenParser

_LARGEST_RANK = 64


#: Parsers of what follows the name of a dialect's type, which is the token at the given position.
DialectTypeParser = Callable[["TypeParser", int], t.Type]


def dialect_type(name: str) -> Callable[[DialectTypeParser], DialectTypeParser]:
    """Register the decorated parser of a dialect's type under its name, such as `!quant.uniform`."""

    def add(parser: DialectTypeParser) -> DialectTypeParser:
        _DIALECT_TYPES[name] = parser
        return parser

    return add


class TypeParser(TokenParser):
    """Parses types."""

    def at_type(self) -> bool:
        """Return whether the next token starts a type."""
        token = self.tokens[self.position]
        if token in self.types:
            return True
        word = token.split("<", 1)[0]
        return (
            token[:1] in ("!", "(") or word in _TYPE_WORDS or word in _SCALARS_OF_NO_TENSOR or _is_integer_type(token)
        )

    def parse_type(self) -> t.Type:
        """Parse any type."""
        token = self.tokens[self.position]
        type = self.types.get(token)
        if type is None:
            return self._new_type(token)
        self.position += 1
        return type

    def _new_type(self, token: str) -> t.Type:
        position = self.position
        if ("<" in token and token[0] != "<") or (token[:1] == "(" and len(token) > 1):
            type: t.Type = self.inside(token).parse_whole_type()
            self.position += 1
        elif self.outer is None and token[:1] != "(" and self.tokens[position + 1] == "<":
            # Written over several lines: the outermost text's tokens are parsed only as a whole.
            inner = self.inside("")
            self.position += 1
            inner.tokens = split_parts(token + self.parse_balanced()) + END
            type = inner.parse_whole_type()
            return type
        else:
            return self._type_of_parts()
        if "!" not in token or not self.names.type_aliases:
            self.types[token] = type
        return type

    def parse_whole_type(self) -> t.Type:
        """Parse the whole text as one type."""
        type = self.parse_type()
        if self.tokens[self.position]:
            self.expected("the end of the type")
        return type

    def _type_of_parts(self) -> t.Type:
        self.type_depth += 1
        position = self.position
        self._check_depth(self.type_depth, position)
        token = self.tokens[position]
        if token == "(":
            parsed: t.Type = self._function_type()
        elif token[:1] == "!":
            parsed = self._dialect_type()
        elif token in _TYPE_WORDS:
            self.position += 1
            parsed = _TYPE_WORDS[token](self)
        elif token in _SCALARS_OF_NO_TENSOR:
            self.position += 1
            parsed = t.OpaqueType(token)
        elif _is_integer_type(token):
            self.position += 1
            bits = token.lstrip("sui")
            if len(bits) > 8 or not 0 < int(bits) < 2**24:
                self.fail("integer types have from 1 to 16777215 bits", self.position - 1)
            parsed = t.OpaqueType(token)
            if token[0] == "s":
                parsed = t.ELEMENT_TYPES.get(token[1:], parsed)
        else:
            self.expected("a type")
        self.type_depth -= 1
        self._check_depth(parsed.depth, position)
        fault = type_fault(parsed)
        if fault is not None:
            label, message = fault
            self.fail(f"({label}) {message}" if label else message, position)
        return parsed

    def _check_depth(self, depth: int, position: int) -> None:
        if depth > DEEPEST:
            self.fail(f"types nest deeper than {DEEPEST} levels", position)

    def parse_type_list(self, closing: str) -> tuple[t.Type, ...]:
        """Parse types separated by commas; consume `closing` at their end."""
        types: list[t.Type] = []
        if self.consume_if(closing):
            return ()
        while True:
            types.append(self.parse_type())
            if not self.consume_if(","):
                break
        self.expect(closing)
        return tuple(types)

    def parse_function_type(self) -> t.FunctionType:
        """Parse `(inputs) -> results`; any other type is an error."""
        position = self.position
        function_type = self.parse_type()
        if not isinstance(function_type, t.FunctionType):
            self.fail(f"expected a function type, got {function_type}", position)
        return function_type

    def _function_type(self) -> t.FunctionType:
        self.expect("(")
        inputs = self.parse_type_list(")")
        if not self.consume_if("->"):
            self.expected("'->' in function type")
        return t.FunctionType(inputs, self.parse_result_types())

    def parse_result_types(self) -> tuple[t.Type, ...]:
        """Parse one type without parentheses, or a list in parentheses."""
        if not self.at("("):
            return (self.parse_type(),)
        self.position += 1
        return self.parse_type_list(")")

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
        if name.startswith("!quant.") and name not in _OTHER_QUANTIZED:
            self.fail(f"unknown quant type: {name[7:]}", position)
        if name == "!" or ("." not in name and self.tokens[self.position] != "<"):
            self.fail(f"undefined type alias '{name}'", position)
        if self.tokens[self.position] == "<":
            return t.OpaqueType(name + self.parse_balanced())
        return t.OpaqueType(name)

    def _dimensions(self) -> tuple[int | None, ...]:
        """Parse `4x?x`, from tokens that hold one or more dimensions."""
        dimensions: list[int | None] = []
        while True:
            token = self.tokens[self.position]
            if not (token[:1].isdigit() or token == "?" or token[:2] == "?x"):
                return tuple(dimensions)
            several = token[-1] == "x"
            if not several and not token.isdigit() and token != "?":
                self.expected("a dimension")
            rank = len(dimensions) + (token.count("x") if several else 1)
            if rank > _LARGEST_RANK:
                self.fail(f"more than {_LARGEST_RANK} dimensions")
            dimensions += [self.dimension(part) for part in token.removesuffix("x").split("x")]
            self.position += 1
            if not several:
                self._cross()

    def _cross(self) -> None:
        """Consume the `x` between dimensions, which may be part of the next token."""
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

    def dimension(self, text: str) -> int | None:
        if text == "?":
            return None
        if not (text.isascii() and text.isdigit()):
            self.fail(f"expected a dimension, got '{text[:40]}'")
        if len(text) > 19 or int(text) > LARGEST:
            self.fail(f"dimension {text[:40]} does not fit 64 bits")
        return int(text)

    def _tensor(self) -> t.Type:
        self.expect("<")
        if self.consume_if("*"):
            self._cross()
            element = self._element_type(self.position)
            if self.consume_if(","):
                self.fail("an unranked tensor has no encoding")
            self.expect(">")
            return t.UnrankedTensorType(element)
        position = self.position
        shape = self._dimensions()
        at_element = self.position
        element = self._element_type(at_element)
        bounds, encoding = self._encoding() if self.consume_if(",") else (None, None)
        self.expect(">")
        if isinstance(element, t.QuantizedType) and element.block_sizes:
            self._check_blocks(element, shape, position)
        return t.TensorType(shape, element, bounds, encoding)

    def _element_type(self, position: int, *, in_buffer: bool = False) -> Any:
        element = self.parse_type()
        fault = element_fault(element, in_buffer=in_buffer)
        if fault is not None:
            self.fail(fault, position)
        return element

    def _check_blocks(self, element: t.QuantizedType, shape: tuple[int | None, ...], position: int) -> None:
        """Check sub-channel quantization: the blocks divide the dimensions, and each has its parameters."""
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
        """Parse the bounds, or the text of any other attribute, after the element type."""
        position = self.position
        if not _ATTRIBUTE_START.match(self.tokens[position]):
            self.expected("an attribute that encodes a tensor")
        text = self.parse_attribute_text()
        if self.consume_if(":"):
            text += f" : {self.parse_type()}"
        alias = self.names.attribute_aliases.get(text)
        if alias is not None:
            if not isinstance(alias, OpaqueAttr):
                self.fail("expected an attribute that encodes a tensor", position)
            text = alias.text
        name, opened, body = text.partition("<")
        if name.startswith("#stablehlo.") and name not in _BOUNDS_NAMES:
            self.fail(f"{name} does not encode a tensor", position)
        if name not in _BOUNDS_NAMES:
            return None, text
        listed = re.fullmatch(_BOUNDS_NAMES[name], opened + body, re.ASCII)
        if not listed:
            self.fail("expected bounds such as #stablehlo.bounds<?, 4>", position)
        entries = [entry.strip() for entry in listed[1].split(",")] if listed[1].strip() else []
        # Before 2023 an unknown bound was written as -1.
        return tuple(None if entry == "-1" else self.dimension(entry) for entry in entries), None

    def parse_attribute_text(self) -> str:
        """Parse an attribute of which only the text is kept."""
        token = self.tokens[self.position]
        if not token or token in (",", ">"):
            self.expected("an attribute")
        if token[0] in "{[":
            return self.parse_balanced()
        self.position += 1
        if self.tokens[self.position] == "<":
            return token + self.parse_balanced()
        return token

    def _memref(self) -> t.Type:
        start = self.position - 1
        self.expect("<")
        if self.consume_if("*"):
            self.position = start + 1
            return t.OpaqueType("memref" + self.parse_balanced())
        shape = self._dimensions()
        element = self._element_type(self.position, in_buffer=True)
        memory: list[str] = []
        while self.consume_if(","):
            memory.append(self._memory())
        self.expect(">")
        return t.BufferType(shape, element, ", ".join(memory) or None)

    def _memory(self) -> str:
        text = self.parse_attribute_text()
        while self.tokens[self.position] not in (",", ">", ""):
            text += " " + self.parse_attribute_text()
        return text

    def _complex(self) -> t.Type:
        self.expect("<")
        position = self.position
        part = self.parse_type()
        self.expect(">")
        if part is t.F32 or part is t.F64:
            return t.ELEMENT_TYPES[f"complex<{part}>"]
        if not isinstance(part, t.ElementType) or not (part.is_float or part.is_integer or part.is_boolean):
            self.fail(f"invalid element type {part} of a complex type", position)
        return t.OpaqueType(f"complex<{part}>")

    def _tuple(self) -> t.Type:
        self.expect("<")
        return t.TupleType(self.parse_type_list(">"))

    def _vector(self) -> t.Type:
        return t.OpaqueType("vector" + self.parse_balanced())

    def _future(self) -> t.Type:
        self.expect("<")
        return t.FutureType(self.parse_type_list(">"))


def _is_integer_type(token: str) -> bool:
    return _INTEGER_TYPE.fullmatch(token) is not None


_ATTRIBUTE_START = re.compile(r"""[#"@\[{\d-]|(?:array|dense|unit|true|false|affine_map|strided|sparse)\b""")
#: `string` is the specification's StringType.
_SCALARS_OF_NO_TENSOR = ("none", "f80", "f128", "string")
_OTHER_QUANTIZED = ("!quant.any", "!quant.calibrated")
_INTEGER_TYPE = re.compile(r"[su]?i\d+", re.ASCII)


_TYPE_WORDS: dict[str, Callable[[TypeParser], t.Type]] = {
    "tensor": TypeParser._tensor,
    "token": lambda parser: t.TOKEN,  # this and the next as the specification spells them
    "future": TypeParser._future,
    "memref": TypeParser._memref,
    "complex": TypeParser._complex,
    "tuple": TypeParser._tuple,
    "vector": TypeParser._vector,
}
_DIALECT_TYPES: dict[str, DialectTypeParser] = {
    "!stablehlo.token": lambda parser, position: t.TOKEN,
    "!stablehlo.future": lambda parser, position: parser._future(),
}
_BOUNDS_NAMES = {
    "#stablehlo.bounds": r"\s*<([\s\d?,]*)>\s*",
    "#stablehlo.type_extensions": r"\s*<\s*bounds\s*=\s*\[((?:[\s\d?,]|-1\b)*)\]\s*>\s*",
}
