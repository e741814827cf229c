"""Expansion of multidimensional FFTs into transforms along the last dimension.

StableHLO specification, "fft": real transforms are applied along the last dimension first, their inverses last.
"""

from __future__ import annotations

from collections.abc import Sequence

from spmd.analysis.process_rows import UNSEEN
from spmd.compiler.schedule.fusibility import is_plain
from spmd.compiler.transforms.rewrite import rewrite
from spmd.dialects.op_builder import OpBuilder
from spmd.ir import Block, Op, Value
from spmd.ir.attributes import UNIT
from spmd.types import TensorType

FFT = "stablehlo.fft"


def expand_ffts(block: Block) -> None:
    """Expand multidimensional FFTs in `block` and its regions; in place."""
    rewrite(block, (FFT,), lambda block: _expanded)


def _expanded(op: Op, builder: OpBuilder) -> Sequence[Value] | None:
    (value,), kind, lengths = op.operands, op["fft_type"], op["fft_length"]
    if len(lengths) < 2 or not is_plain(value.type) or not is_plain(op.result.type):
        return None
    others = "IFFT" if kind in ("IFFT", "IRFFT") else "FFT"
    rank = value.tensor.rank
    axes = range(rank - len(lengths), rank - 1)
    if kind == "IRFFT":
        for axis in axes:
            value = _along(builder, value, axis, others)
        return [_last(builder, value, kind, lengths[-1], op.result.tensor)]
    value = _last(builder, value, kind, lengths[-1], op.result.tensor)
    for axis in reversed(axes):
        value = _along(builder, value, axis, others)
    return [value]


def _last(builder: OpBuilder, value: Value, kind: str, length: int, type: TensorType) -> Value:
    """Return the transform along the last dimension."""
    return builder.op(FFT, [value], [type], {"fft_type": kind, "fft_length": (length,)}).result


def _along(builder: OpBuilder, value: Value, axis: int, kind: str) -> Value:
    """Return the complex transform along `axis`, by transposition to the last dimension."""
    rank = value.tensor.rank
    order = (*range(axis), *range(axis + 1, rank), axis)
    shape = value.tensor.static_shape
    transposed = value.tensor.with_shape(tuple(shape[d] for d in order))
    columns = builder.op("stablehlo.transpose", [value], [transposed], {"permutation": order})
    columns.discardable = {UNSEEN: UNIT}  # adds no non-finite values
    back = tuple(order.index(d) for d in range(rank))
    transformed = _last(builder, columns.result, kind, shape[axis], transposed)
    return builder.one("transpose", [transformed], value.tensor, permutation=back)
