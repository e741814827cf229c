"""Rules of ops that fold elements. Source: Shardy's documentation, "Propagation"."""

from __future__ import annotations

from collections.abc import Sequence

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
    is_dilated = op.name == "stablehlo.reduce_window" and _entry(op["base_dilations"], dimension) != 1
    return not is_dilated and _is_passed_through(op, dimension)


def _is_passed_through(op: Op, dimension: int) -> bool:
    """As `is_window_whole`, without a look at dilations, as Shardy has it."""
    padding = op["padding"]
    if padding is not None and padding[dimension].any():
        return False
    return _entry(op["window_strides"], dimension) == _entry(op["window_dimensions"], dimension) == 1


def _entry(values: Sequence[int] | None, dimension: int) -> int:
    return 1 if values is None else values[dimension]


@rule("stablehlo.reduce_window")
def reduce_window(op: Op) -> Rule:
    builder = RuleBuilder(op)
    for dimension, size in enumerate(builder.result_shapes[0]):
        kind = PASS if _is_passed_through(op, dimension) else PERMUTE
        builder.everywhere(dimension, size, kind, local=PASS if is_window_whole(op, dimension) else PERMUTE)
    return builder.build()


@rule("stablehlo.select_and_scatter")
def select_and_scatter(op: Op) -> Rule:
    """As reduce_window, with the source's dimensions apart where windows move."""
    builder = RuleBuilder(op)
    operand, source = builder.operand_shapes[:2]
    for dimension, size in enumerate(operand):
        if is_window_whole(op, dimension):
            builder.everywhere(dimension, size)
        else:
            builder.factor([None, dimension], [None], source[dimension], REPLICATE)
            builder.factor([dimension, None], [dimension], size, PERMUTE)
    return builder.build()
