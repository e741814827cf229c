"""Instructions that XLA's own passes add: they say where values lie or when work is done, and change no value.

A bitcast reads an array's memory, in the order of its layout, as another array. Asynchronous instructions come in
pairs; what starts one does all of the work here, and gives `(operands, result, contexts...)`, of which what ends it
takes the result. Source: XLA's HLO instructions, and the shapes that HloVerifier wants of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from spmd.builder import ops
from spmd.builder.hlo.bits import reinterpreted
from spmd.builder.hlo.parser import INSTRUCTIONS, Call, instruction
from spmd.builder.shape import Shape
from spmd.builder.xla_op import XlaOp


@instruction("bitcast")
def _bitcast(call: Call) -> XlaOp:
    operand, operand_shape = call.operand(), call.operand_shapes()[0]
    result_shape = call.shape
    if operand_shape.is_tuple():
        return operand
    memory = _to_memory(operand, operand_shape)
    if result_shape.xla_element_type() != operand_shape.xla_element_type():
        memory = _as_type(memory, operand_shape, result_shape)
    order = _major_to_minor(result_shape)
    shaped = ops.Reshape(memory, [result_shape.sizes[dimension] for dimension in order])
    return _transposed(shaped, [int(at) for at in np.argsort(order)])


def _major_to_minor(shape: Shape) -> list[int]:
    """Return the dimensions in the order of memory, the slowest first."""
    layout = shape.layout()
    return list(range(len(shape.sizes))) if layout is None else list(layout.major_to_minor)


def _to_memory(operand: XlaOp, shape: Shape) -> XlaOp:
    """Return the elements in the order of memory, in one dimension."""
    return ops.Reshape(_transposed(operand, _major_to_minor(shape)), [prod(shape.sizes)])


def _transposed(operand: XlaOp, order: Sequence[int]) -> XlaOp:
    return operand if list(order) == list(range(len(order))) else ops.Transpose(operand, list(order))


def _as_type(memory: XlaOp, source: Shape, result_shape: Shape) -> XlaOp:
    """Return the elements as others of `result_shape`'s type, of which more or fewer may lie in the same memory."""
    before, after = prod(source.sizes), prod(result_shape.sizes)
    if after < before and after:
        memory = ops.Reshape(memory, [after, before // after])
    return reinterpreted(memory, result_shape.xla_element_type())


# --- copies and asynchronous instructions ----------------------------------------------------------------------------


@instruction("domain", "async-update", "all-reduce-done")
def _same(call: Call) -> XlaOp:
    call.attribute("domain", "")  # of shardings
    return call.operand()


@instruction("copy-start")
def _copy_start(call: Call) -> XlaOp:
    """Return (copy, operand, context)."""
    operand = call.operand()
    return call.builder.Tuple([operand, operand, *_contexts(call, call.shape.parts[2:])])


@instruction("copy-done")
def _copy_done(call: Call) -> XlaOp:
    return ops.GetTupleElement(call.operand(), 0)


def _contexts(call: Call, shapes: Sequence[Shape]) -> list[XlaOp]:
    """Return zeros of `shapes`: what a pair passes on beside values, which nothing reads."""
    return [call.builder.Constant(np.zeros(shape.sizes, shape.numpy_dtype())) for shape in shapes]


@instruction("all-reduce-start")
def _all_reduce_start(call: Call) -> XlaOp:
    return INSTRUCTIONS["all-reduce"](call)


@instruction("all-gather-start", "collective-permute-start")
def _collective_start(call: Call) -> XlaOp:
    """Return (operands, result, contexts...)."""
    operands = call.operands()
    operand_shape, result, *contexts = call.shape.parts
    work = INSTRUCTIONS[call.instruction.opcode.removesuffix("-start")](call.of_shape(result))
    first = operands[0] if len(operands) == 1 and not operand_shape.is_tuple() else call.builder.Tuple(operands)
    return call.builder.Tuple([first, work, *_contexts(call, contexts)])


@instruction("async-start")
def _async_start(call: Call) -> XlaOp:
    """Return ((operands...), result, contexts...) of the computation in `calls`, or of `call` in `call-start`."""
    operands = call.operands()
    _, result, *contexts = call.shape.parts
    call.attribute("async_execution_thread", "")
    opcode = call.instruction.opcode.removesuffix("-start")
    if opcode == "async":
        work = ops.Call(call.computation("calls"), operands, builder=call.builder)  # type: ignore[call-arg]
    else:
        work = INSTRUCTIONS[opcode](call.of_opcode(opcode, result))
    return call.builder.Tuple([call.builder.Tuple(operands), work, *_contexts(call, contexts)])


@instruction("all-gather-done", "collective-permute-done", "async-done")
def _collective_done(call: Call) -> XlaOp:
    call.read.update(call.instruction.attributes)  # which are those of what was started
    return ops.GetTupleElement(call.operand(), 1)
