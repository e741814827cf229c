"""Rules of linear algebra, transforms and normalization: batch dimensions pass, matrices stay whole."""

from __future__ import annotations

from partitioner.rules.core import PASS, REPLICATE, Rule, RuleBuilder, rule
from spmd.ir import Op


@rule("stablehlo.cholesky")
def cholesky(op: Op) -> Rule:
    builder = RuleBuilder(op)
    shape = builder.operand_shapes[0]
    for dimension, size in enumerate(shape):
        builder.factor([dimension], [dimension], size, PASS if dimension < len(shape) - 2 else REPLICATE)
    return builder.build()


@rule("stablehlo.triangular_solve")
def triangular_solve(op: Op) -> Rule:
    """Batch dimensions pass, and so do the right-hand sides; the matrix stays whole."""
    builder = RuleBuilder(op)
    matrix, sides = builder.operand_shapes
    rank = len(matrix)
    for dimension in range(rank - 2):
        builder.factor([dimension, dimension], [dimension], matrix[dimension])
    solved, free = (rank - 2, rank - 1) if op["left_side"] else (rank - 1, rank - 2)
    builder.factor([None, free], [free], sides[free])
    builder.factor([rank - 2, None], [None], matrix[-2], REPLICATE)
    builder.factor([rank - 1, solved], [solved], matrix[-1], REPLICATE)
    return builder.build()


@rule("stablehlo.fft")
def fft(op: Op) -> Rule:
    builder = RuleBuilder(op)
    shape, out = builder.operand_shapes[0], builder.result_shapes[0]
    batches = len(shape) - len(op["fft_length"])
    for dimension, size in enumerate(shape):
        kind = PASS if dimension < batches else REPLICATE
        builder.factor([dimension], [dimension], size, kind, blocked=size != out[dimension])
    return builder.build()


@rule("stablehlo.batch_norm_inference")
def batch_norm_inference(op: Op) -> Rule:
    builder = RuleBuilder(op)
    for dimension, size in enumerate(builder.operand_shapes[0]):
        others = [0 if dimension == op["feature_index"] else None] * (len(op.operands) - 1)
        builder.factor([dimension, *others], [dimension], size)
    return builder.build()


@rule("stablehlo.batch_norm_training", "stablehlo.batch_norm_grad")
def batch_norm(op: Op) -> Rule:
    """Features pass; all else is folded into the statistics, and so stays whole."""
    builder = RuleBuilder(op)
    feature = op["feature_index"]
    shape = builder.operand_shapes[0]

    def places(shapes: list[tuple[int, ...]], dimension: int) -> list[int | None]:
        vector = 0 if dimension == feature else None
        return [dimension if len(have) == len(shape) and have == shape else vector for have in shapes]

    for dimension, size in enumerate(shape):
        kind = PASS if dimension == feature else REPLICATE
        builder.factor(places(builder.operand_shapes, dimension), places(builder.result_shapes, dimension), size, kind)
    return builder.build()
