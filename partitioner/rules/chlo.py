"""Rules of CHLO ops: elementwise ones, and top_k. Source: CHLO's dialect documentation."""

from __future__ import annotations

from partitioner.rules.core import Rule, replicated_rule, rule, shape_of
from partitioner.rules.custom_call import top_k
from partitioner.rules.elementwise import CONSTANT_LIKE, named, pointwise
from spmd.dialects.core import Trait
from spmd.ir import Op


@rule(*named("chlo", Trait.ELEMENTWISE), *named("chlo", Trait.BROADCASTING), CONSTANT_LIKE, published=False)
def broadcasting(op: Op) -> Rule:
    """Return a pointwise rule if all shapes are equal, else a replicated one."""
    shapes = {shape for value in (*op.operands, *op.results) if (shape := shape_of(value.type)) != ()}
    return pointwise(op) if len(shapes) <= 1 else replicated_rule(op)


rule("chlo.top_k", published=False)(top_k)
