"""Copies of blocks and ops, and the outer values that they use."""

from __future__ import annotations

from spmd.ir.op import Op
from spmd.ir.values import Block, NumberedValue, Region, Value


def copy_arguments(block: Block, values: dict[Value, Value]) -> Block:
    """An empty block with copies of the arguments of `block`, which are added to `values`."""
    copy = Block(argument.type for argument in block.arguments)
    for old, new in zip(block.arguments, copy.arguments, strict=True):
        new.name_hint = old.name_hint
        if isinstance(old, NumberedValue) and isinstance(new, NumberedValue):
            new.locate_like(old)
        values[old] = new
    return copy


def copy_block(block: Block, values: dict[Value, Value]) -> Block:
    """A deep copy of `block`; `values` maps outer values to their replacements, and the copies are added to it."""
    copy = copy_arguments(block, values)
    copy.ops = [copy_op(op, values) for op in block.ops]
    return copy


def copy_op(op: Op, values: dict[Value, Value]) -> Op:
    """A deep copy of `op`, its operands mapped by `values` (an unmapped operand stays)."""
    operands = [values.get(operand, operand) for operand in op.operands]
    regions = [Region(copy_block(block, values) for block in region.blocks) for region in op.regions]
    clone = op.clone(operands, regions=regions)
    if op.is_value:
        values[op] = clone
    else:
        values.update(zip(op.results, clone.results, strict=True))
    return clone


def captured_values(op: Op) -> list[Value]:
    """Values that the regions of `op` use and that are defined outside of `op`, each once, in order of first use."""
    defined: set[Value] = set()
    used: dict[Value, None] = {}
    for region in op.regions:
        for block in region.blocks:
            defined.update(block.arguments)
            for inner in block.ops:
                for nested in inner.walk():
                    used.update(dict.fromkeys(nested.operands))
                    defined.update(nested.results)
                    for inner_region in nested.regions:
                        for inner_block in inner_region.blocks:
                            defined.update(inner_block.arguments)
    return [value for value in used if value not in defined]
