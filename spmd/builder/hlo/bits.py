"""The bits of arrays as elements of other types. A boolean is a byte in XLA's memory, 0 or 1."""

from __future__ import annotations

from spmd.builder import ops
from spmd.builder.shape import PRED, U8, PrimitiveType
from spmd.builder.xla_op import XlaOp


def reinterpreted(operand: XlaOp, kind: PrimitiveType) -> XlaOp:
    """Return the bits of `operand` as elements of `kind`; every byte but 0 is true."""
    if operand.shape.primitive_type is kind:
        return operand
    memory = ops.ConvertElementType(operand, U8) if operand.shape.primitive_type is PRED else operand
    if kind is not PRED:
        return ops.BitcastConvertType(memory, kind)
    return ops.ConvertElementType(ops.BitcastConvertType(memory, U8), PRED)
