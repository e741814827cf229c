"""Broadcasts left to NumPy.

Pointwise kernels take operands of any shapes that broadcast together, so a pointwise step can read the operand of a
broadcast_in_dim itself, with 1 for each new dimension behind others. The broadcast then costs nothing, or a reshape,
where a view of the whole shape costs some microseconds to make. At least one operand keeps the whole shape, which is
the result's.
"""

from __future__ import annotations

from spmd.backends.numpy.core import Kernel
from spmd.compiler.steps import Step
from spmd.ir import NumberedValue, Op, Value
from spmd.types import TensorType, Type

_BROADCAST = "stablehlo.broadcast_in_dim"
#: An operand is worth preparing when each of its elements is read so many times.
_OFTEN = 4


def leave_broadcasts(steps: list[Step], results: list[Value]) -> list[Step]:
    """The same program in which pointwise steps read narrow operands, without the broadcasts nobody reads any more."""
    narrow: dict[Value, Value] = {}
    prepared: dict[tuple[Value, Type], Value] = {}
    made: list[Step] = []
    for step in steps:
        if step.op.name == _BROADCAST and len(step.inputs) == 1:
            made += _narrowed(step, narrow)
        elif step.kernel.pointwise and len(step.outputs) == 1:
            step.inputs = _narrow_inputs(step, narrow)
            made += _prepared(step, prepared)
        made.append(step)
    return _without_unread(made, results)


def _narrowed(step: Step, narrow: dict[Value, Value]) -> list[Step]:
    """Finds what may stand for the broadcast; the step that makes it where it is no value of the program yet."""
    source, result = step.inputs[0], step.outputs[0]
    shape = _narrow_shape(step.op)
    if shape is None:
        return []
    for known in (narrow.get(source, source), source):
        if _stands_for(known.tensor.shape, shape):
            narrow[result] = known
            return []
    value = NumberedValue(source.tensor.with_shape(shape), step.op, 0)
    narrow[result] = value
    return [Step(step.op, Kernel(lambda array: array.reshape(shape), aliases=(0,)), [source], [value])]


def _narrow_shape(op: Op) -> tuple[int | None, ...] | None:
    """The operand's shape with 1 for each new dimension; None where dimensions change places or are unknown."""
    operand, result = op.operands[0].type, op.results[0].type
    if not isinstance(operand, TensorType) or not isinstance(result, TensorType):
        return None
    dimensions = list(op["broadcast_dimensions"])
    if not operand.is_static or not result.is_static or dimensions != sorted(dimensions) or operand.is_quantized:
        return None
    if not dimensions:
        return ()
    shape = [1] * result.rank
    for dimension, size in zip(dimensions, operand.static_shape, strict=True):
        shape[dimension] = size
    return tuple(shape)


def _stands_for(shape: tuple[int | None, ...], narrow: tuple[int | None, ...]) -> bool:
    """Whether an array of `shape` broadcasts like one of `narrow`: NumPy puts dimensions of 1 in front by itself."""
    return shape == () or (1,) * (len(narrow) - len(shape)) + shape == narrow


def _narrow_inputs(step: Step, narrow: dict[Value, Value]) -> list[Value]:
    shape = step.outputs[0].tensor.shape
    if not any(value not in narrow and value.tensor.shape == shape for value in step.inputs):
        return step.inputs
    return [narrow.get(value, value) for value in step.inputs]


def _prepared(step: Step, prepared: dict[tuple[Value, Type], Value]) -> list[Step]:
    """Gives `step` the prepared form of its narrow operand; the step that prepares it where none has yet."""
    if step.kernel.prepares is None:
        return []
    position, call, element = step.kernel.prepares
    value = step.inputs[position]
    if not value.tensor.is_static or value.tensor.size * _OFTEN > step.outputs[0].tensor.size:
        return []
    form, made = prepared.get((value, element)), []
    if form is None:
        form = prepared[value, element] = NumberedValue(value.tensor.with_element_type(element), step.op, 0)
        made = [Step(step.op, Kernel(call), [value], [form])]
    step.inputs = [*step.inputs[:position], form, *step.inputs[position + 1 :]]
    return made


def _without_unread(steps: list[Step], results: list[Value]) -> list[Step]:
    """Without broadcasts, and what was made for them, that nobody reads."""
    read = set(results)
    kept: list[Step] = []
    for step in reversed(steps):
        if step.op.name == _BROADCAST and not read.intersection(step.outputs):
            continue
        read.update(step.inputs)
        kept.append(step)
    return kept[::-1]
