"""Op-by-op rewriting of blocks and nested regions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from spmd.dialects.op_builder import OpBuilder
from spmd.ir import Block, Op, Value

#: Builds the replacement of an op and returns a value for each of its results; None if the op is kept.
Rule = Callable[[Op, OpBuilder], Sequence[Value] | None]


def rewrite(block: Block, names: Collection[str], rule_of: Callable[[Block], Rule]) -> None:
    """Replace the ops called `names` in `block` and its regions by what a rule builds; in place.

    `rule_of` makes the rule of one block. It is called on ops in order, with operands already replaced and regions
    already rewritten.
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
            _copy_attributes(op, builder.ops, results)
        replaced.update(zip(op.results, results, strict=True))
    block.ops = kept


def _copy_attributes(op: Op, written: Collection[Op], results: Sequence[Value]) -> None:
    """Copy the discardable attributes of `op` to the new producers of its results."""
    for value in results:
        producer = value.defining_op
        if producer is not None and producer in written:
            producer.discardable = {**op.discardable, **producer.discardable}
