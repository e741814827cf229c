"""Ops as plain data: a program's identity in cache keys, and a form that can be stored and rebuilt.

Values, types and attributes are held in tables and referred to by number. An op has no source position of its own but
the number of the op of its program at that position: programs that differ only in positions are equal, and each
rebuilt op gets the positions of the program at hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from spmd.analysis.constants import CONSTANT, constant_array
from spmd.dialects.core import OPS
from spmd.ir import NO_ATTRIBUTES, AttributeValue, Block, Op, Region, Value, captured_values, new_op
from spmd.ir.attributes import DenseAttr, is_splat
from spmd.support.arrays import Array
from spmd.types import TensorType, Type

#: The number for a position at which the program has no op.
NOWHERE = -1


#: A block: the numbers of its arguments, and its ops.
PortableBlock = tuple[tuple[int, ...], tuple["PortableOp", ...]]

#: An op: its name; operands, results, attributes and discardable attributes by number; the blocks of each region; and
#: the number of the op at its position. Tuples, because there are as many as a program has ops.
PortableOp = tuple[str, tuple[int, ...], tuple[int, ...], int, int, tuple[tuple[PortableBlock, ...], ...], int]


@dataclass(frozen=True)
class PortableArray:
    """The elements of a constant; for a splat one element, of shape []."""

    type: TensorType
    elements: Array

    @staticmethod
    def of(type: TensorType, array: Array) -> PortableArray:
        return PortableArray(type, array[(0,) * array.ndim] if array.size and is_splat(array) else array)

    def attribute(self) -> DenseAttr:
        """Return the elements as a constant's attribute."""
        return DenseAttr(np.broadcast_to(self.elements, self.type.static_shape), self.type)


@dataclass
class PortableTables:
    """What ops refer to by number: types, attributes, the type of each value, the elements of constants."""

    types: list[Type] = field(default_factory=list)
    attributes: list[Mapping[str, AttributeValue]] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    constants: dict[int, PortableArray] = field(default_factory=dict)


class OpNumbers:
    """The ops of a program by number, and their numbers by source position."""

    def __init__(self, program: Op) -> None:
        self.ops = list(program.walk())
        self._numbers: dict[object, int] = {}
        for number, op in enumerate(self.ops):
            self._numbers.setdefault((op.place, op.debug_location), number)
        self._by_offset: dict[tuple[int, int], int] | None = None

    def number(self, op: Op) -> int:
        """Return the number of the program's op at the position of `op`, from which a pass has made `op`."""
        known = self._numbers.get((op.place, op.debug_location))
        if known is not None:
            return known
        if self._by_offset is None:
            self._by_offset = {}
            for number, each in enumerate(self.ops):
                self._by_offset.setdefault((id(each.location.source), each.location.offset), number)
        return self._by_offset.get((id(op.location.source), op.location.offset), NOWHERE)


class Packer:
    """Converts ops to portable ones. `places` gives their positions; without it, all are NOWHERE."""

    def __init__(self, places: OpNumbers | None = None) -> None:
        self.tables = PortableTables()
        #: Whether every packed op has a position in the program.
        self.is_placed = True
        self._places = places
        self._types: dict[Type, int] = {}
        self._attributes: dict[int, int] = {}
        self._values: dict[Value, int] = {}

    def value(self, value: Value) -> int:
        """Return the number of `value`, assigned on first use."""
        number = self._values.get(value)
        if number is None:
            number = self._values[value] = len(self._values)
            type = self._types.setdefault(value.type, len(self._types))
            if type == len(self.tables.types):
                self.tables.types.append(value.type)
            self.tables.values.append(type)
        return number

    def values(self, values: Iterable[Value]) -> tuple[int, ...]:
        """Return the numbers of `values`."""
        return tuple([self.value(value) for value in values])

    def reader(self, op: Op) -> PortableOp:
        """Pack `op` by itself, with the elements of the constants that it reads."""
        for value in (*op.operands, *captured_values(op)):
            self.constant(value)
        return self.op(op)

    def constant(self, value: Value) -> None:
        """Record the elements of `value` if it is a constant."""
        array = constant_array(value.defining_op)
        if array is not None:
            self.tables.constants[self.value(value)] = PortableArray.of(value.tensor, array)

    def mark(self, op: Op) -> PortableOp:
        """Pack the name and position of `op` alone."""
        nothing = self._mapping(NO_ATTRIBUTES)
        return op.name, (), (), nothing, nothing, (), self._place(op)

    def op(self, op: Op) -> PortableOp:
        """Pack `op` with its regions."""
        place = self._place(op)
        regions = tuple([tuple([self._block(block) for block in region.blocks]) for region in op.regions])
        operands, results = self.values(op.operands), self.values(op.results)
        attributes, discardable = self._mapping(op.attributes), self._mapping(op.discardable)
        return op.name, operands, results, attributes, discardable, regions, place

    def _place(self, op: Op) -> int:
        if self._places is None:
            return NOWHERE
        number = self._places.number(op)
        self.is_placed = self.is_placed and number != NOWHERE
        return number

    def _block(self, block: Block) -> PortableBlock:
        return self.values(block.arguments), tuple([self.op(op) for op in block.ops])

    def _mapping(self, mapping: Mapping[str, AttributeValue]) -> int:
        """Return the number of a mapping; equal ops share mappings, which are immutable."""
        number = self._attributes.get(id(mapping))
        if number is None:
            number = self._attributes[id(mapping)] = len(self._attributes)
            self.tables.attributes.append({name: _packed(value) for name, value in mapping.items()})
        return number


class Unpacker:
    """Rebuilds ops from portable ones, at the positions of the ops of `places`."""

    def __init__(self, tables: PortableTables, places: Sequence[Op]) -> None:
        self._tables = tables
        self._places = places
        self._values: dict[int, Value] = {}
        self._mappings: dict[int, Mapping[str, AttributeValue]] = {}

    def value(self, number: int) -> Value:
        """Return the value of this number: a constant, a result of an unpacked op, or a value without an owner."""
        value = self._values.get(number)
        if value is None:
            type = self._type(number)
            constant = self._tables.constants.get(number)
            if constant is None:
                value = Value(type)
            else:
                attributes = {"value": constant.attribute()}
                value = new_op(CONSTANT, (), (type,), attributes, definition=OPS[CONSTANT]).result
            self._values[number] = value
        return value

    def values(self, numbers: Iterable[int]) -> list[Value]:
        """Return the values of these numbers."""
        return [self.value(number) for number in numbers]

    def op(self, portable: PortableOp) -> Op:
        """Rebuild the op and bind its results to their numbers."""
        name, operands, results, attributes, discardable, regions, place = portable
        there = self._places[place]
        op = new_op(
            name,
            self.values(operands),
            [self._type(number) for number in results],
            self._mapping(attributes),
            [Region([self._block(block) for block in blocks]) for blocks in regions],
            definition=OPS.get(name),
            discardable=self._mapping(discardable),
            debug_location=there.debug_location,
        )
        op.stand_at(there)
        for number, result in zip(results, op.results, strict=True):
            self._values[number] = result
        return op

    def _block(self, portable: PortableBlock) -> Block:
        arguments, ops = portable
        block = Block([self._type(number) for number in arguments])
        self._values.update(zip(arguments, block.arguments, strict=True))
        block.ops = [self.op(op) for op in ops]
        return block

    def _type(self, value: int) -> Type:
        return self._tables.types[self._tables.values[value]]

    def _mapping(self, number: int) -> Mapping[str, AttributeValue]:
        known = self._mappings.get(number)
        if known is None:
            packed = self._tables.attributes[number]
            known = {
                name: value.attribute() if isinstance(value, PortableArray) else value for name, value in packed.items()
            }
            self._mappings[number] = known
        return known


def _packed(value: object) -> object:
    return PortableArray.of(value.type, value.array) if isinstance(value, DenseAttr) else value
