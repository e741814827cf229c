"""Rules of control flow, whose data-flow edges are built with the propagation graph."""

from __future__ import annotations

from partitioner.rules.core import Rule, RuleBuilder, rule
from spmd.ir import Op


@rule("stablehlo.optimization_barrier", published=False)
def optimization_barrier(op: Op) -> Rule:
    """Return a rule in which each value has factors of its own."""
    builder = RuleBuilder(op)
    for index, shape in enumerate(builder.operand_shapes):
        for dimension, size in enumerate(shape):
            places = [None] * index + [dimension]
            builder.factor(places, places, size)
    return builder.build()
