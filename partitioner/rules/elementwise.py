"""Rules of ops that act element by element. Source: Shardy's documentation, "Propagation"."""

from __future__ import annotations

from partitioner.rules.core import REPLICATE, Rule, RuleBuilder, rule, shape_of
from spmd.ir import Op
from spmd.types import TensorType

#: Ops whose result at an element depends on the operands at that element (scalar operands stand for all elements).
ELEMENTWISE = frozenset(
    "stablehlo." + name
    for name in [
        "abs",
        "add",
        "and",
        "atan2",
        "cbrt",
        "ceil",
        "clamp",
        "compare",
        "complex",
        "convert",
        "cosine",
        "count_leading_zeros",
        "divide",
        "exponential",
        "exponential_minus_one",
        "floor",
        "imag",
        "is_finite",
        "log",
        "log_plus_one",
        "logistic",
        "map",
        "maximum",
        "minimum",
        "multiply",
        "negate",
        "not",
        "or",
        "popcnt",
        "power",
        "real",
        "reduce_precision",
        "remainder",
        "round_nearest_afz",
        "round_nearest_even",
        "rsqrt",
        "select",
        "shift_left",
        "shift_right_arithmetic",
        "shift_right_logical",
        "sign",
        "sine",
        "sqrt",
        "subtract",
        "tan",
        "tanh",
        "xor",
        "uniform_dequantize",
        "uniform_quantize",
    ]
)


#: Of those, the ones that Shardy has no rule for.
_OURS = frozenset("stablehlo." + name for name in ("map", "uniform_dequantize", "uniform_quantize"))


def pointwise(op: Op) -> Rule:
    """Every dimension is one factor of all operands and results; scalars have none."""
    return whole_inside(op, 0)


def whole_inside(op: Op, inner: int) -> Rule:
    """As `pointwise`, but a process needs the last `inner` dimensions whole."""
    builder = RuleBuilder(op)
    shape = shape_of(op.results[0].type)
    for dimension, size in enumerate(shape):
        builder.everywhere(dimension, size, local=REPLICATE if dimension >= len(shape) - inner else None)
    return builder.build()


rule(*(ELEMENTWISE - _OURS))(pointwise)
rule(*_OURS, published=False)(pointwise)


@rule("stablehlo.bitcast_convert")
def bitcast_convert(op: Op) -> Rule:
    """The minor dimension that one side has and the other has not stays whole."""
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
    """Whether `op` acts element by element on tensors of one shape."""
    is_chlo = op.name.startswith("chlo.") and op.name not in (
        "chlo.top_k",
        "chlo.ragged_dot",
        "chlo.scan",
        "chlo.constant",
    )
    return (op.name in ELEMENTWISE or is_chlo) and _one_shape(op)


def _one_shape(op: Op) -> bool:
    shapes = {type.shape for type in (*op.operand_types, *op.result_types) if isinstance(type, TensorType)}
    return len(shapes - {()}) <= 1
