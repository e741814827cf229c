"""Rules of elementwise ops. Source: Shardy's documentation, "Propagation"."""

from __future__ import annotations

from partitioner.rules.core import REPLICATE, Rule, RuleBuilder, rule, shape_of
from spmd.dialects import OPS
from spmd.dialects.core import Trait, has_trait
from spmd.ir import Op
from spmd.types import TensorType

#: Elementwise by its region, hence without the trait.
_MAP = "stablehlo.map"
#: Uses only its operand's shape.
CONSTANT_LIKE = "chlo.constant_like"


def named(dialect: str, trait: Trait) -> list[str]:
    """Return the ops of `dialect` declared with `trait`."""
    return [name for name, declared in OPS.items() if declared.dialect == dialect and trait in declared.traits]


def pointwise(op: Op) -> Rule:
    """Return a rule with one factor per dimension, of all operands and results that are not scalars."""
    return replicated_inside(op, 0)


def replicated_inside(op: Op, inner: int) -> Rule:
    """Return the pointwise rule with the last `inner` dimensions replicated for computation."""
    builder = RuleBuilder(op)
    shape = shape_of(op.results[0].type)
    for dimension, size in enumerate(shape):
        builder.everywhere(dimension, size, local=REPLICATE if dimension >= len(shape) - inner else None)
    return builder.build()


#: Ops for which Shardy has no rule.
_OURS = frozenset((_MAP, "stablehlo.uniform_dequantize", "stablehlo.uniform_quantize"))

rule(*(set(named("stablehlo", Trait.ELEMENTWISE)) - _OURS))(pointwise)
rule(*_OURS, published=False)(pointwise)


@rule("stablehlo.bitcast_convert")
def bitcast_convert(op: Op) -> Rule:
    """Return a rule that replicates the minor dimension that only one side has."""
    builder = RuleBuilder(op)
    inner, outer = builder.operand_shapes[0], builder.result_shapes[0]
    for dimension, size in enumerate(inner if len(inner) < len(outer) else outer):
        builder.factor([dimension], [dimension], size)
    if len(inner) < len(outer):
        builder.factor([None], [len(inner)], outer[-1], REPLICATE)
    elif len(inner) > len(outer):
        builder.factor([len(outer)], [None], inner[-1], REPLICATE)
    return builder.build()


def is_elementwise(op: Op) -> bool:
    """Return whether `op` is elementwise on tensors of one shape."""
    acts = has_trait(op, Trait.ELEMENTWISE) or has_trait(op, Trait.BROADCASTING) or op.name in (_MAP, CONSTANT_LIKE)
    return acts and _one_shape(op)


def _one_shape(op: Op) -> bool:
    shapes = {type.shape for type in (*op.operand_types, *op.result_types) if isinstance(type, TensorType)}
    return len(shapes - {()}) <= 1
