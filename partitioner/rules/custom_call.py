"""Rules of well-known custom calls of frontends and compilers. Source: Shardy's registry of rules."""

from __future__ import annotations

from partitioner.rules.core import PASS, REPLICATE, Rule, RuleBuilder, register
from partitioner.rules.elementwise import pointwise, replicated_inside
from spmd.ir import Op

for _target in (
    "annotate_device_placement",
    "InspectSharding",
    "LayoutConstraint",
    "MoveToDevice",
    "MoveToHost",
    "X64Combine",
    "X64SplitHigh",
    "X64SplitLow",
    "mhlo.erf",
    "xla.megascale.provide_metadata",
):
    register(_target)(pointwise)


@register("Cholesky")
@register("CompactWyHelper")
@register("InvertDiagBlocksLowerTriangular")
@register("InvertDiagBlocksUpperTriangular")
def of_matrices(op: Op) -> Rule:
    """Return a rule that propagates along all dimensions, but needs replicated matrices for computation."""
    return replicated_inside(op, 2)


@register("_SPMDInternalOp_MultiPad")
@register("_SPMDInternalOp_MultiRotate")
@register("_SPMDInternalOp_MultiSlice")
@register("_SPMDInternalOp_RotateRight")
@register("_SPMDInternalOp_Wrap")
def moving(op: Op) -> Rule:
    """Return a rule that propagates along all dimensions, along each of which elements move."""
    return replicated_inside(op, len(RuleBuilder(op).result_shapes[0]))


def _batched(op: Op) -> tuple[RuleBuilder, tuple[int, ...]]:
    """Return a builder with a factor for each dimension but the last two, and the first operand's shape."""
    builder = RuleBuilder(op)
    shape = builder.operand_shapes[0]
    for dimension, size in enumerate(shape[:-2]):
        builder.everywhere(dimension, size)
    return builder, shape


@register("Eigh")
def eigh(op: Op) -> Rule:
    """Return a rule that shards eigenvectors as the matrix and eigenvalues as its last dimension."""
    builder, shape = _batched(op)
    rows, columns = len(shape) - 2, len(shape) - 1
    builder.factor([rows], [rows, None], shape[rows], local=REPLICATE)
    return builder.factor([columns], [columns, rows], shape[columns], local=REPLICATE).build()


@register("Qr")
@register("QrDecompositionBlock")
def qr(op: Op) -> Rule:
    builder, shape = _batched(op)
    rows, columns = len(shape) - 2, len(shape) - 1
    builder.factor([rows], [rows, None], shape[rows], REPLICATE)
    builder.factor([columns], [columns, None], shape[columns], REPLICATE)
    return builder.factor([None], [None, rows], builder.result_shapes[1][rows], REPLICATE).build()


@register("ProductOfElementaryHouseholderReflectors")
def householder_product(op: Op) -> Rule:
    builder, shape = _batched(op)
    rows, columns = len(shape) - 2, len(shape) - 1
    builder.factor([rows, None], [rows], shape[rows], REPLICATE)
    builder.factor([columns, None], [columns], shape[columns], REPLICATE)
    return builder.factor([None, rows], [None], builder.operand_shapes[1][rows], REPLICATE).build()


@register("mhlo.topk")
def top_k(op: Op) -> Rule:
    """Return a rule that shards batch dimensions and replicates the last one, of which the largest are taken."""
    builder = RuleBuilder(op)
    last = len(builder.operand_shapes[0]) - 1
    for dimension, (size, taken) in enumerate(zip(builder.operand_shapes[0], builder.result_shapes[0], strict=True)):
        kind = PASS if size == taken else REPLICATE
        local = REPLICATE if dimension == last else None
        builder.everywhere(dimension, size, kind, blocked=size != taken, local=local)
    return builder.build()


@register("ApproxTopK")
@register("PartialReduce")
def approximate_top_k(op: Op) -> Rule:
    """Return the rule of top_k along the dimension that shrinks, which is a separate factor of operand and result."""
    builder = RuleBuilder(op)
    for dimension, (size, taken) in enumerate(zip(builder.operand_shapes[0], builder.result_shapes[0], strict=True)):
        if size == taken:
            builder.everywhere(dimension, size)
        else:
            builder.factor([dimension, dimension], [], size, local=REPLICATE)
            builder.factor([], [dimension, dimension], taken, REPLICATE, blocked=True)
    return builder.build()
