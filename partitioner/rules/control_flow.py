"""Rules of control flow and of ops that hand values on. While, case and if are data-flow edges: see propagation.py."""

from __future__ import annotations

from partitioner.rules.core import Rule, RuleBuilder, register, rule
from partitioner.rules.elementwise import pointwise
from spmd.ir import Op


@rule("stablehlo.optimization_barrier")
def optimization_barrier(op: Op) -> Rule:
    """Every value on its own."""
    return RuleBuilder(op).one_by_one().build()


for _target in ("annotate_device_placement", "LayoutConstraint", "MoveToDevice", "MoveToHost", "mhlo.erf"):
    register(_target)(pointwise)


@register("mhlo.topk")
def topk_call(op: Op) -> Rule:
    from partitioner.rules.chlo import top_k

    return top_k(op)
