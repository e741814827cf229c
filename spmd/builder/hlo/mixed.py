"""Floats of several widths in one instruction, which XLA's parser takes and the ops of StableHLO do not.

An instruction computes in the widest type of its operands; its result is converted to the type that the text says.
"""

from __future__ import annotations

from collections.abc import Sequence

from spmd.builder import ops
from spmd.builder.builder import XlaBuilder
from spmd.builder.computation import XlaComputation
from spmd.builder.hlo.parser import Call
from spmd.builder.shape import PrimitiveType, Shape
from spmd.builder.xla_op import XlaOp


def of_one_type(operands: Sequence[XlaOp], *others: PrimitiveType) -> list[XlaOp]:
    """Return `operands` with the arrays of floats converted to the widest type among them and `others`."""
    floats = [kind for kind in map(_float_of, operands) if kind is not None]
    widest = max([*floats, *others], key=lambda kind: kind.element_type.bits, default=None)
    return [
        operand if widest is None or _float_of(operand) in (None, widest) else ops.ConvertElementType(operand, widest)
        for operand in operands
    ]


def as_text(call: Call, result: XlaOp) -> XlaOp:
    """Return `result` with its arrays of floats converted to the types that the text says."""
    shape = call.instruction.shape
    return result if shape is None else _converted(call, result, shape)


def _converted(call: Call, result: XlaOp, shape: Shape) -> XlaOp:
    own = result.shape
    if own.primitive_type is shape.primitive_type and not own.parts:
        return result
    if own.is_tuple() and len(own.parts) == len(shape.parts):
        parts = [ops.GetTupleElement(result, index) for index in range(len(own.parts))]
        return call.builder.Tuple([_converted(call, *pair) for pair in zip(parts, shape.parts, strict=True)])
    is_float = own.primitive_type.is_float and shape.primitive_type.is_float
    return ops.ConvertElementType(result, shape.primitive_type) if is_float else result


def _float_of(operand: XlaOp) -> PrimitiveType | None:
    """Return the element type of an array of floats; None for others."""
    kind = operand.shape.primitive_type
    return kind if kind.is_float else None


def folded(
    operands: Sequence[XlaOp], starts: Sequence[XlaOp], computation: XlaComputation
) -> tuple[list[XlaOp], list[XlaOp], XlaComputation]:
    """Return the operands of a reduction, their initial values, and the computation that folds them, in one type each:
    the widest of the operand's, the initial value's and the computation's."""
    kinds = [shape.primitive_type for shape in computation.program_shape().parameter_shapes[: len(operands)]]
    pairs = [
        of_one_type(pair, *(kind for kind in kinds[index : index + 1] if kind.is_float and _float_of(pair[0])))
        for index, pair in enumerate(zip(operands, starts, strict=True))
    ]
    wide = [pair[0] for pair in pairs]
    return wide, [pair[1] for pair in pairs], reducer(computation, wide)


def reducer(computation: XlaComputation, operands: Sequence[XlaOp]) -> XlaComputation:
    """Return the computation that folds or compares elements of `operands`: one on scalars of other types is called
    with the elements in its types, and what it gives in these is converted back."""
    kinds = [operand.shape.primitive_type for operand in operands] * 2
    shape = computation.program_shape()
    own = [parameter.primitive_type for parameter in shape.parameter_shapes]
    leaves = (*shape.parameter_shapes, *shape.result_shape.leaves())
    scalars = all(leaf.is_array() and not leaf.sizes for leaf in leaves)
    if own == kinds or len(own) != len(kinds) or not scalars:
        return computation
    inner = XlaBuilder(computation.name())
    parameters = [inner.Parameter(number, Shape.scalar_shape(kind), f"p{number}") for number, kind in enumerate(kinds)]
    given = [ops.ConvertElementType(*pair) for pair in zip(parameters, own, strict=True)]
    called = ops.Call(computation, given, builder=inner)  # type: ignore[call-arg]
    parts = [called] if len(operands) == 1 else [called[index] for index in range(len(operands))]
    results = [
        ops.ConvertElementType(part, kind) if part.shape.primitive_type is type else part
        for part, type, kind in zip(parts, own, kinds, strict=False)
    ]
    return inner.Build(results[0] if len(operands) == 1 else inner.Tuple(results))
