"""Whether two programs are the same: ops, attributes, types and the way values flow, whatever the values' names."""

from __future__ import annotations

import numpy as np

from spmd.ir import AttributeValue, Block, Op, Region, Value
from spmd.ir.attributes import DictAttr, same_bits
from spmd.syntax.directives import SEGMENTS


def difference(left: Op, right: Op) -> str | None:
    """Return None if the programs are the same, else the first difference, with its location in `left`."""
    return _Comparison().ops(left, right)


def same_program(left: Op, right: Op) -> bool:
    """Return whether the programs are the same apart from value names and source locations."""
    return difference(left, right) is None


#: Attributes with a dictionary for each argument or result, which may also be left out when all are empty.
_DICTIONARIES = ("arg_attrs", "res_attrs")


class _Comparison:
    def __init__(self) -> None:
        self.values: dict[Value, Value] = {}

    def ops(self, left: Op, right: Op) -> str | None:
        text = self._facts(left, right) or _attributes(left, right) or self._regions(left, right)
        self.values.update(zip(left.results, right.results, strict=False))
        return text

    def _facts(self, left: Op, right: Op) -> str | None:
        if left.name != right.name:
            return f"{left.location}: {left.name} against {right.name}"
        if left.result_types != right.result_types or left.operand_types != right.operand_types:
            return f"{left.location}: {left.name}: types differ"
        if any(self.values.get(a, a) is not b for a, b in zip(left.operands, right.operands, strict=True)):
            return f"{left.location}: {left.name}: operands differ"
        return None

    def _regions(self, left: Op, right: Op) -> str | None:
        if len(left.regions) != len(right.regions):
            return f"{left.location}: {left.name}: {len(left.regions)} regions against {len(right.regions)}"
        pairs = zip(left.regions, right.regions, strict=True)
        return next(filter(None, (self._region(left, a, b) for a, b in pairs)), None)

    def _region(self, op: Op, left: Region, right: Region) -> str | None:
        if len(left.blocks) != len(right.blocks):
            return f"{op.location}: {op.name}: {len(left.blocks)} blocks against {len(right.blocks)}"
        pairs = zip(left.blocks, right.blocks, strict=True)
        return next(filter(None, (self._block(op, a, b) for a, b in pairs)), None)

    def _block(self, op: Op, left: Block, right: Block) -> str | None:
        if [a.type for a in left.arguments] != [b.type for b in right.arguments]:
            return f"{op.location}: {op.name}: the types of block arguments differ"
        if len(left.ops) != len(right.ops):
            return f"{op.location}: {op.name}: {len(left.ops)} ops in a block against {len(right.ops)}"
        self.values.update(zip(left.arguments, right.arguments, strict=True))
        for a, b in zip(left.ops, right.ops, strict=True):
            text = self.ops(a, b)
            if text:
                return text
        return None


def _attributes(left: Op, right: Op) -> str | None:
    for name in sorted({*left.attributes, *right.attributes} - set(SEGMENTS)):
        if not same_value(_value(left, name), _value(right, name)):
            return f"{left.location}: {left.name}: attribute {name} differs"
    for name in SEGMENTS:
        if tuple(left.attributes.get(name, ())) != tuple(right.attributes.get(name, ())):
            return f"{left.location}: {left.name}: attribute {name} differs"
    for name in sorted({*left.discardable, *right.discardable}):
        if not same_value(left.discardable.get(name), right.discardable.get(name)):
            return f"{left.location}: {left.name}: attribute {name} differs"
    return None


def _value(op: Op, name: str) -> AttributeValue:
    """Return the value or default of the op's attribute `name`; None for a list of empty dictionaries."""
    if name in op.attributes:
        value = op.attributes[name]
        if name in _DICTIONARIES and all(isinstance(entry, DictAttr) and not entry.entries for entry in value or ()):
            return None
        return value
    declared = op.definition.attribute_table.get(name) if op.definition is not None else None
    return None if declared is None or declared.required else op[name]


def same_value(left: object, right: object) -> bool:
    """Return whether decoded attributes are equal, down to the bits of floats."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return same_bits(left, right)
    if isinstance(left, float) and isinstance(right, float):
        return np.float64(left).tobytes() == np.float64(right).tobytes()
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(same_value, left, right))
    return type(left) is type(right) and bool(left == right)
