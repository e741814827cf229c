"""Rounding at each step of reductions of narrow floats, without excess precision.

By default sums and products of floats of at most 16 bits are accumulated in f32 and rounded once
(spmd.analysis.reducers.Monoid.accumulator). The specification's own loops, its interpreter and XLA's CPU client round
at each step; results recorded with them differ under cancellation.
"""

from __future__ import annotations

from spmd.analysis.reducers import Monoid, monoids_of
from spmd.dialects.make import make_op
from spmd.dialects.op_builder import OpBuilder
from spmd.ir import Block, Op, Region, Value
from spmd.types import TensorType

_FOLDS = ("stablehlo.reduce", "stablehlo.reduce_window", "stablehlo.scatter")


def round_each_step(block: Block) -> None:
    """Make reductions, windows and scatters of `block` and its regions round at each step; in place.

    Their regions convert explicitly, and so are not recognized as a monoid that may be accumulated in any precision.
    """
    for op in block.walk():
        if op.name not in _FOLDS:
            continue
        monoids = monoids_of(op.regions[0])
        if monoids is not None and any(monoid.accumulator is not monoid.element for monoid in monoids):
            op.regions = (_rounding(op, monoids), *op.regions[1:])


def _rounding(op: Op, monoids: list[Monoid]) -> Region:
    scalars = [TensorType((), monoid.element) for monoid in monoids]
    block, builder = Block([*scalars, *scalars]), OpBuilder()
    builder.location = op.location
    results = []
    for index, monoid in enumerate(monoids):
        pair = (block.arguments[index], block.arguments[index + len(monoids)])
        results.append(_combined(builder, monoid, *pair))
    block.ops += [*builder.ops, make_op("stablehlo.return", results, location=op.location)]
    return Region([block])


def _combined(builder: OpBuilder, monoid: Monoid, first: Value, second: Value) -> Value:
    wide = TensorType((), monoid.accumulator)
    total = builder.binary(monoid.kind, builder.convert(first, wide), builder.convert(second, wide))
    return builder.convert(total, first.tensor)
