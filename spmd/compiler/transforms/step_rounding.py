"""Folds of narrow floats that are rounded at each step, where excess precision is not wanted.

By default a sum or a product of floats of at most 16 bits is carried out in f32 and rounded once
(spmd.analysis.reducers.Monoid.accumulator). The specification's own loops, its interpreter and XLA's CPU client round
after each step, and results that were recorded with them differ where what is folded nearly cancels.
"""

from __future__ import annotations

from spmd.analysis.reducers import Monoid, monoids_of
from spmd.dialects.make import make_op
from spmd.dialects.op_builder import OpBuilder
from spmd.ir import Block, Op, Region, Value
from spmd.types import TensorType

_FOLDS = ("stablehlo.reduce", "stablehlo.reduce_window", "stablehlo.scatter")


def round_each_step(block: Block) -> None:
    """Has the reductions, windows and scatters of `block`, and of the regions inside it, round at each step; in place.

    Their regions convert on the way, by which nobody takes them for one op that folds in any precision.
    """
    for op in (inner for outer in block.ops for inner in outer.walk()):
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
    for place, monoid in enumerate(monoids):
        pair = (block.arguments[place], block.arguments[place + len(monoids)])
        results.append(_combined(builder, monoid, *pair))
    block.ops += [*builder.ops, make_op("stablehlo.return", results, location=op.location)]
    return Region([block])


def _combined(builder: OpBuilder, monoid: Monoid, first: Value, second: Value) -> Value:
    wide = TensorType((), monoid.accumulator)
    total = builder.binary(monoid.kind, builder.convert(first, wide), builder.convert(second, wide))
    return builder.convert(total, first.tensor)
