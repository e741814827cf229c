"""Rules of ops that move elements. Source: Shardy's documentation, "Propagation" (compound factors)."""

from __future__ import annotations

from math import gcd

from partitioner.rules.core import PASS, PERMUTE, REPLICATE, Rule, RuleBuilder, replicated_rule, rule
from spmd.ir import Op, Value


@rule("stablehlo.constant", "stablehlo.create_token", "stablehlo.iota", published=False)
def source(op: Op) -> Rule:
    """Return the rule of an op without operands, whose result may be sharded along every dimension."""
    builder = RuleBuilder(op)
    for result, shape in enumerate(builder.result_shapes):
        for dimension, size in enumerate(shape):
            builder.factor([], [dimension if index == result else None for index in range(result + 1)], size)
    return builder.build()


@rule("stablehlo.broadcast_in_dim")
def broadcast_in_dim(op: Op) -> Rule:
    """Return a rule with one factor per dimension kept; expanded dimensions of size 1 are separate factors."""
    return _broadcast(op, op["broadcast_dimensions"])


@rule("stablehlo.broadcast", published=False)
def broadcast(op: Op) -> Rule:
    """Return a rule with factors for the new major dimensions, then the operand's."""
    new = len(op["broadcast_sizes"])
    return _broadcast(op, range(new, new + op.operands[0].tensor.rank))


def _broadcast(op: Op, places: object) -> Rule:
    builder = RuleBuilder(op)
    inner, outer = builder.operand_shapes[0], builder.result_shapes[0]
    of_result = {place: index for index, place in enumerate(places)}  # type: ignore[var-annotated,arg-type]
    for dimension, size in enumerate(outer):
        source = of_result.get(dimension)
        if source is not None and inner[source] != size:
            builder.factor([source], [None], 1)
            source = None
        builder.factor([source], [dimension], size)
    return builder.build()


@rule("stablehlo.transpose")
def transpose(op: Op) -> Rule:
    builder = RuleBuilder(op)
    for dimension, source in enumerate(op["permutation"]):
        builder.factor([source], [dimension], builder.result_shapes[0][dimension])
    return builder.build()


@rule("stablehlo.reshape")
def reshape(op: Op) -> Rule:
    """Return a rule with the common factors of both shapes; where there are none, each side has its own."""
    builder = RuleBuilder(op)
    inner, outer = builder.operand_shapes[0], builder.result_shapes[0]
    if 0 in inner:
        return replicated_rule(op)
    i = o = 0
    left_in = left_out = 1  # the part of the current dimensions that is not yet a factor
    done_in = done_out = 1
    while i < len(inner) or o < len(outer):
        if i < len(inner) and inner[i] == 1:
            builder.factor([i], [None], 1)
            i += 1
            continue
        if o < len(outer) and outer[o] == 1:
            builder.factor([None], [o], 1)
            o += 1
            continue
        left_in = inner[i] if left_in == 1 and i < len(inner) else left_in
        left_out = outer[o] if left_out == 1 and o < len(outer) else left_out
        common = gcd(left_in, left_out)
        take_in = take_out = 1
        if done_in == done_out and common > 1:
            builder.factor([i], [o], common)
            take_in = take_out = common
        else:
            if done_in <= done_out:
                take_in = _diverged(left_in, common, done_in, done_out)
                builder.factor([i], [None], take_in)
            if done_out <= done_in:
                take_out = _diverged(left_out, common, done_out, done_in)
                builder.factor([None], [o], take_out)
        done_in, done_out = done_in * take_in, done_out * take_out
        left_in, left_out = left_in // take_in, left_out // take_out
        i += left_in == 1 and i < len(inner)
        o += left_out == 1 and o < len(outer)
    return builder.build()


def _diverged(left: int, common: int, behind: int, ahead: int) -> int:
    """Return the next factor of the side that is behind, which makes both sides equal if it divides."""
    if behind == ahead:
        return left
    if ahead % behind == 0 and left % (ahead // behind) == 0:
        return ahead // behind
    return left // common if left > common else left


@rule("stablehlo.slice", "stablehlo.pad")
def windowed(op: Op) -> Rule:
    """Return a rule that passes dimensions of unchanged size; sliced or padded ones exchange elements.

    For computation only untouched dimensions pass: a dimension may be padded by as much as it is sliced.
    """
    builder = RuleBuilder(op)
    for dimension, (size, result_size) in enumerate(
        zip(builder.operand_shapes[0], builder.result_shapes[0], strict=True)
    ):
        local = PASS if is_untouched(op, dimension) else PERMUTE
        builder.everywhere(dimension, size, PASS if size == result_size else PERMUTE, local=local)
    return builder.build()


def is_untouched(op: Op, dimension: int) -> bool:
    """Return whether a slice or pad leaves `dimension` unchanged."""
    size = op.operands[0].tensor.static_shape[dimension]
    if op.name == "stablehlo.pad":
        return not (
            op["edge_padding_low"][dimension] or op["edge_padding_high"][dimension] or op["interior_padding"][dimension]
        )
    return bool(
        op["limit_indices"][dimension] - op["start_indices"][dimension] == size and op["strides"][dimension] == 1
    )


@rule("stablehlo.concatenate")
def concatenate(op: Op) -> Rule:
    """Return a rule that permutes the joined dimension if all inputs are slices or one value, else replicates it."""
    builder = RuleBuilder(op)
    joined = op["dimension"]
    for dimension, size in enumerate(builder.result_shapes[0]):
        places = [dimension] * len(op.operands)
        builder.factor(places, [dimension], size, PASS if dimension != joined else _concatenate_kind(op))
    return builder.build()


def _concatenate_kind(op: Op) -> str:
    slices = [_is_slice(value) for value in op.operands]
    sources = {value.defining_op.operands[0] if cut else value for value, cut in zip(op.operands, slices, strict=True)}  # type: ignore[union-attr]
    return PERMUTE if all(slices) or (any(slices) and len(sources) == 1) else REPLICATE


def _is_slice(value: Value) -> bool:
    return value.defining_op is not None and value.defining_op.name == "stablehlo.slice"


@rule("stablehlo.reverse")
def reverse(op: Op) -> Rule:
    builder = RuleBuilder(op)
    for dimension, size in enumerate(builder.result_shapes[0]):
        builder.factor([dimension], [dimension], size, PERMUTE if dimension in op["dimensions"] else PASS)
    return builder.build()


@rule("stablehlo.sort")
def sort(op: Op) -> Rule:
    """Return a rule that replicates the sorted dimension, and blocks it if no other can be sharded instead."""
    builder = RuleBuilder(op)
    shape = builder.operand_shapes[0]
    chosen = op["dimension"] % max(1, len(shape))
    is_alone = all(dimension == chosen or size == 1 for dimension, size in enumerate(shape))
    for dimension, size in enumerate(shape):
        places = [dimension] * len(op.operands)
        if dimension == chosen:
            builder.factor(places, places, size, REPLICATE, blocked=is_alone)
        else:
            builder.factor(places, places, size)
    return builder.build()
