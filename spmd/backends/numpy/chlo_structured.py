"""CHLO's structured ops: top_k, ragged_dot and scan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

import numpy as np

from spmd.backends.kernels import Context, Kernel, kernel
from spmd.backends.numpy.pointwise import compute_dtype, element_of
from spmd.backends.numpy.regions import Fold, Loop, running_loop_of, with_signs_of_zeros
from spmd.dialects.structs import DotDimensionNumbersAttr, RaggedDotDimensionNumbersAttr
from spmd.ir import Op
from spmd.runtime.process import Process
from spmd.support.arrays import Array, DType, Results, bits_dtype

# --- top_k -----------------------------------------------------------------------------------------------------------


@kernel("chlo.top_k")
def top_k(op: Op, context: Context) -> Kernel:
    """Return the k largest entries along the last dimension and their indices; the first of equal ones comes first.

    Floats are in total order: NaN above infinity, +0 above -0.
    """
    operand = op.operands[0].tensor
    element = element_of(op.operands[0])
    size = operand.static_shape[-1]
    count = min(op["k"], size)
    key = _descending_key(operand.dtype, floating=element.is_float)
    index_dtype = op.results[1].tensor.dtype

    def call(x: Array) -> tuple[Array, Array]:
        indices = np.argsort(key(x), axis=-1, kind="stable")[..., :count]
        return np.take_along_axis(x, indices, -1), indices.astype(index_dtype)

    return Kernel(call)


def _descending_key(dtype: DType, *, floating: bool) -> Callable[[Array], Array]:
    """Return a function to unsigned integers in descending order of the elements."""
    if dtype.itemsize == 1 and dtype.kind not in "iub":
        wide = np.dtype(np.float32 if floating else np.int8)
        inner = _descending_key(wide, floating=floating)
        return lambda x: inner(x.astype(wide))
    unsigned = bits_dtype(dtype)
    if dtype.kind in "ub" and not floating:
        return lambda x: ~x.view(unsigned)
    top = unsigned.type(1 << (8 * dtype.itemsize - 1))
    if not floating:
        return lambda x: ~(x.view(unsigned) ^ top)

    signed = np.dtype(f"i{dtype.itemsize}")
    last = 8 * dtype.itemsize - 1

    def key(x: Array) -> Array:
        below: Array = np.invert(x.view(signed) >> signed.type(last)).view(unsigned)  # negative numbers keep their bits
        below &= ~top
        below ^= x.view(unsigned)
        return below

    return key


# --- ragged_dot ------------------------------------------------------------------------------------------------------


@kernel("chlo.ragged_dot")
def ragged_dot(op: Op, context: Context) -> Kernel:
    """Return a dot product whose ragged dimension is split into groups of `group_sizes`.

    Ragged in a free dimension of lhs: each group of rows is multiplied by its own slice of rhs; rows of no group give
    zero. In a contracting dimension: one product per group. In a batching dimension: dot_general.
    """
    numbers: RaggedDotDimensionNumbersAttr = op["ragged_dot_dimension_numbers"]
    ragged = numbers.lhs_ragged_dimensions[0]
    types = [element_of(value) for value in (*op.operands[:2], op.results[0])]
    computed = np.result_type(*(compute_dtype(type) for type in types))
    shape, dtype = op.result.tensor.static_shape, op.result.tensor.dtype
    if ragged in numbers.lhs_batching_dimensions:
        run = _batched
    elif ragged in numbers.lhs_contracting_dimensions:
        run = _contracting
    else:
        run = _rows

    def call(lhs: Array, rhs: Array, group_sizes: Array) -> Array:
        result = np.zeros(shape, computed)
        run(lhs.astype(computed), rhs.astype(computed), group_sizes.astype(np.int64), numbers, result)
        return result.astype(dtype, copy=False)

    return Kernel(call)


def _dense(numbers: RaggedDotDimensionNumbersAttr) -> DotDimensionNumbersAttr:
    """Return the dimension numbers of the group products."""
    return DotDimensionNumbersAttr(
        numbers.lhs_batching_dimensions,
        numbers.rhs_batching_dimensions,
        numbers.lhs_contracting_dimensions,
        numbers.rhs_contracting_dimensions,
    )


def _batched(lhs: Array, rhs: Array, sizes: Array, numbers: RaggedDotDimensionNumbersAttr, out: Array) -> None:
    out[...] = _dot(lhs, rhs, _dense(numbers))


def _contracting(lhs: Array, rhs: Array, sizes: Array, numbers: RaggedDotDimensionNumbersAttr, out: Array) -> None:
    ragged, dimensions = numbers.lhs_ragged_dimensions[0], _dense(numbers)
    place = numbers.lhs_contracting_dimensions.index(ragged)
    other = numbers.rhs_contracting_dimensions[place]
    for group, (part, chosen) in enumerate(_groups(lhs, ragged, sizes)):
        out[group] = _dot(part, rhs if chosen is None else rhs[_along(other, chosen)], dimensions)


def _rows(lhs: Array, rhs: Array, sizes: Array, numbers: RaggedDotDimensionNumbersAttr, out: Array) -> None:
    ragged, group_axis = numbers.lhs_ragged_dimensions[0], numbers.rhs_group_dimensions[0]
    dimensions = _dense(numbers)
    taken = {*dimensions.lhs_batching_dimensions, *dimensions.lhs_contracting_dimensions}
    free = [axis for axis in range(lhs.ndim) if axis not in taken]
    result_axis = len(dimensions.lhs_batching_dimensions) + free.index(ragged)
    slices = np.moveaxis(rhs, group_axis, 0)
    within = DotDimensionNumbersAttr(
        dimensions.lhs_batching_dimensions,
        tuple(axis - (axis > group_axis) for axis in dimensions.rhs_batching_dimensions),
        dimensions.lhs_contracting_dimensions,
        tuple(axis - (axis > group_axis) for axis in dimensions.rhs_contracting_dimensions),
    )
    for group, (part, chosen) in enumerate(_groups(lhs, ragged, sizes)):
        target = out if chosen is None else out[_along(result_axis, chosen)]
        target += _dot(part, slices[group], within)


def _groups(lhs: Array, axis: int, sizes: Array) -> Iterator[tuple[Array, slice | None]]:
    """Yield the groups of lhs along `axis`: their elements, and their slice.

    If sizes vary along leading dimensions of lhs, groups are no slices: then lhs is masked with zeros, and the slice is
    None.
    """
    ends = np.cumsum(sizes, axis=-1)
    extent = lhs.shape[axis]
    if sizes.ndim == 1:
        for start, end in zip(ends - sizes, ends, strict=True):
            chosen = slice(min(int(start), extent), min(int(end), extent))
            yield lhs[_along(axis, chosen)], chosen
        return
    position = np.arange(extent).reshape([extent if k == axis else 1 for k in range(lhs.ndim)])
    for group in range(sizes.shape[-1]):
        end = ends[..., group].reshape(*sizes.shape[:-1], *[1] * (lhs.ndim - sizes.ndim + 1))
        size = sizes[..., group].reshape(end.shape)
        yield np.where((position >= end - size) & (position < end), lhs, lhs.dtype.type(0)), None


def _along(axis: int, chosen: slice) -> tuple[slice, ...]:
    return (slice(None),) * axis + (chosen,)


def _dot(lhs: Array, rhs: Array, numbers: DotDimensionNumbersAttr) -> Array:
    """Return the dot_general of arrays of one dtype."""
    left, left_free = _grouped(lhs, numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions)
    right, right_free = _grouped(rhs, numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions)
    batch = [lhs.shape[axis] for axis in numbers.lhs_batching_dimensions]
    return np.asarray(left @ right.swapaxes(-1, -2)).reshape(*batch, *left_free, *right_free)


def _grouped(array: Array, batching: Sequence[int], contracting: Sequence[int]) -> tuple[Array, list[int]]:
    free = [axis for axis in range(array.ndim) if axis not in batching and axis not in contracting]
    sizes = [array.shape[axis] for axis in free]
    batch = [array.shape[axis] for axis in batching]
    depth = prod(array.shape[axis] for axis in contracting)
    return array.transpose(*batching, *free, *contracting).reshape(*batch, prod(sizes), depth), sizes


# --- scan ------------------------------------------------------------------------------------------------------------


@kernel("chlo.scan")
def scan(op: Op, context: Context) -> Kernel:
    """Scan `dimension`: the body maps slices of the inputs and carries to slices of the outputs and carries.

    Running sums, products, extrema and the like use NumPy's accumulate; any other body runs slice by slice.
    """
    inputs = len(op.operand_group("inputs"))
    inits = len(op.operand_group("inits"))
    outputs = len(op.results) - inits
    axis, backwards = op["dimension"], op["is_reverse"]
    loop = running_loop_of(op.regions[0])
    if loop is not None and loop.direct and loop.compute.kind in "iuf":
        return Kernel(_accumulate(loop, axis, backwards))
    size_attribute = op["scan_dim_size"]
    extent = size_attribute if size_attribute is not None else op.operand_group("inputs")[0].tensor.static_shape[axis]
    order = range(extent - 1, -1, -1) if backwards else range(extent)
    types = [value.tensor for value in op.results[:outputs]]
    body = context.region(op, 0)

    def call(process: Process, *values: Array) -> Results:
        slices = [np.moveaxis(value, axis, 0) for value in values[:inputs]]
        carries, captured = values[inputs : inputs + inits], values[inputs + inits :]
        results = [np.empty(type.static_shape, type.dtype) for type in types]
        targets = [np.moveaxis(result, axis, 0) for result in results]
        for step in order:
            body_results = body(process, *(part[step] for part in slices), *carries, *captured)
            for target, value in zip(targets, body_results[:outputs], strict=True):
                target[step] = value
            carries = body_results[outputs:]
        every = (*results, *carries)
        return every[0] if len(every) == 1 else every

    return Kernel(call, needs_process=True, aliases=tuple(range(len(op.operands))))


def _accumulate(loop: Loop, axis: int, backwards: bool) -> Callable[[Array, Array], tuple[Array, Array]]:
    lead = (slice(None),) * axis

    def totals(loop: Loop, target: DType) -> Fold:
        def accumulate(ordered: Array, initial: Array) -> Array:
            begun = np.concatenate([np.expand_dims(initial, axis), ordered], axis)
            running: Array = loop.ufunc.accumulate(begun, axis, target)[(*lead, slice(1, None))]
            return running

        return accumulate

    accumulate = with_signs_of_zeros(loop, totals, loop.compute)

    def call(x: Array, initial: Array) -> tuple[Array, Array]:
        if not x.shape[axis]:
            return x, np.array(initial)
        running = accumulate(np.flip(x, axis) if backwards else x, np.asarray(initial))
        last = running.take(-1, axis)
        return (np.flip(running, axis) if backwards else running), last

    return call
