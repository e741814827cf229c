"""Blocks rewritten op by op, with those of the regions inside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spmd.ir import Block, Op, Value


@dataclass(frozen=True)
class Replacement:
    """What stands in the place of an op: `ops` in order, and `results`, a value for each of the op's."""

    ops: Sequence[Op]
    results: Sequence[Value]


#: What takes an op's place; None where it stays.
Rule = Callable[[Op], Replacement | None]


def rewrite(block: Block, rule_of: Callable[[Block], Rule]) -> None:
    """Puts what a rule gives in the place of ops, in `block` and the regions inside it; in place.

    `rule_of` makes the rule of one block, which is asked for its ops in order: each reads by then what the ops before
    it were replaced by, and so do its regions, which are rewritten first.
    """
    _rewrite(block, rule_of, {})


def _rewrite(block: Block, rule_of: Callable[[Block], Rule], replaced: dict[Value, Value]) -> None:
    rule = rule_of(block)
    kept: list[Op] = []
    for op in block.ops:
        op.replace_operands(replaced)
        for region in op.regions:
            for nested in region.blocks:
                _rewrite(nested, rule_of, replaced)
        replacement = rule(op)
        if replacement is None:
            kept.append(op)
        else:
            kept += replacement.ops
            if op.discardable:
                _carry(op, replacement)
            replaced.update(zip(op.results, replacement.results, strict=True))
    block.ops = kept


def _carry(op: Op, replacement: Replacement) -> None:
    """What is said of `op` is said of the ops that give its results from now on."""
    for value in replacement.results:
        maker = value.defining_op
        if maker is not None and maker in replacement.ops:
            maker.discardable = {**op.discardable, **maker.discardable}
