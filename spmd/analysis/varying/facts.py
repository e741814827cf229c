"""What is known of a value: which processes surely hold the same, and which numbers each holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spmd.analysis.constants import constant_array
from spmd.analysis.index_maps import element_type
from spmd.analysis.scalar.elements import register_types
from spmd.analysis.scalar.elementwise import compute
from spmd.analysis.scalar.evaluate import dtype_of, evaluate
from spmd.analysis.scalar.expression import parameter
from spmd.analysis.varying.partitions import Partition
from spmd.ir import Op, Value
from spmd.support.arrays import Array
from spmd.types import ElementType, TensorType

#: Elements of an array that is followed number by number: indices, predicates, tables of coordinates.
_MOST_ELEMENTS = 64


@dataclass(frozen=True, slots=True)
class Fact:
    """What is known of a value.

    may      processes with one label hold the same, each argument that nobody declares replicated being different
             on each process
    sure     the same, such arguments being equal on all: what varies here varies by the program's own doing
    known    what each process holds, an array with a leading axis of processes (or of one, for all of them)
    random   the op that drew the random numbers that the value is made of, element by element
    """

    may: Partition
    sure: Partition
    known: Array | None = None
    random: Op | None = None

    @property
    def is_uniform(self) -> bool:
        return self.may.is_uniform


def known_results(op: Op, operands: list[Array | None]) -> Array | None:
    """What `op` gives on each process from what its operands are known to be; None where that is not followed."""
    if len(op.results) != 1 or not isinstance(op.results[0].type, TensorType):
        return None
    type = op.results[0].tensor
    if not type.is_static or type.is_quantized or type.size > _MOST_ELEMENTS:
        return None
    arrays = [_constant(value) if known is None else known for value, known in zip(op.operands, operands, strict=True)]
    if not all(isinstance(array, np.ndarray) and array.dtype.kind in "iub" for array in arrays):
        return None
    held = [array for array in arrays if array is not None]
    move = _MOVES.get(op.name)
    return _elementwise(op, held) if move is None else move(op, held)


def _constant(value: Value) -> Array | None:
    array = constant_array(value.defining_op)
    return None if array is None or array.size > _MOST_ELEMENTS else array[np.newaxis]


def _elementwise(op: Op, arrays: list[Array]) -> Array | None:
    elements = []
    for index, value in enumerate(op.operands):
        element = element_type(value)
        if (
            not isinstance(element, ElementType)
            or not (element.is_integer or element.is_boolean)
            or element.bits in (2, 4)
        ):
            return None
        elements.append((parameter(index, register_types(element)[0]),))
    result = op.results[0].tensor.element_type
    if not isinstance(result, ElementType) or not _is_integral(result):
        return None
    computed = compute(op, elements)
    if computed is None:
        return None
    rank = max(array.ndim for array in arrays)  # a scalar predicate stands for all elements
    spread = [array.reshape(*array.shape, *[1] * (rank - array.ndim)) for array in arrays]
    registers = [array.astype(dtype_of(of[0].type), copy=False) for array, of in zip(spread, elements, strict=True)]
    values = evaluate(computed[0], registers)
    if values is None:
        return None
    shape = np.broadcast_shapes(*(array.shape for array in registers))
    return np.broadcast_to(values[0], shape).astype(result.dtype)


def _is_integral(element: ElementType) -> bool:
    return element.is_boolean or (element.is_integer and element.bits >= 8)


def _reshaped(op: Op, arrays: list[Array]) -> Array:
    return arrays[0].reshape(len(arrays[0]), *op.results[0].tensor.static_shape)


def _broadcast(op: Op, arrays: list[Array]) -> Array:
    shape, array = op.results[0].tensor.static_shape, arrays[0]
    sizes = [1] * len(shape)
    for at, dimension in enumerate(op["broadcast_dimensions"]):
        sizes[dimension] = array.shape[at + 1]
    order = np.argsort(op["broadcast_dimensions"], kind="stable")
    array = array.transpose(0, *(order + 1)) if len(order) else array
    return np.broadcast_to(array.reshape(len(array), *sizes), (len(array), *shape))


def _sliced(op: Op, arrays: list[Array]) -> Array:
    bounds = zip(op["start_indices"], op["limit_indices"], op["strides"], strict=True)
    return arrays[0][(slice(None), *(slice(*bound) for bound in bounds))]


def _dynamically_sliced(op: Op, arrays: list[Array]) -> Array:
    """Each process's slice; starts are clamped. Source: specification, dynamic_slice."""
    array, starts = arrays[0], arrays[1:]
    count = max(len(each) for each in arrays)
    sizes = op["slice_sizes"]
    index: list[Array] = [np.arange(count if len(array) > 1 else 1).reshape(-1, *[1] * len(sizes))]
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        first = np.clip(start.astype(np.int64).reshape(-1), 0, array.shape[axis + 1] - size)
        span = np.arange(size).reshape(1, *[size if other == axis else 1 for other in range(len(sizes))])
        index.append(first.reshape(-1, *[1] * len(sizes)) + span)
    if len(array) == 1:
        index[0] = np.zeros_like(index[0])
    return array[tuple(index)]


def _concatenated(op: Op, arrays: list[Array]) -> Array:
    count = max(len(array) for array in arrays)
    whole = [np.broadcast_to(array, (count, *array.shape[1:])) for array in arrays]
    return np.concatenate(whole, axis=op["dimension"] + 1)


_MOVES = {
    "stablehlo.reshape": _reshaped,
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.slice": _sliced,
    "stablehlo.dynamic_slice": _dynamically_sliced,
    "stablehlo.concatenate": _concatenated,
}
