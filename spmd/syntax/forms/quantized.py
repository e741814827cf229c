"""Quantized element types: per tensor, per axis, and per block.

Source: StableHLO specification, "Quantized types"; MLIR's quant dialect for the spelling.

The two differ on `si8`. The specification's grammar spells signed storage types this way and gives every scale a zero
point, so `!quant.uniform<si8:f32, 0.5:0>` is parsed as the `i8` type. Without a zero point the text is MLIR's, where
`si8` is a type different from `i8`, which no op takes.
"""

from __future__ import annotations

import re

from spmd import types as t
from spmd.ir.attributes import FloatAttr
from spmd.syntax.literals import scalar_bits
from spmd.syntax.type_parser import TypeParser, dialect_type

_STORAGE = re.compile(r"(u|ui|i|si)(\d+)", re.ASCII)
_FLOAT_STORAGE = re.compile(r"f[48]E\w+", re.ASCII)


@dialect_type("!quant.uniform")
def quantized_type(parser: TypeParser, position: int) -> t.Type:
    """Parse what follows `!quant.uniform`."""
    if parser.at("<") and _FLOAT_STORAGE.fullmatch(parser.tokens[parser.position + 1]):
        # MLIR also has quantized types stored as floats; no op takes them, but they can be written.
        return t.OpaqueType("!quant.uniform" + parser.parse_balanced())
    parser.expect("<")
    token, storage = _storage_type(parser)
    low, high = t.storage_range(storage)
    if parser.consume_if("<"):
        low = _storage_value(parser, storage, "C2", "storage_min")
        parser.expect(":")
        high = _storage_value(parser, storage, "C2", "storage_max")
        parser.expect(">")
    parser.expect(":")
    at = parser.position
    expressed = parser.parse_type()
    if not isinstance(expressed, t.ElementType) or not expressed.is_float or expressed.numpy is None:
        parser.fail(f"expressed type must be a floating-point type, got {expressed} (C4)", at)
    type = _Parameters(parser, token, storage, expressed, low, high).read()
    parser.expect(">")
    return type


def _storage_value(parser: TypeParser, storage: t.ElementType, label: str, what: str) -> int:
    """Parse an integer constant of the specification: it may have a plus before it and its type after it."""
    parser.consume_if("+")
    value = parser.parse_integer(what)
    _constant_type(parser, storage, label, what)
    return value


def _constant_type(parser: TypeParser, expected: t.ElementType, label: str, what: str) -> None:
    """Parse the `: type` of a constant, if given."""
    token = parser.tokens[parser.position + 1]
    match = _STORAGE.fullmatch(token)
    if parser.at(":") and (match or token in t.ELEMENT_TYPES):
        type = t.ELEMENT_TYPES.get(_storage_name(match) if match else token)
        if type is not expected:
            rule = f"({label}) " if label else ""
            parser.fail(f"{rule}type({what}) = {expected}, got {token}", parser.position + 1)
        parser.position += 2


def _storage_name(match: re.Match[str]) -> str:
    return ("ui" if match[1][0] == "u" else "i") + match[2]


def _storage_type(parser: TypeParser) -> tuple[str, t.ElementType]:
    """Parse the storage type; return its spelling and the type."""
    token = parser.parse_keyword("a storage type")
    match = _STORAGE.fullmatch(token)
    if match is None:
        parser.fail(f"expected an integer storage type, got '{token}'", parser.position - 1)
    storage = t.ELEMENT_TYPES.get(_storage_name(match))
    if storage is None or not storage.is_integer or storage.bits > 32:
        at = parser.position - 1
        parser.fail(f"illegal storage type {token}: an integer of 2, 4, 8, 16 or 32 bits is needed", at)
    return token, storage


def _scale(token: str, expressed: t.ElementType) -> float:
    """Return the scale given in decimal or as hexadecimal bits of the expressed type; raise ValueError for another."""
    if "x" not in token:
        return float(token)
    return FloatAttr(scalar_bits(token, expressed), expressed).value


class _Parameters:
    """Parses what follows the expressed type of a quantized type: axis or blocks, scales and zero points."""

    def __init__(
        self, parser: TypeParser, token: str, storage: t.ElementType, expressed: t.ElementType, low: int, high: int
    ) -> None:
        self.parser = parser
        self.token = token
        self.storage = storage
        self.expressed = expressed
        self.low = low
        self.high = high
        self.scales: list[float] = []
        self.zero_points: list[int] = []
        self.without_zero_point = False

    def read(self) -> t.QuantizedType:
        parser = self.parser
        axis: int | None = None
        blocks: tuple[tuple[int, int], ...] = ()
        shape: tuple[int, ...] = ()
        if parser.consume_if(":"):
            if parser.consume_if("{"):
                blocks = self._blocks()
            else:
                axis = parser.parse_int64("the quantization dimension")
                _constant_type(parser, t.I64, "", "quantization_dimension")
        parser.expect(",")
        if blocks:
            shape = self._nested(0)
        elif axis is not None or parser.at("{"):  # the specification's grammar has one parameter in braces, too
            self._flat()
        else:
            self._one()
        scales, zero_points = tuple(self.scales), tuple(self.zero_points)
        storage = self.storage
        if self.without_zero_point and self.token.startswith("si"):
            storage = t.ElementType(self.token, "other", storage.bits)
        return t.QuantizedType(storage, self.expressed, self.low, self.high, scales, zero_points, axis, blocks, shape)

    def _blocks(self) -> tuple[tuple[int, int], ...]:
        parser = self.parser
        blocks: dict[int, int] = {}
        while not parser.consume_if("}"):
            position = parser.position
            dimension = parser.parse_int64("a dimension")
            parser.expect(":")
            size = parser.parse_int64("a block size")
            if dimension < 0 or size <= 0 or dimension in blocks:
                parser.fail(f"illegal block {dimension}:{size}", position)
            blocks[dimension] = size
            if not parser.consume_if(","):
                parser.expect("}")
                break
        return tuple(blocks.items())

    def _flat(self) -> None:
        parser = self.parser
        parser.expect("{")
        while True:
            self._one()
            if not parser.consume_if(","):
                break
        parser.expect("}")

    def _nested(self, depth: int) -> tuple[int, ...]:
        parser = self.parser
        if not parser.at("{"):
            self._one()
            return ()
        parser.deeper()
        parser.position += 1
        shapes: list[tuple[int, ...]] = []
        while True:
            position = parser.position
            shapes.append(self._nested(depth + 1))
            if shapes[-1] != shapes[0]:
                parser.fail("the blocks' parameters are not of one shape", position)
            if not parser.consume_if(","):
                break
        parser.expect("}")
        parser.depth -= 1
        return (len(shapes), *shapes[0])

    def _one(self) -> None:
        parser = self.parser
        parser.consume_if("+")
        try:
            scale = _scale(parser.tokens[parser.position], self.expressed)
        except ValueError:
            parser.expected("a scale")
        parser.position += 1
        _constant_type(parser, self.expressed, "C4", "scale")
        zero_point = 0
        if parser.consume_if(":"):
            zero_point = _storage_value(parser, self.storage, "C8", "zero_point")
        else:
            self.without_zero_point = True
        self.scales.append(scale)
        self.zero_points.append(zero_point)
