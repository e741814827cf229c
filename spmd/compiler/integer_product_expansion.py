"""Products of narrow integers as sums of what is multiplied element by element, which loop nests take in.

BLAS has none of them. Those of 32 and 64 bits, and of 8-bit operands with sums of 32 bits, have native forms of their
own and stay. StableHLO specification, "dot_general".
"""

from __future__ import annotations

from spmd.compiler.rewrite import rewrite
from spmd.compiler.schedule.forms import is_plain
from spmd.dialects.op_builder import OpBuilder
from spmd.dialects.structs import DotDimensionNumbersAttr
from spmd.ir import Block, Op, Value
from spmd.types import ElementType

DOT_GENERAL = "stablehlo.dot_general"


def expand_integer_products(block: Block) -> None:
    """Rewrites the products of narrow integers of `block` and of the regions inside it; in place."""
    rewrite(block, (DOT_GENERAL,), lambda block: _rule)


def _rule(op: Op, builder: OpBuilder) -> list[Value] | None:
    values = (*op.operands, op.result)
    if op["algorithm"] is not None or not all(
        is_plain(value.type) and all(value.tensor.static_shape) for value in values
    ):
        return None
    element = op.result.tensor.element_type
    if not isinstance(element, ElementType) or not element.is_integer or element.is_boolean or element.bits >= 32:
        return None
    if any(value.tensor.element_type is not element for value in op.operands):
        return None
    return [_summed(op, builder)]


def _summed(op: Op, builder: OpBuilder) -> Value:
    """The sum over the contracted dimensions of the products of both operands, spread over each other's dimensions.

    Dimensions are those of the result with the contracted ones last, or, where the right operand does not end with
    them, before its own: what lies side by side there stays so.
    """
    numbers: DotDimensionNumbersAttr = op["dot_dimension_numbers"]
    batching = (numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions)
    contracting = (numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions)
    free = [
        [d for d in range(value.tensor.rank) if d not in batching[n] and d not in contracting[n]]
        for n, value in enumerate(op.operands)
    ]
    batch, summed = len(batching[0]), len(contracting[0])
    left, right = len(free[0]), len(free[1])
    ends_with_sums = op.operands[1].tensor.rank - 1 in contracting[1]
    first = batch + left + (right if ends_with_sums else 0)
    folded = range(first, first + summed)
    kept = [place for place in range(batch + left + right + summed) if place not in folded]
    places = (kept[batch : batch + left], kept[batch + left :])
    shape = [0] * (len(kept) + summed)
    spread = []
    for number, value in enumerate(op.operands):
        place_of = dict(zip(batching[number], kept, strict=False))
        place_of |= dict(zip(contracting[number], folded, strict=True))
        place_of |= dict(zip(free[number], places[number], strict=True))
        for dimension, place in place_of.items():
            shape[place] = value.tensor.static_shape[dimension]
        spread.append(tuple(place_of[dimension] for dimension in range(value.tensor.rank)))
    type = op.result.tensor.with_shape(tuple(shape))
    factors = [
        _spread(builder, value, dimensions, tuple(shape)) for value, dimensions in zip(op.operands, spread, strict=True)
    ]
    product = builder.one("multiply", factors, type)
    return builder.reduce("stablehlo.add", product, builder.splat(0, type.with_shape(())), tuple(folded))


def _spread(builder: OpBuilder, value: Value, dimensions: tuple[int, ...], shape: tuple[int, ...]) -> Value:
    return builder.one("broadcast_in_dim", [value], value.tensor.with_shape(shape), broadcast_dimensions=dimensions)
