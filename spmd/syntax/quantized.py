"""Quantized element types: per tensor, per axis, and per block.

Source: StableHLO specification, "Quantized types"; MLIR's quant dialect for the spelling.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from spmd import types as t

if TYPE_CHECKING:
    from spmd.syntax.type_cursor import TypeCursor

_STORAGE = re.compile(r"(u|ui|i|si)(\d+)", re.ASCII)
_FLOAT_STORAGE = re.compile(r"f[48]E\w+", re.ASCII)


def quantized_type(cursor: TypeCursor, position: int) -> t.Type:
    """What follows `!quant.uniform`."""
    if cursor.at("<") and _FLOAT_STORAGE.fullmatch(cursor.tokens[cursor.position + 1]):
        # MLIR knows floats that stand for other floats; no op takes them, but they can be written.
        return t.OpaqueType("!quant.uniform" + cursor.balanced())
    cursor.expect("<")
    storage = _storage_type(cursor)
    low, high = t.storage_range(storage)
    if cursor.take("<"):
        low = cursor.integer("the smallest storage value")
        cursor.expect(":")
        high = cursor.integer("the largest storage value")
        cursor.expect(">")
    cursor.expect(":")
    at = cursor.position
    expressed = cursor.type()
    if not isinstance(expressed, t.ElementType) or not expressed.is_float or expressed.numpy is None:
        cursor.fail(f"expressed type must be a floating-point type, got {expressed} (C4)", at)
    reader = _Parameters(cursor, expressed, low, high)
    made = reader.read(storage)
    cursor.expect(">")
    return made


def _storage_type(cursor: TypeCursor) -> t.ElementType:
    token = cursor.keyword("a storage type")
    match = _STORAGE.fullmatch(token)
    if match is None:
        cursor.fail(f"expected an integer storage type, got '{token}'", cursor.position - 1)
    name = ("ui" if match[1][0] == "u" else "i") + match[2]
    storage = t.ELEMENT_TYPES.get(name)
    if storage is None or not storage.is_integer or storage.bits > 32:
        at = cursor.position - 1
        cursor.fail(f"illegal storage type {token}: an integer of 2, 4, 8, 16 or 32 bits is needed", at)
    if match[1] == "si":
        # MLIR tells si8 from i8; no op takes it, but it can be written.
        return t.ElementType(token, "other", storage.bits)
    return storage


class _Parameters:
    """Reads what follows a quantized type's expressed type: axis or blocks, scales and zero points."""

    def __init__(self, cursor: TypeCursor, expressed: t.ElementType, low: int, high: int) -> None:
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
        scales, zero_points = tuple(self.scales), tuple(self.zero_points)
        return t.QuantizedType(storage, self.expressed, self.low, self.high, scales, zero_points, axis, blocks, shape)

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
