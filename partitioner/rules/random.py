"""Rules of random number generation."""

from __future__ import annotations

from partitioner.rules.core import REPLICATE, Rule, RuleBuilder, rule
from spmd.ir import Op


@rule("stablehlo.rng_bit_generator")
def rng_bit_generator(op: Op) -> Rule:
    """Return a rule that replicates the state; bits may be sharded, since any device can compute all of them."""
    builder = RuleBuilder(op)
    for dimension, size in enumerate(builder.operand_shapes[0]):
        builder.factor([dimension], [dimension, None], size, REPLICATE, blocked=True)
    for dimension, size in enumerate(builder.result_shapes[1]):
        builder.factor([None], [None, dimension], size)
    return builder.build()
