"""Reads the ops of a bytecode file. Source: MLIR's bytecode format, "IR Section".

The section is a sequence of variable-width integers and a few bytes. The integer that would start at each byte, and its
length, are computed for all bytes at once; reading an op then consists of table look-ups.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from spmd.artifacts import sections as s
from spmd.artifacts.kinds import CAST, OpKind, OpKinds
from spmd.artifacts.page import FilePage
from spmd.artifacts.stream import ByteReader
from spmd.artifacts.tables import Tables
from spmd.errors import Diagnostic
from spmd.ir import Block, Function, Module, NumberedValue, Op, Region, Value
from spmd.syntax.token_parser import DEEPEST
from spmd.types import Type

_ATTRIBUTES, _RESULTS, _OPERANDS, _SUCCESSORS, _REGIONS, _USE_ORDERS, _PROPERTIES = (1 << bit for bit in range(7))
_BEHIND = _SUCCESSORS | _REGIONS | _USE_ORDERS
#: Bytes of padding at the end, since an integer has at most nine.
_MARGIN = 128


def _integers(data: bytes) -> tuple[list[int], bytes]:
    """Return, for each byte of `data` and the padding, the integer that would start there, and its length in bytes."""
    padded = data + bytes(2 * _MARGIN)
    count = len(data) + _MARGIN
    words = np.ndarray((count + 1,), np.dtype("<u8"), padded, 0, (1,))
    first = np.frombuffer(padded, np.uint8, count)
    values = (words[:-1] & _MASKS[first]) >> _SHIFTS[first]
    longest = first == 0
    values[longest] = words[1:][longest]
    return values.tolist(), padded[:count].translate(_LENGTHS)


#: By an integer's first byte: its length, its mask within eight bytes, and its shift.
_LENGTHS = bytes([9, *((byte & -byte).bit_length() for byte in range(1, 256))])
_MASKS = np.array([(1 << 8 * min(length, 8)) - 1 for length in _LENGTHS], np.uint64)
_SHIFTS = np.array([length % 9 for length in _LENGTHS], np.uint64)


class _Forward(Value):
    """A placeholder for a value that is used before its definition."""

    __slots__ = ()


class _ReadScope:
    """The values of one isolated region by number, and the ops that use forward references."""

    __slots__ = ("forward", "users", "values")

    def __init__(self) -> None:
        self.values: list[Value | None] = []
        self.forward: dict[int, _Forward] = {}
        self.users: list[Op] = []


class _ReadRegion:
    """A region being read: its blocks, and its parent op (None at top level, where values are not numbered).

    Values defined in it are numbered in `scope` from `following` on, below `last`.
    """

    __slots__ = ("blocks", "following", "last", "parent", "scope")

    def __init__(self, scope: _ReadScope, blocks: list[Block], parent: type[Op] | None, last: int = 0) -> None:
        self.scope = scope
        self.blocks = blocks
        self.parent = parent
        self.following = len(scope.values)
        self.last = last


class IrReader:
    """Reads the ops of one file; positions are relative to the start of its IR section."""

    def __init__(self, tables: Tables, reader: ByteReader) -> None:
        self._tables = tables
        self._version = tables.version
        self._reader = reader
        self._start = reader.position
        self._data = bytes(reader.data[reader.position : reader.end]) + bytes(_MARGIN)
        self._value, self._size = _integers(self._data[:-_MARGIN])
        self._at = 0
        self._end = reader.end - reader.position
        self._kinds = OpKinds(tables)
        self._page = FilePage(tables, reader)
        self._depth = 0
        self._mixed = any(dialect.name == "vhlo" for dialect in tables.dialects)
        self.diagnostics: list[Diagnostic] = []

    def ops(self) -> list[Op]:
        """Return the top-level ops."""
        block = Block()
        count, arguments = self._flagged()
        if arguments:
            self.fail("the top-level block must have no arguments")
        self._ops(block, count, _ReadRegion(_ReadScope(), [], None))
        if self._at != self._end:
            self.fail(f"{self._end - self._at} bytes are left after the ops")
        return block.ops

    # --- primitives --------------------------------------------------------------------------------------------------

    def fail(self, message: str) -> NoReturn:
        """Raise ParseError at the current position."""
        self._reader.fail(message, self._start + min(self._at, self._end))

    def _varint(self) -> int:
        at = self._at
        if at >= self._end:
            self.fail("an integer is needed at the end")
        self._at = at + self._size[at]
        return self._value[at]

    def _flagged(self) -> tuple[int, bool]:
        value = self._varint()
        return value >> 1, bool(value & 1)

    def _count(self, what: str) -> int:
        number = self._varint()
        self._check_count(number, what)
        return number

    def _check_count(self, number: int, what: str) -> None:
        if number > self._end - self._at:
            self.fail(f"{number} {what} do not fit into {max(0, self._end - self._at)} bytes")

    def _reader_here(self) -> ByteReader:
        """Return a reader that starts at the current position and reports errors there."""
        reader = self._reader
        at = self._start + min(self._at, self._end)
        return ByteReader(reader.data, reader.file, reader.section, at, self._start + self._end)

    # --- regions and blocks ------------------------------------------------------------------------------------------

    def _regions(self, count: int, isolated: bool, scope: _ReadScope, op: type[Op]) -> list[Region]:
        self._depth += 1
        if self._depth > DEEPEST:
            self.fail(f"regions must be nested at most {DEEPEST} deep")
        apart = isolated and self._version >= s.LAZY_REGIONS
        end = self._end
        if apart:
            number, inside = s.read_section(self._reader_here())
            if number != s.IR:
                self.fail("an isolated region must be a section of IR")
            self._at, self._end = inside.position - self._start, inside.end - self._start
        regions = [self._region(_ReadScope() if isolated else scope, op) for _ in range(count)]
        if apart:
            if self._at != self._end:
                self.fail("bytes are left after the regions")
            self._end = end
        self._depth -= 1
        return regions

    def _region(self, scope: _ReadScope, op: type[Op]) -> Region:
        blocks = [Block() for _ in range(self._count("blocks"))]
        if not blocks:
            return Region()
        start, count = len(scope.values), self._count("values")
        region = _ReadRegion(scope, blocks, op, start + count)
        scope.values += [None] * count
        for block in blocks:
            count, arguments = self._flagged()
            if arguments:
                self._arguments(block, region)
            self._ops(block, count, region)
        if scope.forward:
            self._settle(scope, start, len(blocks) == 1)
        del scope.values[start:]
        return Region(blocks)

    def _arguments(self, block: Block, region: _ReadRegion) -> None:
        count = self._count("arguments")
        if region.following + count > region.last:
            self.fail(f"{count} arguments exceed the declared number of values, {region.last}")
        arguments: list[NumberedValue] = []
        for index in range(count):
            number, located = self._flagged() if self._version >= s.NO_UNKNOWN_LOCATIONS else (self._varint(), True)
            type = self._tables.types.get(number) or self._tables.type(number, self)
            argument = NumberedValue(type, block, index)
            if located:
                argument.locate(partial(self._page.location_text, self._varint()))
            arguments.append(argument)
        block.arguments = tuple(arguments)
        self._define(region, block.arguments)
        if self._version >= s.USE_ORDERS:
            self._at += 1
            if self._data[self._at - 1]:
                self._use_orders(count)

    def _use_orders(self, count: int) -> None:
        """Skip the order of uses of values, on which nothing depends."""
        for _ in range(self._count("orders") if count > 1 else 1):
            if count > 1:
                self._varint()
            length, _ = self._flagged()
            self._check_count(length, "uses")
            for _ in range(length):
                self._varint()

    def _settle(self, scope: _ReadScope, start: int, in_order: bool) -> None:
        """Replace placeholders of the values from `start` on, which are defined now.

        With `in_order`, for a region with one block, no value is used before its definition.
        """
        resolved: dict[Value, Value] = {}
        for number in [number for number in scope.forward if number >= start]:
            value = scope.values[number]
            if value is None or in_order:
                self.fail(f"value {number} is used before it is defined")
            resolved[scope.forward.pop(number)] = value
        for op in scope.users:
            op.replace_operands(resolved)
        if not scope.forward:
            scope.users.clear()

    # --- ops ---------------------------------------------------------------------------------------------------------

    def _ops(self, block: Block, count: int, region: _ReadRegion) -> None:
        """Read `count` ops into `block`. Programs have many ops, so the common case is read without a call."""
        data, value, size, end, scope = self._data, self._value, self._size, self._end, region.scope
        types, kinds, page, base, values = self._tables.types, self._kinds.by_key, self._page, self._start, scope.values
        limit, in_function, numbered = len(values), region.parent is Function, region.parent is not None
        for _ in range(count):
            start = at = self._at
            if at >= end:
                self.fail(f"{count} ops are declared, but only {len(block.ops)} are present")
            name = value[at]
            at += size[at]
            mask = data[at]
            at += 1 + size[at + 1]  # skip the number of the location
            attributes = properties = -1
            if mask & _ATTRIBUTES:
                attributes = value[at]
                at += size[at]
            if mask & _PROPERTIES:
                properties = value[at]
                at += size[at]
            type: Type | None = None
            more_types: list[Type] = []
            if mask & _RESULTS and value[at] == 1:
                at += size[at]
                type = types.get(value[at]) or self._tables.type(value[at], self)
                at += size[at]
            elif mask & _RESULTS:
                more_types, at = self._result_types(at)
            operands: list[Any] = []
            missing = False
            if mask & _OPERANDS:
                left = value[at]
                at += size[at]
                if left > end - at:
                    self._check_count(left, "operands")
                while left:
                    left -= 1
                    number = value[at]
                    at += size[at]
                    operand = values[number] if number < limit else self.fail(f"value {number} of {limit}")
                    if operand is None:
                        missing = True
                        operand = scope.forward.setdefault(number, _Forward(None))  # type: ignore[arg-type]
                    operands.append(operand)
            self._at = at
            if at > end:
                self.fail("an op extends beyond the end")
            key = (name, attributes, properties, in_function)
            kind = kinds.get(key) or self._kinds.make(key, self)
            if type is None or missing or mask & _BEHIND or not kind.plain:
                self._op(block, base + start, mask, kind, operands, more_types if type is None else [type], region)
                continue
            op = Op.of_one_result(kind.definition, operands, type, kind.attributes, page, base + start)  # type: ignore[arg-type]
            block.ops.append(op)
            if numbered:
                if region.following >= region.last:
                    self._fail_beyond(region)
                values[region.following] = op
                region.following += 1

    def _result_types(self, at: int) -> tuple[list[Type], int]:
        """Return the types of an op's results, whose count is at `at`, and the position after them."""
        count = self._value[at]
        at += self._size[at]
        if count > self._end - at:
            self._check_count(count, "results")
        result_types = []
        for _ in range(count):
            number = self._value[at]
            result_types.append(self._tables.types.get(number) or self._tables.type(number, self))
            at += self._size[at]
        return result_types, at

    def _define(self, region: _ReadRegion, values: Sequence[Value]) -> None:
        """Assign the next numbers to `values`."""
        if region.parent is None:
            return
        start, end = region.following, region.following + len(values)
        if end > region.last:
            self._fail_beyond(region)
        region.scope.values[start:end] = values
        region.following = end

    def _fail_beyond(self, region: _ReadRegion) -> NoReturn:
        self.fail(f"more values are defined than the {region.last} declared")

    def _op(
        self, block: Block, offset: int, mask: int, kind: OpKind, operands: list[Any], types: list[Type],
        region: _ReadRegion,
    ) -> None:  # fmt: skip
        """Read the rest of an op into `block`; a cast between equal types is replaced by its operand."""
        successors, regions = self._behind(mask, len(types), kind, region) if mask & _BEHIND else (None, [])
        if kind.cls is not Op and not _has_body(kind.cls, regions):
            self.fail(f"{kind.name} must have one region, and a module's one block")
        if kind.name == CAST and self._mixed and _is_identity(operands, types):
            self._define(region, operands)
            return
        op = kind.cls(kind.name, operands, types, kind.attributes, regions, kind.definition, kind.discardable)
        op.read_at(self._page, offset)
        block.ops.append(op)
        if any(type(operand) is _Forward for operand in operands):
            region.scope.users.append(op)
        if successors is not None:
            op.attributes = {**op.attributes, "successors": successors}
        if kind.faults:
            self.diagnostics += kind.diagnostics(self._page, offset)
        self._define(region, op.results)

    def _behind(
        self, mask: int, results: int, kind: OpKind, region: _ReadRegion
    ) -> tuple[tuple[int, ...] | None, list[Region]]:
        """Read the rare parts of an op: successors, the order of uses, and regions."""
        successors = None
        if mask & _SUCCESSORS:
            successors = tuple([self._varint() for _ in range(self._count("successors"))])
            if any(number >= len(region.blocks) for number in successors):
                self.fail(f"blocks {successors} of {len(region.blocks)}")
        if mask & _USE_ORDERS and self._version >= s.USE_ORDERS:
            self._use_orders(results)
        regions: list[Region] = []
        if mask & _REGIONS:
            count, isolated = self._flagged()
            self._check_count(count, "regions")
            regions = self._regions(count, isolated, region.scope, kind.cls)
        return successors, regions


def _is_identity(operands: list[Any], types: list[Type]) -> bool:
    """Return whether a cast is between equal types: VHLO's types and their equivalents are the same here."""
    return [value.type for value in operands] == types


def _has_body(cls: type[Op], regions: list[Region]) -> bool:
    """Return whether the regions are those of an op class with named parts."""
    return len(regions) == 1 and (cls is not Module or len(regions[0].blocks) == 1)
