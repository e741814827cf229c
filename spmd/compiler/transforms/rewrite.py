"""Blocks rewritten op by op, with those of the regions inside them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from spmd.dialects.op_builder import OpBuilder
from spmd.ir import Block, Op, Value

#: Writes what takes an op's place with a builder that stands there, and gives a value for each of the op's results;
#: None where it stays.
Rule = Callable[[Op, OpBuilder], Sequence[Value] | None]


def rewrite(block: Block, names: Collection[str], rule_of: Callable[[Block], Rule]) -> None:
    """Puts what a rule writes in the place of ops called `names`, in `block` and the regions inside it; in place.

    `rule_of` makes the rule of one block, which is asked for its ops in order: each reads by then what the ops before
    it were replaced by, and so do its regions, which are rewritten first.
    """
    _rewrite(block, names, rule_of, {})


def _rewrite(
    block: Block, names: Collection[str], rule_of: Callable[[Block], Rule], replaced: dict[Value, Value]
) -> None:
    rule = rule_of(block)
    kept: list[Op] = []
    for op in block.ops:
        op.replace_operands(replaced)
        for region in op.regions:
            for nested in region.blocks:
                _rewrite(nested, names, rule_of, replaced)
        results = None
        if op.name in names:
            builder = OpBuilder()
            builder.location = op.location
            results = rule(op, builder)
        if results is None:
            kept.append(op)
            continue
        kept += builder.ops
        if op.discardable:
            _carry(op, builder.ops, results)
        replaced.update(zip(op.results, results, strict=True))
    block.ops = kept


def _carry(op: Op, written: Collection[Op], results: Sequence[Value]) -> None:
    """What is said of `op` is said of the ops that give its results from now on."""
    for value in results:
        maker = value.defining_op
        if maker is not None and maker in written:
            maker.discardable = {**op.discardable, **maker.discardable}
