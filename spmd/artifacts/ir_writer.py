"""Writes ops as bytecode. Source: MLIR's bytecode format, "IR Section".

With VHLO, the type of a value has one of two spellings, according to the op that defines it; if an op needs the other
spelling, a cast is inserted, which reading removes again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from spmd.artifacts import sections as s
from spmd.artifacts.encodings.fields import ATTRIBUTE, OPTIONAL_ATTRIBUTE, Version
from spmd.artifacts.numbering import MIXED, PLAIN, PORTABLE, Numbering
from spmd.artifacts.stream import ByteWriter
from spmd.artifacts.vhlo.convert import fault, to_vhlo
from spmd.artifacts.vhlo.ops import base_of
from spmd.dialects.core import OpDef, Trait, has_trait
from spmd.ir import AttributeValue, Block, NumberedValue, Op, Region, Value
from spmd.ir.attributes import Attribute, DenseArrayAttr
from spmd.syntax.directives import SEGMENTS
from spmd.types import I32

_ATTRIBUTES, _RESULTS, _OPERANDS, _SUCCESSORS, _REGIONS, _USE_ORDERS, _PROPERTIES = (1 << bit for bit in range(7))
_CAST = "builtin.unrealized_conversion_cast"


class _Cast(NamedTuple):
    """A value to be cast to the other spelling."""

    value: Value
    spelling: str


@dataclass
class _WrittenScope:
    """The numbers of an isolated region's values by spelling, and their count."""

    numbers: dict[_Cast, int] = field(default_factory=dict)
    count: int = 0


class _Spelled(NamedTuple):
    """An op as written: its name, whether readers know it, its attributes, and the spelling of its values."""

    name: str
    registered: bool
    inherent: Mapping[str, Attribute]
    required: frozenset[str]
    discardable: Mapping[str, Attribute]
    spelling: str


class IrWriter:
    """Writes ops; their references are added to `numbering`."""

    def __init__(self, numbering: Numbering) -> None:
        self._numbering = numbering
        self._version = numbering.version
        self._portable: Version | None = numbering.portable

    def section(self, module: Op) -> bytearray:
        """Return the IR section that contains `module`."""
        writer = ByteWriter()
        writer.flagged(1, False)
        self._op(writer, module, _WrittenScope())
        return writer.data

    # --- regions -----------------------------------------------------------------------------------------------------

    def _regions(self, writer: ByteWriter, op: Op, spelling: str, scope: _WrittenScope) -> None:
        isolated = has_trait(op, Trait.ISOLATED)
        writer.flagged(len(op.regions), isolated)
        inside = ByteWriter() if isolated else writer
        for region in op.regions:
            self._region(inside, region, spelling, _WrittenScope() if isolated else scope)
        if isolated and self._version >= s.LAZY_REGIONS:
            s.write_section(writer, s.IR, inside.data)
        elif isolated:
            writer.bytes(inside.data)

    def _region(self, writer: ByteWriter, region: Region, spelling: str, scope: _WrittenScope) -> None:
        writer.varint(len(region.blocks))
        if not region.blocks:
            return
        before, known = scope.count, len(scope.numbers)
        steps = [self._steps(block, spelling, scope) for block in region.blocks]
        writer.varint(scope.count - before)
        for block, entries in zip(region.blocks, steps, strict=True):
            writer.flagged(len(entries), bool(block.arguments))
            if block.arguments:
                self._arguments(writer, block, spelling)
            for entry in entries:
                if isinstance(entry, _Cast):
                    self._cast(writer, entry, scope)
                else:
                    self._op(writer, entry, scope)
        scope.count = before
        for cast in list(scope.numbers)[known:]:
            del scope.numbers[cast]

    def _steps(self, block: Block, spelling: str, scope: _WrittenScope) -> list[Op | _Cast]:
        """Return the ops of `block` with the casts between them; numbers block arguments and results."""
        for argument in block.arguments:
            self._define(scope, argument, spelling)
        steps: list[Op | _Cast] = []
        for op in block.ops:
            own = self._spelling_of(op)
            for value in op.operands if self._portable is not None else ():
                cast, other = _Cast(value, own), _Cast(value, PLAIN if own else PORTABLE)
                if cast not in scope.numbers and other in scope.numbers:
                    steps.append(cast)
                    self._define(scope, value, own)
            steps.append(op)
            for result in op.results:
                self._define(scope, result, own)
        return steps

    def _define(self, scope: _WrittenScope, value: Value, spelling: str) -> None:
        scope.numbers[_Cast(value, spelling)] = scope.count
        scope.count += 1

    def _spelling_of(self, op: Op) -> str:
        return PORTABLE if self._portable is not None and op.definition is not None and base_of(op.name) else PLAIN

    def _arguments(self, writer: ByteWriter, block: Block, spelling: str) -> None:
        writer.varint(len(block.arguments))
        for argument in block.arguments:
            number = self._numbering.type(argument.type, spelling)
            text = argument.debug_location if isinstance(argument, NumberedValue) else None
            located = text is not None or self._version < s.NO_UNKNOWN_LOCATIONS
            if self._version >= s.NO_UNKNOWN_LOCATIONS:
                writer.flagged(number, located)
            else:
                writer.varint(number)
            if located:
                writer.varint(self._numbering.location(text))
        if self._version >= s.USE_ORDERS:
            writer.byte(0)

    # --- ops ---------------------------------------------------------------------------------------------------------

    def _cast(self, writer: ByteWriter, cast: _Cast, scope: _WrittenScope) -> None:
        other = PLAIN if cast.spelling else PORTABLE
        writer.varint(self._numbering.op_name(_CAST, True))
        writer.byte(_RESULTS | _OPERANDS)
        writer.varint(self._numbering.location(None))
        writer.varint(1)
        writer.varint(self._numbering.type(cast.value.type, cast.spelling))
        writer.varint(1)
        writer.varint(scope.numbers[_Cast(cast.value, other)])

    def _op(self, writer: ByteWriter, op: Op, scope: _WrittenScope) -> None:
        numbering = self._numbering
        outer, numbering.op = numbering.op, op
        spelled = self._spelled(op)
        writer.varint(numbering.op_name(spelled.name, spelled.registered))
        mask_at = len(writer.data)
        writer.byte(0)
        writer.varint(numbering.location(op.debug_location))
        mask = self._attributes(writer, op, spelled)
        if op.results:
            mask |= _RESULTS
            writer.varint(len(op.results))
            for value in op.results:
                writer.varint(numbering.type(value.type, spelled.spelling))
        if op.operands:
            mask |= _OPERANDS
            writer.varint(len(op.operands))
            for value in op.operands:
                writer.varint(scope.numbers[_Cast(value, spelled.spelling)])
        successors = op.attributes.get("successors") if op.definition is None else None
        if successors:
            mask |= _SUCCESSORS
            writer.varint(len(successors))
            for number in successors:
                writer.varint(number)
        if op.regions:
            mask |= _REGIONS
            self._regions(writer, op, spelled.spelling, scope)
        writer.data[mask_at] = mask
        numbering.op = outer

    def _attributes(self, writer: ByteWriter, op: Op, spelled: _Spelled) -> int:
        """Write the references to the op's attributes; return the bits of its mask for them."""
        numbering, mask = self._numbering, 0
        apart = (
            self._version >= s.PROPERTIES_APART and spelled.registered and bool(spelled.required or spelled.inherent)
        )
        entries = spelled.discardable if apart else {**spelled.discardable, **spelled.inherent}
        if not apart:
            entries = {**entries, **_segments(op)}
        if entries:
            mask |= _ATTRIBUTES
            writer.varint(numbering.dictionary(entries, spelled.spelling))
        if apart:
            mask |= _PROPERTIES
            writer.varint(numbering.properties(self._properties(op, spelled)))
        return mask

    def _properties(self, op: Op, spelled: _Spelled) -> bytes:
        entry = self._numbering.entry(spelled.spelling)
        names = sorted(spelled.inherent) if spelled.spelling else _declared_names(op)
        segments = _segments(op)
        for name in names:
            if name in SEGMENTS:
                if self._version < s.SEGMENTS_AS_PROPERTIES:
                    ATTRIBUTE.write(entry, segments[name])
            elif spelled.spelling or name in spelled.required:
                ATTRIBUTE.write(entry, spelled.inherent[name])
            else:
                OPTIONAL_ATTRIBUTE.write(entry, spelled.inherent.get(name))
        if self._version >= s.SEGMENTS_AS_PROPERTIES and not spelled.spelling:
            for name in SEGMENTS:
                if name in names:
                    sizes = segments[name].values
                    entry.flagged(len(sizes), False)
                    for size in sizes:
                        entry.varint(size)
        return bytes(entry.data)

    def _spelled(self, op: Op) -> _Spelled:
        definition = op.definition
        foreign = base_of(op.name) is None and op.name not in ("builtin.module", _CAST)
        if foreign and self._portable is not None:
            if definition is None or definition.dialect == "stablehlo":
                raise fault(op, "no version has this op", self._portable)
            if self._portable < MIXED:
                raise fault(op, "ops of other dialects are supported from version 1.11", self._portable)
        if definition is None:
            return _Spelled(op.name, False, {}, frozenset(), op.discardable, PLAIN)
        if self._portable is not None and base_of(op.name) is not None:
            row, inherent = to_vhlo(op, self._portable)
            extra = _encoded(definition, {name: op.attributes[name] for name in _BESIDE if name in op.attributes})
            return _Spelled(
                f"vhlo.{row.name}", True, inherent, frozenset(inherent), {**extra, **op.discardable}, PORTABLE
            )
        inherent = _encoded(definition, op.attributes)
        required = frozenset(definition.required_attributes) - set(SEGMENTS)
        return _Spelled(op.name, True, inherent, required, op.discardable, PLAIN)


#: Inherent attributes of functions and calls that VHLO lacks, which are written as discardable ones.
_BESIDE = ("no_inline",)


def _encoded(definition: OpDef, attributes: Mapping[str, AttributeValue]) -> dict[str, Attribute]:
    table = definition.attribute_table
    return {
        name: table[name].kind.encode(value)
        for name, value in attributes.items()
        if name in table and name not in SEGMENTS
    }


def _segments(op: Op) -> dict[str, DenseArrayAttr]:
    return {name: DenseArrayAttr(I32, tuple(op.attributes[name])) for name in SEGMENTS if name in op.attributes}


def _declared_names(op: Op) -> list[str]:
    return sorted(op.definition.attribute_table) if op.definition is not None else []
