"""Rules of ops that fold elements. Source: Shardy's documentation, "Propagation"."""

from __future__ import annotations

from partitioner.rules.core import PASS, PERMUTE, REDUCE, REPLICATE, Rule, RuleBuilder, rule
from spmd.ir import Op


@rule("stablehlo.reduce")
def reduce(op: Op) -> Rule:
    """Kept dimensions pass, folded ones give partial results."""
    builder = RuleBuilder(op)
    count = len(op.operands) // 2
    place = 0
    for dimension, size in enumerate(builder.operand_shapes[0]):
        if dimension in op["dimensions"]:
            builder.factor([dimension] * count, [], size, REDUCE)
        else:
            builder.factor([dimension] * count, [place] * count, size)
            place += 1
    return builder.build()


def is_window_whole(op: Op, dimension: int) -> bool:
    """Whether the windows of `op` do nothing along `dimension`: extent 1, step 1, no padding, no dilation."""
    padding = op["padding"]
    strides = op["window_strides"]
    extent = op["window_dimensions"]
    if padding is not None and padding[dimension].any():
        return False
    if op.name == "stablehlo.reduce_window":
        base = op["base_dilations"]
        if base is not None and base[dimension] != 1:
            return False
    return (strides is None or strides[dimension] == 1) and (extent is None or extent[dimension] == 1)


@rule("stablehlo.reduce_window")
def reduce_window(op: Op) -> Rule:
    builder = RuleBuilder(op)
    count = len(op.operands) // 2
    for dimension, size in enumerate(builder.result_shapes[0]):
        kind = PASS if is_window_whole(op, dimension) else PERMUTE
        builder.factor([dimension] * count, [dimension] * count, size, kind)
    return builder.build()


@rule("stablehlo.select_and_scatter")
def select_and_scatter(op: Op) -> Rule:
    """As reduce_window, with the source's dimensions apart where windows move."""
    builder = RuleBuilder(op)
    operand, source = builder.operand_shapes[:2]
    for dimension, size in enumerate(operand):
        if is_window_whole(op, dimension):
            builder.factor([dimension, dimension], [dimension], size)
        else:
            builder.factor([None, dimension], [None], source[dimension], REPLICATE)
            builder.factor([dimension, None], [dimension], size, PERMUTE)
    return builder.build()
