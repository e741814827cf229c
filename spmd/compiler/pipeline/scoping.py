"""Visibility of values at their uses.

A definition dominates its uses: it is earlier in the same block or an enclosing one; in regions of several blocks any
block may define it. Isolated ops see nothing from outside. Source: MLIR's language reference, "Value Scoping";
StableHLO specification, "Functions".
"""

from __future__ import annotations

from collections.abc import Iterator

from spmd.dialects.core import Trait, has_trait
from spmd.ir import Block, Op, Region, Value


def uses_out_of_scope(op: Op) -> Iterator[tuple[Op, Value]]:
    """Yield each op inside `op` that uses a value out of scope, and that value."""
    return _inside(op, set())


def _inside(op: Op, visible: set[Value]) -> Iterator[tuple[Op, Value]]:
    isolated = has_trait(op, Trait.ISOLATED)
    for region in op.regions:
        yield from _region(region, set() if isolated else visible)


def _region(region: Region, visible: set[Value]) -> Iterator[tuple[Op, Value]]:
    defined: list[Value] = []
    if len(region.blocks) > 1:
        for block in region.blocks:
            defined += (*block.arguments, *(result for op in block.ops for result in op.results))
    visible.update(defined)
    for block in region.blocks:
        yield from _block(block, visible)
    visible.difference_update(defined)


def _block(block: Block, visible: set[Value]) -> Iterator[tuple[Op, Value]]:
    defined = list(block.arguments)
    visible.update(defined)
    for op in block.ops:
        for operand in op.operands:
            if operand not in visible:
                yield op, operand
        if op.regions:
            yield from _inside(op, visible)
        visible.update(op.results)
        defined += op.results
    visible.difference_update(defined)
