"""Expansion of short sorts by counting: an element's rank is the number of elements that precede it.

The work is quadratic in the row length but fully vectorized: up to a few hundred elements it beats comparison sorts.
The order is that of the NumPy back end: by the comparator's keys, stable.
"""

from __future__ import annotations

from math import prod

from spmd.analysis.comparators import LEAST, SortKey, sort_keys
from spmd.compiler.schedule.fusibility import is_plain
from spmd.compiler.transforms.rewrite import rewrite
from spmd.dialects.make import make_op, make_reducer
from spmd.dialects.op_builder import OpBuilder
from spmd.dialects.structs import ScatterDimensionNumbersAttr
from spmd.ir import Block, Op, Region, Value
from spmd.types import I1, I32, ElementType, TensorType

SORT = "stablehlo.sort"
#: Longest row that is sorted by counting.
_MOST = 256


def expand_sorts(block: Block) -> None:
    """Rewrite short sorts in `block` and its regions; in place."""
    rewrite(block, (SORT,), lambda block: _rule)


def _rule(op: Op, builder: OpBuilder) -> list[Value] | None:
    keys = _keys(op)
    if keys is None:
        return None
    shape, axis = op.operands[0].tensor.static_shape, op["dimension"] % op.operands[0].tensor.rank
    rows = (prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))
    operands = [builder.reshape(operand, rows) for operand in op.operands]
    ranks = _ranks(builder, operands, keys)
    sorted_rows = [_scattered(builder, operand, ranks) for operand in operands]
    return [builder.reshape(value, shape) for value in sorted_rows]


def _keys(op: Op) -> tuple[SortKey, ...] | None:
    """Return the sort keys of `op`, which must be operands; None if it is kept."""
    if not all(is_plain(operand.type) and operand.tensor.rank for operand in op.operands):
        return None
    shape = op.operands[0].tensor.static_shape
    length = shape[op["dimension"]]
    # Longer unstable sorts need not order ties as a stable sort does.
    as_it_stands = op["is_stable"] or len(op.operands) == 1 or length < LEAST
    if not 2 <= length <= _MOST or not all(shape) or not as_it_stands:
        return None
    keys = sort_keys(op.regions[0])
    if keys is None or not all(key.operand is not None and _is_ordered(op.operands[key.operand]) for key in keys):
        return None
    return keys


def _is_ordered(value: Value) -> bool:
    element = value.tensor.element_type
    if not isinstance(element, ElementType) or element.is_complex:
        return False
    return not element.is_float or element.bits >= 16


def _ranks(builder: OpBuilder, operands: list[Value], keys: tuple[SortKey, ...]) -> Value:
    """Return the rank of each element of rows (outer, n, inner) along dimension 1, as i32."""
    outer, length, inner = operands[0].tensor.static_shape
    pairs = (outer, length, length, inner)
    first, second = builder.iota(pairs, 1), builder.iota(pairs, 2)
    # From the last key to the first: smaller, or equal and ordered by the later keys.
    precedes = builder.compare(first, second, "LT")
    for key in reversed(keys):
        assert key.operand is not None
        values = _canonical(builder, operands[key.operand], key)
        type = values.tensor.with_shape(pairs)
        sides = [
            builder.one("broadcast_in_dim", [values], type, broadcast_dimensions=(0, dimension, 3))
            for dimension in (1, 2)
        ]
        smaller = _compared(builder, sides, "GT" if key.descending else "LT")
        equal = builder.binary("and", _compared(builder, sides, "EQ"), precedes)
        precedes = builder.binary("or", smaller, equal)
    counted = builder.convert(precedes, TensorType(pairs, I32))
    scalar = TensorType((), I32)
    return builder.op(
        "stablehlo.reduce",
        [counted, builder.splat(0, scalar)],
        [TensorType((outer, length, inner), I32)],
        {"dimensions": (1,)},
        [make_reducer("stablehlo.add", scalar, location=builder.location)],
    ).results[0]


def _compared(builder: OpBuilder, sides: list[Value], direction: str) -> Value:
    """Return the comparison of two values, in IEEE 754's total order for floats."""
    element = sides[0].tensor.element_type
    order = {"compare_type": "TOTALORDER"} if isinstance(element, ElementType) and element.is_float else {}
    type = TensorType(sides[0].tensor.shape, I1)
    return builder.one("compare", sides, type, comparison_direction=direction, **order)


def _canonical(builder: OpBuilder, values: Value, key: SortKey) -> Value:
    """Return the key's values, with zeros and NaNs canonicalized unless the key distinguishes them."""
    element = values.tensor.element_type
    if not isinstance(element, ElementType) or not element.is_float or (key.total_order and not key.canonical):
        return values
    zero, nan = builder.splat(0, values.tensor), builder.splat(float("nan"), values.tensor)
    unsigned = builder.select(builder.compare(values, zero, "EQ"), zero, values)
    return builder.select(builder.compare(unsigned, unsigned, "NE"), nan, unsigned)


def _scattered(builder: OpBuilder, operand: Value, ranks: Value) -> Value:
    """Return the elements of `operand` scattered to their ranks."""
    scalar = operand.tensor.with_shape(())
    block = Block([scalar, scalar])
    block.ops.append(make_op("stablehlo.return", block.arguments[1:], location=builder.location))
    return builder.op(
        "stablehlo.scatter",
        [builder.broadcast(builder.splat(0, scalar), operand.tensor.static_shape), ranks, operand],
        [operand.tensor],
        {
            "scatter_dimension_numbers": ScatterDimensionNumbersAttr((), (1,), (0, 2), (0, 2), (1,), 3),
            "unique_indices": True,
        },
        [Region([block])],
    ).results[0]
