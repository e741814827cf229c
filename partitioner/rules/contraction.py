"""Rules of contractions: dots, einsums, convolution. Source: Shardy's documentation, "Propagation"."""

from __future__ import annotations

from partitioner.rules.core import PASS, PERMUTE, REDUCE, Rule, RuleBuilder, rule
from spmd.ir import Op


@rule("stablehlo.dot_general")
def dot_general(op: Op) -> Rule:
    """Return the rule of a dot: batch dimensions, free dimensions of both sides, then contracting ones."""
    builder = RuleBuilder(op)
    numbers = op["dot_dimension_numbers"]
    lhs, rhs = builder.operand_shapes[:2]
    place = 0
    for left, right in zip(numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions, strict=True):
        builder.factor([left, right], [place], lhs[left])
        place += 1
    for side, shape, bound in (
        (0, lhs, (*numbers.lhs_batching_dimensions, *numbers.lhs_contracting_dimensions)),
        (1, rhs, (*numbers.rhs_batching_dimensions, *numbers.rhs_contracting_dimensions)),
    ):
        for dimension, size in enumerate(shape):
            if dimension not in bound:
                builder.factor([dimension, None] if side == 0 else [None, dimension], [place], size)
                place += 1
    for left, right in zip(numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions, strict=True):
        builder.factor([left, right], [None], lhs[left], REDUCE)
    return builder.build()


@rule("stablehlo.dot")
def dot(op: Op) -> Rule:
    builder = RuleBuilder(op)
    lhs, rhs = builder.operand_shapes
    place = 0
    if len(lhs) == 2:
        builder.factor([0, None], [0], lhs[0])
        place = 1
    if len(rhs) == 2:
        builder.factor([None, 1], [place], rhs[1])
    return builder.factor([len(lhs) - 1, 0], [None], rhs[0], REDUCE).build()


@rule("stablehlo.einsum", "stablehlo.unary_einsum", published=False)
def einsum(op: Op) -> Rule:
    """Return the rule given by the config's letters; an ellipsis stands for leading dimensions."""
    builder = RuleBuilder(op)
    left, right = op["einsum_config"].replace(" ", "").split("->")
    shapes = builder.operand_shapes
    names: list[list[str]] = []
    for text, shape in zip((*left.split(","), right), (*shapes, builder.result_shapes[0]), strict=True):
        before, dots, after = text.partition("...")
        hidden = len(shape) - len(before) - len(after)
        names.append([*before, *(f"...{index}" for index in range(hidden, 0, -1) if dots), *after])
    sizes = {
        name: size
        for letters, shape in zip(names, shapes, strict=False)
        for name, size in zip(letters, shape, strict=True)
    }
    for name, size in sizes.items():
        places = [letters.index(name) if name in letters else None for letters in names]
        builder.factor(places[:-1], places[-1:], size, PASS if places[-1] is not None else REDUCE)
    return builder.build()


@rule("stablehlo.convolution")
def convolution(op: Op) -> Rule:
    """Return the rule of a convolution: batch and features as in a dot, plus a factor for the groups.

    A spatial dimension of the input has two factors, the larger one major: the windows' positions (which exchange
    halos) and the extent of one window (contracted with the kernel).
    """
    builder = RuleBuilder(op)
    numbers = op["dimension_numbers"]
    rhs, out = builder.operand_shapes[1], builder.result_shapes[0]
    batch, feature = numbers.output_batch_dimension, numbers.output_feature_dimension
    kernel_feature = numbers.kernel_output_feature_dimension
    groups = op["batch_group_count"], op["feature_group_count"]
    if groups[0] > 1:
        builder.factor([numbers.input_batch_dimension, kernel_feature], [feature], groups[0])
    builder.factor([numbers.input_batch_dimension, None], [batch], out[batch])
    for places in zip(
        numbers.input_spatial_dimensions,
        numbers.kernel_spatial_dimensions,
        numbers.output_spatial_dimensions,
        strict=True,
    ):
        _spatial(builder, *places)
    if groups[1] > 1:
        builder.factor([numbers.input_feature_dimension, kernel_feature], [feature], groups[1])
    inner = numbers.kernel_input_feature_dimension
    builder.factor([numbers.input_feature_dimension, inner], [None], rhs[inner], REDUCE)
    features = out[feature] // (groups[0] * groups[1])
    if features > 1:
        builder.factor([None, kernel_feature], [feature], features)
    return builder.build()


def _spatial(builder: RuleBuilder, source: int, window: int, place: int) -> None:
    left = builder.operand_shapes[0][source]
    extent, moves = builder.operand_shapes[1][window], builder.result_shapes[0][place]
    for is_extent in (False, True) if moves >= extent else (True, False):
        size = min(left, extent if is_extent else moves)
        if size > 1:
            if is_extent:
                builder.factor([source, window], [None], size, REDUCE)
            else:
                builder.factor([source, None], [place], size, PERMUTE)
            left //= size
