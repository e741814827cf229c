"""Rules of control flow and of ops that hand values on. While, case and if are data-flow edges: see propagation.py."""

from __future__ import annotations

from partitioner.rules.core import Rule, RuleBuilder, register, rule
from partitioner.rules.elementwise import pointwise
from spmd.ir import Op


@rule("stablehlo.optimization_barrier")
def optimization_barrier(op: Op) -> Rule:
    """Every value on its own."""
    builder = RuleBuilder(op)
    for index, shape in enumerate(builder.operand_shapes):
        for dimension, size in enumerate(shape):
            places = [None] * index + [dimension]
            builder.factor(places, places, size)
    return builder.build()


for _target in ("annotate_device_placement", "LayoutConstraint", "MoveToDevice", "MoveToHost", "mhlo.erf"):
    register(_target)(pointwise)


@register("mhlo.topk")
def topk_call(op: Op) -> Rule:
    from partitioner.rules.chlo import top_k

    return top_k(op)
