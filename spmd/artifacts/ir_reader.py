"""The ops of a bytecode file. Source: MLIR's bytecode format, "IR Section".

Numbers that are read for every op are taken from the bytes in place, one byte each where they are small, which nearly
all are: half of the time of reading a program would go into calls otherwise.
"""

from __future__ import annotations

from typing import Any

from spmd.artifacts import sections as s
from spmd.artifacts.kinds import OpKind, OpKinds
from spmd.artifacts.page import FilePage
from spmd.artifacts.stream import ByteReader
from spmd.artifacts.tables import Tables
from spmd.errors import Diagnostic
from spmd.ir import Block, Function, Op, Region, Value
from spmd.syntax.cursor import DEEPEST
from spmd.types import Type

_ATTRIBUTES, _RESULTS, _OPERANDS, _SUCCESSORS, _REGIONS, _USE_ORDERS, _PROPERTIES = (1 << bit for bit in range(7))
_CAST = "builtin.unrealized_conversion_cast"


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
    """Reads the ops of one file."""

    def __init__(self, tables: Tables, reader: ByteReader) -> None:
        self._tables = tables
        self._version = tables.version
        self._reader = reader
        self._kinds = OpKinds(tables)
        self._page = FilePage(tables, reader)
        self._depth = 0
        self._mixed = any(dialect.name == "vhlo" for dialect in tables.dialects)
        self.diagnostics: list[Diagnostic] = []

    def ops(self) -> list[Op]:
        """The ops at the top."""
        reader = self._reader
        block = Block()
        count, arguments = reader.flagged()
        if arguments:
            reader.fail("the block at the top has no arguments")
        self._ops(reader, block, count, _Scope(), 0, 0, [], None)
        reader.expect_end("the ops")
        return block.ops

    # --- regions and blocks ------------------------------------------------------------------------------------------

    def _regions(self, reader: ByteReader, count: int, isolated: bool, scope: _Scope, op: type[Op]) -> list[Region]:
        self._depth += 1
        if self._depth > DEEPEST:
            reader.fail(f"regions nest more than {DEEPEST} deep")
        inner = scope
        if isolated:
            inner = _Scope()
            if self._version >= s.LAZY_REGIONS:
                position = reader.position
                number, reader = s.read_section(reader)
                if number != s.IR:
                    reader.fail("an isolated region is a section of IR", position)
        made = [self._region(reader, inner, op) for _ in range(count)]
        if isolated:
            self._settle(inner, reader)
            if self._version >= s.LAZY_REGIONS:
                reader.expect_end("the regions")
        self._depth -= 1
        return made

    def _region(self, reader: ByteReader, scope: _Scope, op: type[Op]) -> Region:
        blocks = [Block() for _ in range(reader.count("blocks"))]
        if not blocks:
            return Region()
        start = following = len(scope.values)
        end = start + reader.count("values")
        scope.values += [None] * (end - start)
        for block in blocks:
            count, arguments = reader.flagged()
            if arguments:
                following = self._arguments(reader, block, scope, following, end)
            following = self._ops(reader, block, count, scope, following, end, blocks, op)
        if scope.forward:
            self._settle(scope, reader)
        del scope.values[start:]
        return Region(blocks)

    def _arguments(self, reader: ByteReader, block: Block, scope: _Scope, following: int, end: int) -> int:
        count = reader.count("arguments")
        if following + count > end:
            reader.fail(f"{count} arguments where values up to {end - 1} are told of")
        for at in range(following, following + count):
            if self._version >= s.NO_UNKNOWN_LOCATIONS:
                type, located = reader.flagged()
                if located:
                    reader.varint()
            else:
                type = reader.varint()
                reader.varint()
            scope.values[at] = block.add_argument(self._tables.type(type, reader))
        if self._version >= s.USE_ORDERS and reader.byte():
            self._use_orders(reader, count)
        return following + count

    def _use_orders(self, reader: ByteReader, count: int) -> None:
        """The order in which uses of values are kept: nothing here depends on it."""
        for _ in range(reader.count("orders") if count > 1 else 1):
            if count > 1:
                reader.varint()
            length, _ = reader.flagged()
            for _ in range(min(length, reader.left + 1)):
                reader.varint()

    def _settle(self, scope: _Scope, reader: ByteReader) -> None:
        """Puts values in place of what stood for them, now that they are there."""
        if not scope.forward:
            return
        found: dict[Value, Value] = {}
        for number, stand_in in scope.forward.items():
            value = scope.values[number] if number < len(scope.values) else None
            if value is None:
                reader.fail(f"value {number} is used and never defined")
            found[stand_in] = value
        for op in scope.users:
            op.read_instead(found)
        scope.forward.clear()
        scope.users.clear()

    # --- ops ---------------------------------------------------------------------------------------------------------

    def _ops(
        self, reader: ByteReader, block: Block, count: int, scope: _Scope, following: int, last: int,
        blocks: list[Block], parent: type[Op] | None,
    ) -> int:  # fmt: skip
        """Reads `count` ops into `block`; their results are values from `following` on. Returns the next number."""
        data, end, values = reader.data, reader.end, scope.values
        types, find, page = self._tables.types, self._kinds.find, self._page
        in_function = parent is Function
        append = block.ops.append
        for _ in range(count):
            start = at = reader.position
            if at + 3 > end:
                reader.fail(f"{count} ops are told of, of which {len(block.ops)} are there")
            name = data[at]
            if name & 1:
                name >>= 1
                at += 1
            else:
                name, at = self._long(reader, at)
            mask = data[at]
            at += 1
            location = data[at] if at < end else 0
            if location & 1:
                location >>= 1
                at += 1
            else:
                location, at = self._long(reader, at)
            attributes = properties = -1
            if mask & _ATTRIBUTES:
                attributes, at = self._number(reader, at)
            if mask & _PROPERTIES:
                properties, at = self._number(reader, at)
            result_types: list[Type] = []
            if mask & _RESULTS:
                length, at = self._number(reader, at)
                if length > end - at:
                    reader.fail(f"{length} results are told of where {end - at} bytes are left", at)
                for _ in range(length):
                    number = data[at] if at < end else 0
                    if number & 1:
                        number >>= 1
                        at += 1
                    else:
                        number, at = self._long(reader, at)
                    found = types[number] if number < len(types) else None
                    result_types.append(found if found is not None else self._tables.type(number, reader))
            operands: list[Any] = []
            missing = False
            if mask & _OPERANDS:
                length, at = self._number(reader, at)
                if length > end - at:
                    reader.fail(f"{length} operands are told of where {end - at} bytes are left", at)
                for _ in range(length):
                    number = data[at] if at < end else 0
                    if number & 1:
                        number >>= 1
                        at += 1
                    else:
                        number, at = self._long(reader, at)
                    if number >= len(values):
                        reader.fail(f"value {number} of {len(values)}", at)
                    value = values[number]
                    if value is None:
                        missing = True
                        value = scope.forward.setdefault(number, _Forward(None))  # type: ignore[arg-type]
                    operands.append(value)
            reader.position = at
            kind = find((name, attributes, properties, in_function), reader)
            successors, regions = (
                self._behind(reader, mask, len(result_types), blocks, kind, scope) if mask & _BEHIND else (None, ())
            )
            if self._mixed and kind.name == _CAST and not missing and _is_identity(operands, result_types):
                results: Any = operands
            else:
                op = kind.cls(
                    kind.name, operands, result_types, kind.attributes, regions, kind.definition, kind.discardable
                )
                op.read_at(page, page.add(start, location))
                append(op)
                results = op.results
                if missing:
                    scope.users.append(op)
                if successors is not None:
                    op.attributes = {**op.attributes, "successors": successors}
                if kind.faults:
                    self.diagnostics += kind.diagnostics(page, len(page.offsets) - 1)
            if parent is not None and results:
                if following + len(results) > last:
                    reader.fail(f"more values are defined than the {last} that are told of", start)
                values[following : following + len(results)] = results
                following += len(results)
        return following

    def _behind(
        self, reader: ByteReader, mask: int, results: int, blocks: list[Block], kind: OpKind, scope: _Scope
    ) -> tuple[tuple[int, ...] | None, list[Region]]:
        """What few ops have: successors, the order of uses, and regions."""
        successors = None
        if mask & _SUCCESSORS:
            numbers = [reader.varint() for _ in range(reader.count("successors"))]
            if any(number >= len(blocks) for number in numbers):
                reader.fail(f"blocks {numbers} of {len(blocks)}")
            successors = tuple(numbers)
        if mask & _USE_ORDERS and self._version >= s.USE_ORDERS:
            self._use_orders(reader, results)
        regions: list[Region] = []
        if mask & _REGIONS:
            count, isolated = reader.flagged()
            if count > reader.left:
                reader.fail(f"{count} regions are told of where {reader.left} bytes are left")
            regions = self._regions(reader, count, isolated, scope, kind.cls)
        return successors, regions

    def _number(self, reader: ByteReader, at: int) -> tuple[int, int]:
        if at < reader.end and reader.data[at] & 1:
            return reader.data[at] >> 1, at + 1
        return self._long(reader, at)

    def _long(self, reader: ByteReader, at: int) -> tuple[int, int]:
        """The number of more than one byte that stands at `at`, and where it ends."""
        reader.position = at
        return reader.varint(), reader.position


_BEHIND = _SUCCESSORS | _REGIONS | _USE_ORDERS


def _is_identity(operands: list[Any], types: list[Type]) -> bool:
    """Whether a cast changes nothing: between VHLO's types and those they stand for, which are one here."""
    return [value.type for value in operands] == types
