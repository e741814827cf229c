"""Rules of reductions. Source: Shardy's documentation, "Propagation"."""

from __future__ import annotations

from dataclasses import replace

from partitioner.rules.core import PASS, PERMUTE, REDUCE, REPLICATE, Rule, RuleBuilder, rule
from spmd.analysis.windows import windows_of
from spmd.ir import Op


@rule("stablehlo.reduce")
def reduce(op: Op) -> Rule:
    """Return a rule that passes kept dimensions; reduced ones give partial results."""
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


@rule("stablehlo.reduce_window")
def reduce_window(op: Op) -> Rule:
    builder, windows = RuleBuilder(op), windows_of(op)
    as_published = replace(windows, base_dilations=(1,) * windows.rank)  # Shardy ignores them
    for dimension, size in enumerate(builder.result_shapes[0]):
        kind = PASS if as_published.passes(dimension) else PERMUTE
        builder.everywhere(dimension, size, kind, local=PASS if windows.passes(dimension) else PERMUTE)
    return builder.build()


@rule("stablehlo.select_and_scatter")
def select_and_scatter(op: Op) -> Rule:
    """Return the rule of reduce_window, but source dimensions along which windows move are separate factors."""
    builder, windows = RuleBuilder(op), windows_of(op)
    operand, source = builder.operand_shapes[:2]
    for dimension, size in enumerate(operand):
        if windows.passes(dimension):
            builder.everywhere(dimension, size)
        else:
            builder.factor([None, dimension], [None], source[dimension], REPLICATE)
            builder.factor([dimension, None], [dimension], size, PERMUTE)
    return builder.build()
