"""Quantized element types: per tensor, per axis, and per block.

Source: StableHLO specification, "Quantized types"; MLIR's quant dialect for the spelling.
"""

from __future__ import annotations

import re

from spmd import types as t
from spmd.syntax.type_parser import TypeParser, dialect_type

_STORAGE = re.compile(r"(u|ui|i|si)(\d+)", re.ASCII)
_FLOAT_STORAGE = re.compile(r"f[48]E\w+", re.ASCII)


@dialect_type("!quant.uniform")
def quantized_type(parser: TypeParser, position: int) -> t.Type:
    """What follows `!quant.uniform`."""
    if parser.at("<") and _FLOAT_STORAGE.fullmatch(parser.tokens[parser.position + 1]):
        # MLIR knows floats that stand for other floats; no op takes them, but they can be written.
        return t.OpaqueType("!quant.uniform" + parser.parse_balanced())
    parser.expect("<")
    storage = _storage_type(parser)
    low, high = t.storage_range(storage)
    if parser.consume_if("<"):
        low = _signed_integer(parser, "the smallest storage value")
        parser.expect(":")
        high = _signed_integer(parser, "the largest storage value")
        parser.expect(">")
    parser.expect(":")
    at = parser.position
    expressed = parser.parse_type()
    if not isinstance(expressed, t.ElementType) or not expressed.is_float or expressed.numpy is None:
        parser.fail(f"expressed type must be a floating-point type, got {expressed} (C4)", at)
    reader = _Parameters(parser, expressed, low, high)
    type = reader.read(storage)
    parser.expect(">")
    return type


def _signed_integer(parser: TypeParser, what: str) -> int:
    """An integer literal of the specification's, which may have a plus before it."""
    parser.consume_if("+")
    return parser.parse_integer(what)


def _storage_type(parser: TypeParser) -> t.ElementType:
    token = parser.parse_keyword("a storage type")
    match = _STORAGE.fullmatch(token)
    if match is None:
        parser.fail(f"expected an integer storage type, got '{token}'", parser.position - 1)
    name = ("ui" if match[1][0] == "u" else "i") + match[2]
    storage = t.ELEMENT_TYPES.get(name)
    if storage is None or not storage.is_integer or storage.bits > 32:
        at = parser.position - 1
        parser.fail(f"illegal storage type {token}: an integer of 2, 4, 8, 16 or 32 bits is needed", at)
    if match[1] == "si":
        # MLIR tells si8 from i8; no op takes it, but it can be written.
        return t.ElementType(token, "other", storage.bits)
    return storage


class _Parameters:
    """Reads what follows a quantized type's expressed type: axis or blocks, scales and zero points."""

    def __init__(self, parser: TypeParser, expressed: t.ElementType, low: int, high: int) -> None:
        self.parser = parser
        self.expressed = expressed
        self.low = low
        self.high = high
        self.scales: list[float] = []
        self.zero_points: list[int] = []

    def read(self, storage: t.ElementType) -> t.QuantizedType:
        parser = self.parser
        axis: int | None = None
        blocks: tuple[tuple[int, int], ...] = ()
        shape: tuple[int, ...] = ()
        if parser.consume_if(":"):
            if parser.consume_if("{"):
                blocks = self._blocks()
            else:
                axis = parser.parse_int64("the quantization dimension")
        parser.expect(",")
        if blocks:
            shape = self._nested(0)
        elif axis is not None or parser.at("{"):  # the specification's grammar has one parameter in braces, too
            self._flat()
        else:
            self._one()
        scales, zero_points = tuple(self.scales), tuple(self.zero_points)
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
            scale = float(parser.tokens[parser.position])
        except ValueError:
            parser.expected("a scale")
        parser.position += 1
        zero_point = _signed_integer(parser, "a zero point") if parser.consume_if(":") else 0
        self.scales.append(scale)
        self.zero_points.append(zero_point)
