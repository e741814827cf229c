"""Rules of collectives, which stand in manual computations: what the free axes may do there."""

from __future__ import annotations

from partitioner.rules.core import REPLICATE, Rule, RuleBuilder, rule
from spmd.ir import Op


@rule(
    "stablehlo.all_reduce",
    "stablehlo.collective_broadcast",
    "stablehlo.collective_permute",
    "stablehlo.collective_reduce",
    "stablehlo.cross-replica-sum",
)
def same_shape(op: Op) -> Rule:
    """Every operand and its result, dimension by dimension."""
    return RuleBuilder(op).one_by_one().build()


@rule("stablehlo.all_gather", "stablehlo.all_to_all", "stablehlo.reduce_scatter")
def resized(op: Op) -> Rule:
    """Dimensions that the collective changes stay whole."""
    builder = RuleBuilder(op)
    changed = {
        op[name]
        for name in ("all_gather_dim", "split_dimension", "concat_dimension", "scatter_dimension")
        if op.definition is not None and name in op.definition.attribute_table
    }
    for index, shape in enumerate(builder.operand_shapes):
        for dimension, size in enumerate(shape):
            places = [None] * index + [dimension]
            if dimension in changed:
                builder.factor(places, [], size, REPLICATE)
                builder.factor([], places, builder.result_shapes[index][dimension], REPLICATE)
            else:
                builder.factor(places, places, size)
    return builder.build()
