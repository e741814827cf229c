"""Rules of ops that act element by element. Source: Shardy's documentation, "Propagation"."""

from __future__ import annotations

from partitioner.rules.core import REPLICATE, Rule, RuleBuilder, rule, shape_of
from spmd.dialects import OPS
from spmd.dialects.core import Trait, has_trait
from spmd.ir import Op
from spmd.types import TensorType

#: Applies a region to elements: no op of its own, so that its declaration has no trait to say so.
_MAP = "stablehlo.map"
#: Has its operand's shape alone.
CONSTANT_LIKE = "chlo.constant_like"


def named(dialect: str, trait: Trait) -> list[str]:
    """Return the ops of `dialect` that are declared with `trait`."""
    return [name for name, declared in OPS.items() if declared.dialect == dialect and trait in declared.traits]


def pointwise(op: Op) -> Rule:
    """Return every dimension is one factor of all operands and results; scalars have none."""
    return whole_inside(op, 0)


def whole_inside(op: Op, inner: int) -> Rule:
    """As `pointwise`, but a process needs the last `inner` dimensions whole."""
    builder = RuleBuilder(op)
    shape = shape_of(op.results[0].type)
    for dimension, size in enumerate(shape):
        builder.everywhere(dimension, size, local=REPLICATE if dimension >= len(shape) - inner else None)
    return builder.build()


#: Those that Shardy has no rule for.
_OURS = frozenset((_MAP, "stablehlo.uniform_dequantize", "stablehlo.uniform_quantize"))

rule(*(set(named("stablehlo", Trait.ELEMENTWISE)) - _OURS))(pointwise)
rule(*_OURS, published=False)(pointwise)


@rule("stablehlo.bitcast_convert")
def bitcast_convert(op: Op) -> Rule:
    """Return the minor dimension that one side has and the other has not stays whole."""
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
    """Return whether `op` acts element by element on tensors of one shape."""
    acts = has_trait(op, Trait.ELEMENTWISE) or has_trait(op, Trait.BROADCASTING) or op.name in (_MAP, CONSTANT_LIKE)
    return acts and _one_shape(op)


def _one_shape(op: Op) -> bool:
    shapes = {type.shape for type in (*op.operand_types, *op.result_types) if isinstance(type, TensorType)}
    return len(shapes - {()}) <= 1
