"""Rules of linear algebra, transforms and normalization: batch dimensions pass, matrices are replicated."""

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
    """Return a rule that passes batch dimensions; for computation, right-hand sides may be sharded, too."""
    builder = RuleBuilder(op)
    matrix, sides = builder.operand_shapes
    rows, columns = len(matrix) - 2, len(matrix) - 1
    for dimension, size in enumerate(matrix[:-2]):
        builder.everywhere(dimension, size)
    is_transposed = op["transpose_a"] != "NO_TRANSPOSE"
    solved, free = (rows, columns) if op["left_side"] else (columns, rows)
    contracted = columns if op["left_side"] != is_transposed else rows
    kept = rows + columns - contracted

    def of_matrix() -> None:
        builder.factor([kept, solved], [None], matrix[kept], REPLICATE)

    def of_sides() -> None:
        builder.factor([None, free], [free], sides[free], REPLICATE, local=PASS)

    for add in (of_matrix, of_sides) if op["left_side"] else (of_sides, of_matrix):
        add()
    return builder.factor([contracted, None], [solved], matrix[contracted], REPLICATE).build()


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


@rule("stablehlo.batch_norm_training", "stablehlo.batch_norm_grad", published=False)
def batch_norm(op: Op) -> Rule:
    """Return a rule that passes features; other dimensions are reduced to statistics and replicated."""
    builder = RuleBuilder(op)
    feature = op["feature_index"]
    shape = builder.operand_shapes[0]

    def places(shapes: list[tuple[int, ...]], dimension: int) -> list[int | None]:
        vector = 0 if dimension == feature else None
        return [
            dimension if len(operand_shape) == len(shape) and operand_shape == shape else vector
            for operand_shape in shapes
        ]

    for dimension, size in enumerate(shape):
        kind = PASS if dimension == feature else REPLICATE
        builder.factor(places(builder.operand_shapes, dimension), places(builder.result_shapes, dimension), size, kind)
    return builder.build()
