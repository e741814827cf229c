"""Rules of collectives in manual computations, for the free axes.

All operands share one set of factors.
"""

from __future__ import annotations

from partitioner.rules.core import REPLICATE, Rule, RuleBuilder, rule
from partitioner.rules.elementwise import pointwise
from spmd.ir import Op

rule(
    "stablehlo.all_reduce",
    "stablehlo.collective_broadcast",
    "stablehlo.collective_permute",
    "stablehlo.cross-replica-sum",
)(pointwise)
rule("stablehlo.collective_reduce", published=False)(pointwise)


@rule("stablehlo.all_gather", "stablehlo.all_to_all", "stablehlo.reduce_scatter")
def resized(op: Op) -> Rule:
    """Return a rule that replicates the dimensions that the collective changes, each of which is two factors."""
    builder = RuleBuilder(op)
    names = ("all_gather_dim", "scatter_dimension", "split_dimension", "concat_dimension")
    changed = list(dict.fromkeys(op[name] for name in names if op.has(name)))
    operand, result = builder.operand_shapes[0], builder.result_shapes[0]
    for dimension, size in enumerate(operand):
        if dimension not in changed:
            builder.everywhere(dimension, size)
    for dimension in changed:
        builder.of_all_operands(dimension, operand[dimension], REPLICATE)
        builder.of_all_results(dimension, result[dimension], REPLICATE)
    return builder.build()
