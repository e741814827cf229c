"""The ops of a bytecode file. Source: MLIR's bytecode format, "IR Section".

The section is a row of variable-width integers with a few bytes between that stand for themselves. What integer would
start at each byte, and where it would end, is found for all bytes at once; reading an op is then looking things up.
"""

from __future__ import annotations

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
#: Bytes that are looked at behind the end: an integer is no longer than nine.
_MARGIN = 128


def _integers(data: bytes) -> tuple[list[int], bytes]:
    """(the integer that would start at each byte of `data`, how many bytes it would have)."""
    padded = np.frombuffer(data + bytes(2 * _MARGIN), np.uint8)
    count = len(data) + _MARGIN
    words = np.lib.stride_tricks.as_strided(padded.view("<u1")[:8].view("<u8"), (count + 1,), (1,), writeable=False)
    first = padded[:count]
    lengths = _LENGTHS[first]
    whole = words[:-1]
    shift = (64 - 8 * lengths.clip(max=8)).astype(np.uint64)
    values = (whole << shift) >> (shift + lengths.astype(np.uint64) % np.uint64(9))
    values = np.where(lengths == 9, words[1:], values)
    return values.tolist(), lengths.tobytes()


_LENGTHS = np.array([9, *((byte & -byte).bit_length() for byte in range(1, 256))], np.uint8)


class _Forward(Value):
    """Stands for a value that is used before it is defined."""

    __slots__ = ()


class _Scope:
    """The values of one isolated region by number, and the ops that used one before it was there."""

    __slots__ = ("forward", "users", "values")

    def __init__(self) -> None:
        self.values: list[Value | None] = []
        self.forward: dict[int, _Forward] = {}
        self.users: list[Op] = []


class IrReader:
    """Reads the ops of one file; positions count from the start of its IR section."""

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
        """The ops at the top."""
        block = Block()
        count, arguments = self._flagged()
        if arguments:
            self._fail("the block at the top has no arguments")
        self._ops(block, count, _Scope(), 0, 0, [], None)
        if self._at != self._end:
            self._fail(f"{self._end - self._at} bytes are left behind the ops")
        return block.ops

    # --- primitives --------------------------------------------------------------------------------------------------

    def _fail(self, message: str) -> NoReturn:
        self._reader.fail(message, self._start + min(self._at, self._end))

    def _varint(self) -> int:
        at = self._at
        if at >= self._end:
            self._fail("an integer is needed where nothing is left")
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
            self._fail(f"{number} {what} are told of where {max(0, self._end - self._at)} bytes are left")

    def _reader_here(self) -> ByteReader:
        """A reader from here on, which tells errors at this place."""
        reader = self._reader
        at = self._start + min(self._at, self._end)
        return ByteReader(reader.data, reader.file, reader.section, at, self._start + self._end)

    # --- regions and blocks ------------------------------------------------------------------------------------------

    def _regions(self, count: int, isolated: bool, scope: _Scope, op: type[Op]) -> list[Region]:
        self._depth += 1
        if self._depth > DEEPEST:
            self._fail(f"regions nest more than {DEEPEST} deep")
        apart = isolated and self._version >= s.LAZY_REGIONS
        end = self._end
        if apart:
            number, inside = s.read_section(self._reader_here())
            if number != s.IR:
                self._fail("an isolated region is a section of IR")
            self._at, self._end = inside.position - self._start, inside.end - self._start
        regions = [self._region(_Scope() if isolated else scope, op) for _ in range(count)]
        if apart:
            if self._at != self._end:
                self._fail("bytes are left behind the regions")
            self._end = end
        self._depth -= 1
        return regions

    def _region(self, scope: _Scope, op: type[Op]) -> Region:
        blocks = [Block() for _ in range(self._count("blocks"))]
        if not blocks:
            return Region()
        start = following = len(scope.values)
        end = start + self._count("values")
        scope.values += [None] * (end - start)
        for block in blocks:
            count, arguments = self._flagged()
            if arguments:
                following = self._arguments(block, scope, following, end)
            following = self._ops(block, count, scope, following, end, blocks, op)
        if scope.forward:
            self._settle(scope, start, len(blocks) == 1)
        del scope.values[start:]
        return Region(blocks)

    def _arguments(self, block: Block, scope: _Scope, following: int, end: int) -> int:
        count = self._count("arguments")
        if following + count > end:
            self._fail(f"{count} arguments where values up to {end - 1} are told of")
        arguments: list[NumberedValue] = []
        for index in range(count):
            number, located = self._flagged() if self._version >= s.NO_UNKNOWN_LOCATIONS else (self._varint(), True)
            type = self._tables.types.get(number) or self._tables.type(number, self._reader_here())
            argument = NumberedValue(type, block, index)
            if located:
                argument.locate(partial(self._page.location_text, self._varint()))
            arguments.append(argument)
        block.arguments = tuple(arguments)
        scope.values[following : following + count] = block.arguments
        if self._version >= s.USE_ORDERS:
            self._at += 1
            if self._data[self._at - 1]:
                self._use_orders(count)
        return following + count

    def _use_orders(self, count: int) -> None:
        """The order in which uses of values are kept: nothing here depends on it."""
        for _ in range(self._count("orders") if count > 1 else 1):
            if count > 1:
                self._varint()
            length, _ = self._flagged()
            self._check_count(length, "uses")
            for _ in range(length):
                self._varint()

    def _settle(self, scope: _Scope, start: int, in_order: bool) -> None:
        """Puts the values from `start` on in place of what stood for them, now that they are there.

        A region's one block has its values `in_order`: none is used before it is defined.
        """
        resolved: dict[Value, Value] = {}
        for number in [number for number in scope.forward if number >= start]:
            value = scope.values[number]
            if value is None or in_order:
                self._fail(f"value {number} is used before it is defined")
            resolved[scope.forward.pop(number)] = value
        for op in scope.users:
            op.replace_operands(resolved)
        if not scope.forward:
            scope.users.clear()

    # --- ops ---------------------------------------------------------------------------------------------------------

    def _ops(
        self, block: Block, count: int, scope: _Scope, following: int, last: int, blocks: list[Block],
        parent: type[Op] | None,
    ) -> int:  # fmt: skip
        """Reads `count` ops into `block`; their results are values from `following` on. Returns the next number."""
        data, value, size, end, values = self._data, self._value, self._size, self._end, scope.values
        types, kinds, page = self._tables.types, self._kinds.by_key, self._page
        in_function = parent is Function
        append, add_offset, add_location = block.ops.append, page.offsets.append, page.locations.append
        base = self._start
        for _ in range(count):
            start = at = self._at
            if at >= end:
                self._fail(f"{count} ops are told of, of which {len(block.ops)} are there")
            name = value[at]
            at += size[at]
            mask = data[at]
            at += 1
            location = value[at]
            at += size[at]
            attributes = properties = -1
            if mask & _ATTRIBUTES:
                attributes = value[at]
                at += size[at]
            if mask & _PROPERTIES:
                properties = value[at]
                at += size[at]
            result_types: list[Type] = []
            if mask & _RESULTS:
                length = value[at]
                at += size[at]
                if length > end - at:
                    self._check_count(length, "results")
                while length:
                    length -= 1
                    number = value[at]
                    at += size[at]
                    result_types.append(types.get(number) or self._tables.type(number, self._reader_here()))
            operands: list[Any] = []
            missing = False
            if mask & _OPERANDS:
                length = value[at]
                at += size[at]
                if length > end - at:
                    self._check_count(length, "operands")
                while length:
                    length -= 1
                    number = value[at]
                    at += size[at]
                    operand = values[number] if number < len(values) else self._fail(f"value {number} of {len(values)}")
                    if operand is None:
                        missing = True
                        operand = scope.forward.setdefault(number, _Forward(None))  # type: ignore[arg-type]
                    operands.append(operand)
            self._at = at
            if at > end:
                self._fail("an op goes beyond the end")
            key = (name, attributes, properties, in_function)
            kind = kinds.get(key) or self._kinds.make(key, self._reader_here())
            if kind.plain and len(result_types) == 1 and not (mask & _BEHIND or missing):  # as most ops are
                token = len(page.offsets)
                op = Op.of_one_result(kind.definition, operands, result_types[0], kind.attributes, page, token)  # type: ignore[arg-type]
                add_offset(base + start)
                add_location(location)
                append(op)
                if parent is not None:
                    if following >= last:
                        self._fail_beyond(last)
                    values[following] = op
                    following += 1
                continue
            results = self._op(block, (base + start, location), mask, kind, operands, result_types, blocks, scope)
            if missing and results is not operands:
                scope.users.append(block.ops[-1])
            if parent is not None and results:
                if following + len(results) > last:
                    self._fail_beyond(last)
                values[following : following + len(results)] = results
                following += len(results)
        return following

    def _fail_beyond(self, last: int) -> NoReturn:
        self._fail(f"more values are defined than the {last} that are told of")

    def _op(
        self, block: Block, place: tuple[int, int], mask: int, kind: OpKind, operands: list[Any], types: list[Type],
        blocks: list[Block], scope: _Scope,
    ) -> Any:  # fmt: skip
        """Reads the rest of an op into `block`, and gives its results; those of a cast that changes nothing."""
        successors, regions = self._behind(mask, len(types), blocks, kind, scope) if mask & _BEHIND else (None, [])
        if kind.cls is not Op and not _has_body(kind.cls, regions):
            self._fail(f"{kind.name} has one region, of one block where it is a module's")
        if kind.name == CAST and self._mixed and _is_identity(operands, types):
            return operands
        page, token = self._page, len(self._page.offsets)
        op = kind.cls(kind.name, operands, types, kind.attributes, regions, kind.definition, kind.discardable)
        op.read_at(page, token)
        page.offsets.append(place[0])
        page.locations.append(place[1])
        block.ops.append(op)
        if successors is not None:
            op.attributes = {**op.attributes, "successors": successors}
        if kind.faults:
            self.diagnostics += kind.diagnostics(page, token)
        return op.results

    def _behind(
        self, mask: int, results: int, blocks: list[Block], kind: OpKind, scope: _Scope
    ) -> tuple[tuple[int, ...] | None, list[Region]]:
        """What few ops have: successors, the order of uses, and regions."""
        successors = None
        if mask & _SUCCESSORS:
            successors = tuple([self._varint() for _ in range(self._count("successors"))])
            if any(number >= len(blocks) for number in successors):
                self._fail(f"blocks {successors} of {len(blocks)}")
        if mask & _USE_ORDERS and self._version >= s.USE_ORDERS:
            self._use_orders(results)
        regions: list[Region] = []
        if mask & _REGIONS:
            count, isolated = self._flagged()
            self._check_count(count, "regions")
            regions = self._regions(count, isolated, scope, kind.cls)
        return successors, regions


def _is_identity(operands: list[Any], types: list[Type]) -> bool:
    """Whether a cast changes nothing: between VHLO's types and those they stand for, which are one here."""
    return [value.type for value in operands] == types


def _has_body(cls: type[Op], regions: list[Region]) -> bool:
    """Whether the regions are what an op with names for its parts has."""
    return len(regions) == 1 and (cls is not Module or len(regions[0].blocks) == 1)
