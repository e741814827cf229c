"""What the analysis knows about a value: which processes hold equal contents, and small known contents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from spmd.analysis.constants import constant_array
from spmd.analysis.index_maps import element_type
from spmd.analysis.reducers import monoid_of
from spmd.analysis.scalar.elements import register_types
from spmd.analysis.scalar.elementwise import compute
from spmd.analysis.scalar.evaluate import dtype_of, evaluate
from spmd.analysis.scalar.expression import parameter
from spmd.analysis.varying.partitions import Partition
from spmd.ir import Op, Value
from spmd.support.arrays import Array
from spmd.types import ElementType, TensorType

#: The largest number of elements of values whose contents are tracked: indices, predicates, coordinate tables.
_MOST_ELEMENTS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Fact:
    """What is known of a value.

    may      the partition of processes by equal values if arguments not declared replicated differ everywhere
    sure     the partition if those arguments are equal, too: differences that the program itself causes
    known    the contents on each process, an array with a leading axis of processes (of size 1 if all are equal)
    random   the op that drew the random numbers that the value consists of, element by element
    partial  the op that summed over each process's own elements: the value, or a term of it, is a partial sum whose
             reduction across processes is missing
    """

    may: Partition
    sure: Partition
    known: Array | None = None
    random: Op | None = None
    partial: Op | None = None

    @property
    def is_plain(self) -> bool:
        """Whether only the partitions are known."""
        return self.known is None and self.random is None and self.partial is None

    @property
    def is_uniform(self) -> bool:
        """Whether the value is equal on all processes."""
        return self.may.is_uniform


def known_results(op: Op, operands: list[Array | None]) -> Array | None:
    """Return the contents of the result of `op` on each process, given its operands'; None if they are not tracked."""
    if len(op.results) != 1 or not isinstance(op.results[0].type, TensorType):
        return None
    type = op.results[0].tensor
    if not type.is_static or type.is_quantized or type.size > _MOST_ELEMENTS:
        return None
    arrays = [
        known_constant(value) if known is None else known for value, known in zip(op.operands, operands, strict=True)
    ]
    if not all(isinstance(array, np.ndarray) and array.dtype.kind in "iubf" for array in arrays):
        return None
    held = [array for array in arrays if array is not None]
    move = _MOVES.get(op.name)
    return _elementwise(op, held) if move is None else move(op, held)


def known_constant(value: Value) -> Array | None:
    """Return the contents of `value` if it is a small constant, with a leading axis of size 1; else None."""
    op = value.defining_op
    array = _counted_up(op) if op is not None and op.name == "stablehlo.iota" else constant_array(op)
    return None if array is None or array.size > _MOST_ELEMENTS else array[np.newaxis]


def _counted_up(op: Op) -> Array | None:
    type = op.results[0].tensor
    if type.size > _MOST_ELEMENTS or not isinstance(type.element_type, ElementType) or type.element_type.is_complex:
        return None
    axis = op["iota_dimension"]
    sizes = [-1 if at == axis else 1 for at in range(type.rank)]
    column = np.arange(type.static_shape[axis]).reshape(sizes)
    return np.broadcast_to(column, type.static_shape).astype(type.element_type.dtype)


def _elementwise(op: Op, arrays: list[Array]) -> Array | None:
    elements = []
    for index, value in enumerate(op.operands):
        element = element_type(value)
        if not isinstance(element, ElementType) or not _is_followed(element):
            return None
        elements.append((parameter(index, register_types(element)[0]),))
    result = op.results[0].tensor.element_type
    if not isinstance(result, ElementType) or not _is_followed(result):
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


def _is_followed(element: ElementType) -> bool:
    return element.is_boolean or (element.is_integer and element.bits >= 8) or (element.is_float and element.bits >= 32)


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
    """Return the slice of each process; starts are clamped. Source: specification, dynamic_slice."""
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


def _transposed(op: Op, arrays: list[Array]) -> Array:
    return arrays[0].transpose(0, *(axis + 1 for axis in op["permutation"]))


def _reversed(op: Op, arrays: list[Array]) -> Array:
    flipped: Array = np.flip(arrays[0], tuple(axis + 1 for axis in op["dimensions"]))
    return flipped


def _reduced(op: Op, arrays: list[Array]) -> Array | None:
    """Reduce integers or booleans, for which the order does not matter; None for floats."""
    monoid = monoid_of(op.regions[0])
    fold = None if monoid is None else _FOLDS.get(monoid.kind)
    if fold is None or len(arrays) != 2 or arrays[0].dtype.kind == "f":
        return None
    array, initial = arrays
    axes = tuple(axis + 1 for axis in op["dimensions"])
    initial = initial.reshape(len(initial), *[1] * (array.ndim - len(axes) - 1))
    folded: Array = fold(fold.reduce(array, axis=axes, dtype=array.dtype), initial).astype(array.dtype)
    return folded


_FOLDS: dict[str, np.ufunc] = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_MOVES: dict[str, Callable[[Op, list[Array]], Array | None]] = {
    "stablehlo.reshape": _reshaped,
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.slice": _sliced,
    "stablehlo.dynamic_slice": _dynamically_sliced,
    "stablehlo.concatenate": _concatenated,
    "stablehlo.transpose": _transposed,
    "stablehlo.reverse": _reversed,
    "stablehlo.reduce": _reduced,
}
