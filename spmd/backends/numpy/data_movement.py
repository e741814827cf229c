"""Data movement: StableHLO specification, the section of each op.

Results are views of the operand where possible, and their kernels say so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from spmd.backends.kernels import Context, Kernel, kernel
from spmd.dialects.shapes import bounds_of
from spmd.errors import CompileError, Diagnostic, ExecutionError
from spmd.ir import Op
from spmd.ir.attributes import DenseAttr, aligned
from spmd.support.arrays import Array
from spmd.support.rounding import narrowed
from spmd.types import TensorType

#: Elements of an iota per block of 64-bit integers, which bounds the memory of compilation.
_BLOCK = 1 << 16


def view(call: Callable[..., Array]) -> Kernel:
    """Return the kernel of an op whose result may alias its first operand."""
    return Kernel(call, aliases=(0,))


def constant_kernel(array: Array) -> Kernel:
    """Return the kernel of a constant result, which is read-only."""
    array = array.view()
    array.flags.writeable = False
    return Kernel(lambda *_: array, owned=False)


@kernel("stablehlo.constant")
def constant(op: Op, context: Context) -> Kernel:
    value = op["value"]
    if not isinstance(value, DenseAttr):
        raise CompileError(Diagnostic(op.location, f"the file has no resource {value.key}", op.name))
    return constant_kernel(aligned(value.array))


@kernel("stablehlo.iota")
def iota(op: Op, context: Context) -> Kernel:
    return constant_kernel(iota_array(op.result.tensor, op["iota_dimension"]))


def iota_array(type: TensorType, dimension: int, shape: Sequence[int] | None = None) -> Array:
    """Return each element's index along `dimension`, wrapped or rounded to the element type; a broadcast view."""
    shape = type.static_shape if shape is None else tuple(shape)
    size = shape[dimension]
    steps = np.empty(size, type.dtype)
    for start in range(0, size, _BLOCK):
        block = slice(start, min(start + _BLOCK, size))
        numbers = np.arange(block.start, block.stop, dtype=np.int64)
        if type.dtype.isbuiltin != 1 and type.dtype.name.startswith(("int", "uint")):
            numbers = numbers.astype(np.int8)  # ml_dtypes' small integers wrap from int8
        steps[block] = narrowed(numbers, type.dtype)
    return np.broadcast_to(steps.reshape([-1] + [1] * (len(shape) - dimension - 1)), shape)


@kernel("stablehlo.broadcast_in_dim")
def broadcast_in_dim(op: Op, context: Context) -> Kernel:
    result, source, dimensions = op.result.tensor, op.operands[0].tensor.static_shape, op["broadcast_dimensions"]
    shape = list(result.bounds or (None,) * result.rank)  # unknown sizes are None
    for dimension, size in zip(dimensions, source, strict=True):
        shape[dimension] = shape[dimension] if size == 1 else size
    shape = [size if known is None else known for known, size in zip(result.shape, shape, strict=True)]
    sizes = tuple(size for size in shape if size is not None)
    if len(sizes) < len(shape):
        raise CompileError(Diagnostic(op.location, f"the shape of {result} must be static or bounded", op.name))
    beyond = [(size, bound) for size, bound in zip(sizes, result.bounds or (), strict=False) if bound and size > bound]
    if beyond:
        raise CompileError(
            Diagnostic(op.location, "a size of {} is beyond the bound of {}".format(*beyond[0]), op.name)
        )
    return view(broadcaster(source, dimensions, sizes))


def broadcaster(source: tuple[int, ...], dimensions: Sequence[int], shape: tuple[int, ...]) -> Callable[[Array], Array]:
    """Return a function that views an array of shape `source` as `shape`; its dimension i becomes `dimensions[i]`."""
    order = sorted(range(len(dimensions)), key=dimensions.__getitem__)
    permutation = None if order == list(range(len(order))) else order
    spread = [1] * len(shape)
    for index, dimension in enumerate(dimensions):
        spread[dimension] = source[index]
    full, broadcast_to = tuple(spread), np.broadcast_to
    if permutation is not None:
        return lambda operand: broadcast_to(operand.transpose(permutation).reshape(full), shape)
    if not source and full == shape:
        return lambda operand: operand[(None,) * len(shape)]
    if full == shape:
        return lambda operand: operand.reshape(shape)
    if full == source or full == (1,) * (len(shape) - len(source)) + source:
        return lambda operand: broadcast_to(operand, shape)
    index_none = tuple(slice(None) if axis in set(dimensions) else None for axis in range(len(shape)))
    return lambda operand: broadcast_to(operand[index_none], shape)


@kernel("stablehlo.broadcast")
def broadcast(op: Op, context: Context) -> Kernel:
    shape, broadcast_to = op.result.tensor.static_shape, np.broadcast_to
    return view(lambda operand: broadcast_to(operand, shape))


@kernel("stablehlo.reshape")
def reshape(op: Op, context: Context) -> Kernel:
    shape = op.result.tensor.static_shape
    if not shape:
        only = (0,) * op.operands[0].tensor.rank
        return Kernel(lambda operand: operand[only])  # a scalar, not a view
    return view(lambda operand: operand.reshape(shape))


@kernel("stablehlo.transpose")
def transpose(op: Op, context: Context) -> Kernel:
    permutation = op["permutation"]
    return view(lambda operand: operand.transpose(permutation))


@kernel("stablehlo.slice")
def slice_(op: Op, context: Context) -> Kernel:
    bounds = zip(op["start_indices"], op["limit_indices"], op["strides"], strict=True)
    index = tuple(slice(*bound) for bound in bounds)
    return view(lambda operand: operand[index])


@kernel("stablehlo.reverse")
def reverse(op: Op, context: Context) -> Kernel:
    rank, flipped = op.operands[0].tensor.rank, set(op["dimensions"])
    index = tuple(slice(None, None, -1 if axis in flipped else 1) for axis in range(rank))
    return view(lambda operand: operand[index])


@kernel("stablehlo.concatenate")
def concatenate(op: Op, context: Context) -> Kernel:
    dimension, join = op["dimension"], np.concatenate
    if len(op.operands) == 1:
        return view(lambda operand: operand)
    return Kernel(lambda *operands, out=None: join(operands, dimension, out=out), accepts_out=True)


# --- pad -------------------------------------------------------------------------------------------------------------


@kernel("stablehlo.pad")
def pad(op: Op, context: Context) -> Kernel:
    low, high, interior = op["edge_padding_low"], op["edge_padding_high"], op["interior_padding"]
    if not any(low) and not any(high) and not any(interior):
        return view(lambda operand, value: operand)
    return padder(op.operands[0].tensor.static_shape, low, high, interior)


def padder(shape: tuple[int, ...], low: Sequence[int], high: Sequence[int], interior: Sequence[int]) -> Kernel:
    """Return a kernel on (operand, padding value): specification, "pad"; negative low and high crop."""
    sources, targets, padded = [], [], []
    for axes in zip(shape, low, high, interior, strict=True):
        source, target, size = _pad_axis(*axes)
        sources.append(source)
        targets.append(target)
        padded.append(size)
    source_index, target_index, result_shape = tuple(sources), tuple(targets), tuple(padded)
    empty, copyto = np.empty, np.copyto

    def call(operand: Array, value: Array, out: Array | None = None) -> Array:
        if out is None:
            out = empty(result_shape, operand.dtype)
        copyto(out, value)
        out[target_index] = operand[source_index]
        return out

    return Kernel(call, accepts_out=True)


def _pad_axis(size: int, low: int, high: int, interior: int) -> tuple[slice, slice, int]:
    """Return (source slice, destination slice, result size) along one axis."""
    step = interior + 1
    dilated = (size - 1) * step + 1 if size else 0
    result = max(0, low + dilated + high)
    first = max(0, -(low // step))  # first element with low + index * step >= 0
    last = min(size - 1, (result - 1 - low) // step)  # last element with low + index * step < result
    if last < first:
        return slice(0, 0), slice(0, 0), result
    start = low + first * step
    return slice(first, last + 1), slice(start, start + (last - first) * step + 1, step), result


# --- dynamic slices --------------------------------------------------------------------------------------------------


def clamped_index(limits: Sequence[int], sizes: Sequence[int]) -> Callable[..., tuple[slice, ...]]:
    """Return a function from start indices to slices of `sizes`, with each start clamped to [0, its limit]."""

    def index(*starts: Array) -> tuple[slice, ...]:
        first = [min(max(int(start), 0), limit) for start, limit in zip(starts, limits, strict=True)]
        return tuple(slice(start, start + size) for start, size in zip(first, sizes, strict=True))

    return index


def _limits(shape: Sequence[int], sizes: Sequence[int]) -> list[int]:
    return [dimension - size for dimension, size in zip(shape, sizes, strict=True)]


@kernel("stablehlo.dynamic_slice")
def dynamic_slice(op: Op, context: Context) -> Kernel:
    sizes = op["slice_sizes"]
    if not sizes:
        return view(lambda operand: operand)
    index = clamped_index(_limits(op.operands[0].tensor.static_shape, sizes), sizes)
    return view(lambda operand, *starts: operand[index(*starts)])


@kernel("stablehlo.dynamic_update_slice")
def dynamic_update_slice(op: Op, context: Context) -> Kernel:
    sizes = op.operands[1].tensor.static_shape
    if not sizes:
        return Kernel(lambda operand, update: update, aliases=(1,))
    index = clamped_index(_limits(op.operands[0].tensor.static_shape, sizes), sizes)
    copyto = np.copyto

    def call(operand: Array, update: Array, *starts: Array, out: Array | None = None) -> Array:
        if out is None:
            out = operand.copy()
        elif out is not operand:
            copyto(out, operand)
        out[index(*starts)] = update
        return out

    return Kernel(call, accepts_out=True, reuses=(0,))


# --- dimension sizes and the rest ------------------------------------------------------------------------------------


@kernel("stablehlo.get_dimension_size")
def get_dimension_size(op: Op, context: Context) -> Kernel:
    dimension, dtype, location = op["dimension"], op.result.tensor.dtype, op.location

    def call(operand: Array) -> Array:
        size = operand.shape[dimension]
        if size >= 2**31:
            text = f"dimension {dimension} has {size} elements, more than the result's i32 holds"
            raise ExecutionError(Diagnostic(location, text, "stablehlo.get_dimension_size"))
        return np.asarray(size, dtype)

    return Kernel(call)


@kernel("stablehlo.set_dimension_size")
def set_dimension_size(op: Op, context: Context) -> Kernel:
    """Return the first elements of a dimension, padded with zeros up to the dimension's bound."""
    dimension, location = op["dimension"], op.location
    types = op.operands[0].tensor, op.result.tensor
    bound = max(each[dimension] or 0 for type in types for each in (bounds_of(type), type.shape))

    def call(operand: Array, size: Array) -> Array:
        length, available = int(size), operand.shape[dimension]
        if not 0 <= length <= max(bound, available):
            message = f"size {length} of dimension {dimension} is not within its bound {max(bound, available)}"
            raise ExecutionError(Diagnostic(location, message, op.name))
        kept: Array = operand[(slice(None),) * dimension + (slice(0, length),)]
        if length > available:
            more = [(0, length - available if each == dimension else 0) for each in range(operand.ndim)]
            kept = np.pad(kept, more)
        return kept

    return view(call)


@kernel("stablehlo.torch_index_select")
def torch_index_select(op: Op, context: Context) -> Kernel:
    """Return result[..., index..., ...] along `dim`, batched over the first `batch_dims` dimensions."""
    dim, batch = op["dim"], op["batch_dims"]
    shape, index_shape = op.operands[0].tensor.static_shape, op.operands[1].tensor.static_shape
    result = op.result.tensor.static_shape
    limit = max(shape[dim] - 1, 0)
    if not batch:
        return Kernel(lambda operand, index: operand.take(index, axis=dim, mode="clip"))
    grids = list(np.ogrid[tuple(slice(size) for size in result)])
    lead = grids[:dim]
    trail = grids[dim + len(index_shape) - batch :]
    ones = (1,) * (dim - batch)
    wide = (*index_shape[:batch], *ones, *index_shape[batch:], *(1,) * (len(shape) - dim - 1))

    def call(operand: Array, index: Array) -> Array:
        places = np.clip(index, 0, limit).reshape(wide)
        selected: Array = operand[(*lead, places, *trail)]
        return selected

    return Kernel(call)
