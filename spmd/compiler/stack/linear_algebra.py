"""Decompositions, transforms and normalizations: the leading axis is a batch dimension."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.compiler.stack.contraction import merge, part
from spmd.compiler.stack.core import StackedValue, Stacker, Tree, rule
from spmd.ir import Op
from spmd.types import TensorType


@rule("stablehlo.cholesky", "stablehlo.triangular_solve", "stablehlo.fft")
def batched(stacker: Stacker, op: Op) -> Sequence[Tree]:
    return stacker.lifted(op, [stacker.stack(stacker.leaf(value)) for value in op.operands])


@rule("stablehlo.batch_norm_inference", "stablehlo.batch_norm_training", "stablehlo.batch_norm_grad")
def batch_norm(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """Merge the leading axis with the features: (P, ..., F, ...) becomes (..., P * F, ...)."""
    feature = op["feature_index"]
    leaves_of = [stacker.leaf(value) for value in op.operands]
    operands = [merge(stacker, stacker.stack(leaf), feature if leaf.rank > 1 else 0) for leaf in leaves_of]
    types = [_joined_type(stacker, value.tensor, feature) for value in op.results]
    normalized = op.clone(operands, types)
    stacker.ops.append(normalized)
    return [
        StackedValue(part(stacker, value, feature if value.tensor.rank > 1 else 0), True)
        for value in normalized.results
    ]


def _joined_type(stacker: Stacker, type: TensorType, feature: int) -> TensorType:
    shape = list(type.static_shape)
    shape[feature if len(shape) > 1 else 0] *= stacker.size
    return type.with_shape(tuple(shape))
