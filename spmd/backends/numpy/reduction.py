"""Reductions over whole dimensions: StableHLO specification, "reduce".

A region that is a monoid on each operand becomes NumPy's own reduction. Any other is applied to whole slabs: in the
order of the specification's example if there are few, as a tree of neighbours if many.

Sums and products of floats have one association, independent of layout and other dimensions. Up to 16 elements are
combined in row-major order, starting from the initial value. More are combined in order for products; sums are NumPy's
pairwise ones: up to 128 elements in eight accumulators, element k in accumulator k mod 8, combined as ((0 + 1) + (2 +
3)) + ((4 + 5) + (6 + 7)), and the remainder after the last eight in order; more than 128 as the sum of two halves, the
first rounded down to a multiple of eight. The initial value comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from collectives.reduction import MONOIDS, arithmetic
from collectives.stacked import fold_first
from spmd.analysis.constants import constant_scalar
from spmd.analysis.extrema import extremum_of, keeps_first
from spmd.analysis.order import IN_ORDER
from spmd.backends.kernels import Context, Kernel, kernel
from spmd.backends.numpy.pointwise import compute_dtype
from spmd.backends.numpy.regions import (
    Fold,
    Loop,
    loops_of,
    with_signs_of_zeros,
)
from spmd.ir import Op, Value, captured_values
from spmd.support.arrays import Array, DType, Results
from spmd.types import ElementType

#: A region on whole arrays.
Combine = Callable[..., tuple[Array, ...]]

#: Most floats that are summed or multiplied in the specification's order, from the initial value on.
FEW = 16
_FEW_SLABS = 128


@kernel("stablehlo.reduce")
def reduce(op: Op, context: Context) -> Kernel:
    count, dimensions = len(op.results), op["dimensions"]
    shape = op.operands[0].tensor.static_shape
    if not dimensions:
        return _nothing_to_reduce(op, context)
    monoids = loops_of(op.regions[0])
    if IN_ORDER in op.discardable and monoids is not None and count == len(dimensions) == 1:
        return _in_order(op, monoids[0])
    if monoids is not None:
        return each_alone([_monoid_reduction(op, index, monoids[index], shape, dimensions) for index in range(count)])
    extremum = extremum_of(op.regions[0]) if count == 2 and len(dimensions) == 1 and shape[dimensions[0]] else None
    if extremum is not None and keeps_first(op, extremum):
        return _first_extremum(op, extremum.kind)
    general = _slab_reduction(op, context, shape, dimensions)
    return applying(op, _single(general) if count == 1 else general)


def _in_order(op: Op, monoid: Loop) -> Kernel:
    """Return a sequential reduction along the one dimension, from the first element; the initial value is
    an identity.
    """
    fold, axis = arithmetic(MONOIDS[monoid.kind], op.operands[0].tensor.dtype), op["dimensions"][0]
    return Kernel(lambda operand, init: fold_first(np.moveaxis(operand, axis, 0), fold))


def each_alone(reducers: Sequence[Callable[[Array, Array], Array]]) -> Kernel:
    """Return a kernel for reductions whose results are independent."""
    if len(reducers) == 1:
        return Kernel(reducers[0])
    count = len(reducers)
    return Kernel(
        lambda *arrays: tuple(
            one(operand, init) for one, operand, init in zip(reducers, arrays[:count], arrays[count:], strict=True)
        )
    )


def applying(op: Op, call: Callable[..., Results]) -> Kernel:
    """Return the kernel of an op whose region is applied to whole arrays, any of which it may return."""
    return Kernel(call, aliases=tuple(range(len(op.operands) + len(captured_values(op)))))


def _single(call: Callable[..., tuple[Array, ...]]) -> Callable[..., Array]:
    return lambda *arrays: call(*arrays)[0]


def _nothing_to_reduce(op: Op, context: Context) -> Kernel:
    """Return a reduction of no dimensions: each element is combined with the initial value once."""
    count, combine = len(op.results), context.vectorized(op, 0)
    dtypes = region_dtypes(op)

    def call(*arrays: Array) -> Results:
        inputs = [array.astype(dtype, copy=False) for array, dtype in zip(arrays, dtypes, strict=False)]
        inits = arrays[count : 2 * count]
        results = combine(*inits, *inputs, *arrays[2 * count :])
        return results[0] if count == 1 else results

    return applying(op, call)


def region_dtypes(op: Op) -> list[DType]:
    """Return the dtypes in which the region computes: those of its first arguments."""
    return [argument.tensor.dtype for argument in op.regions[0].block.arguments[: len(op.results)]]


# --- monoids ---------------------------------------------------------------------------------------------------------


def _monoid_reduction(op: Op, index: int, loop: Loop, shape: tuple[int, ...], dimensions: Sequence[int]) -> Fold:
    """Return a function of (operand, initial value): converts, reduces, combines with the initial value,
    rounds once.
    """
    target = op.results[index].tensor.dtype
    widen = _widening(op.operands[index], loop)
    if loop.rounds:
        return _rounding_reduction(loop, widen, shape, dimensions, target)
    neutral = is_identity(op.operands[len(op.results) + index], loop)

    def make(loop: Loop, target: DType) -> Fold:
        reduce, ufunc, axes = loop.ufunc.reduce, loop.ufunc, tuple(dimensions)

        def call(operand: Array, init: Array) -> Array:
            wide = operand if operand.dtype == loop.compute else widen(operand)
            total = reduce(wide, axis=axes, initial=loop.identity, dtype=loop.compute)
            if not neutral:
                total = ufunc(init.astype(loop.compute), total)
            return np.asarray(total).astype(target, copy=False)

        return call

    return with_signs_of_zeros(loop, make, target)


def summation(loop: Loop, shape: Sequence[int], axes: Sequence[int]) -> Callable[[Array], Array]:
    """Return a function that reduces arrays of `shape` and compute dtype over `axes` in the association above.

    The identity for empty input. NumPy requires contiguous rows, from first to last element.
    """
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    kept_shape = tuple(shape[axis] for axis in kept)
    rows_shape = (prod(kept_shape), prod(shape[axis] for axis in axes))
    reduce, start = loop.ufunc.reduce, 1 if loop.kind == "multiply" else -0.0

    def call(array: Array) -> Array:
        rows = np.ascontiguousarray(array.transpose([*kept, *sorted(axes)])).reshape(rows_shape)
        if loop.kind == "multiply" or rows.dtype.kind != "c":
            return np.asarray(reduce(rows, axis=1, initial=start)).reshape(kept_shape)
        total = np.empty(rows_shape[0], rows.dtype)
        total.real, total.imag = (reduce(part, axis=1, initial=start) for part in (rows.real, rows.imag))
        return total.reshape(kept_shape)

    return call


def _rounding_reduction(
    loop: Loop,
    widen: Callable[[Array], Array],
    shape: tuple[int, ...],
    dimensions: Sequence[int],
    target: DType,
) -> Fold:
    """Return a sum or product of floats: few elements in row-major order, from the initial value on."""
    kept = [axis for axis in range(len(shape)) if axis not in dimensions]
    order, kept_shape = [*sorted(dimensions), *kept], tuple(shape[axis] for axis in kept)
    slabs = prod(shape[axis] for axis in dimensions)
    run, ufunc = summation(loop, shape, dimensions), loop.ufunc
    step = _plain_product if loop.multiplies_complex else ufunc

    def in_order(operand: Array, init: Array) -> Array:
        total = np.broadcast_to(init, kept_shape).astype(loop.compute)
        for part in widen(operand.transpose(order)).reshape(slabs, *kept_shape):
            step(total, part, out=total)
        return total.astype(target, copy=False)

    def at_once(operand: Array, init: Array) -> Array:
        total = ufunc(init.astype(loop.compute), run(widen(operand)))
        return np.asarray(total).astype(target, copy=False)

    return in_order if slabs <= FEW else at_once


def _plain_product(x: Array, y: Array, out: Array) -> None:
    """Store the complex product with each term rounded, so that cancellation is exact."""
    real, imaginary = x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real
    out.real, out.imag = real, imaginary


def _widening(operand: Value, loop: Loop) -> Callable[[Array], Array]:
    """Return a conversion of the operand to the region's type (possibly promoted), then to the compute dtype."""
    source, element, compute = operand.tensor.dtype, loop.element.dtype, loop.compute
    if source == element:
        return lambda array: array.astype(compute, copy=False)
    return lambda array: array.astype(element).astype(compute, copy=False)


def is_identity(init: Value, loop: Loop) -> bool:
    """Return whether an initial value is known to be the loop's identity: -0.0, not 0.0, for sums of floats."""
    constant = constant_scalar(init)
    if constant is None:
        return False
    value = constant.astype(loop.compute)
    same_sign = loop.kind != "add" or loop.compute.kind != "f" or bool(np.signbit(value))
    return bool(value == loop.identity) and same_sign and loop.compute.kind != "c"


# --- argmax and argmin -----------------------------------------------------------------------------------------------


def _first_extremum(op: Op, kind: str) -> Kernel:
    """Return the first greatest or least float, or NaN, and its index along the one dimension."""
    axis, index_dtype = op["dimensions"][0], op.results[1].tensor.dtype
    element = op.operands[0].tensor.element_type
    assert isinstance(element, ElementType)
    find, wide = np.argmax if kind == "maximum" else np.argmin, compute_dtype(element)

    def call(values: Array, *_: Array) -> tuple[Array, Array]:
        where = find(values.astype(wide, copy=False), axis=axis, keepdims=True)
        best = np.take_along_axis(values, where, axis)
        return best.squeeze(axis), where.squeeze(axis).astype(index_dtype)

    return Kernel(call)


# --- any region ------------------------------------------------------------------------------------------------------


def _slab_reduction(
    op: Op, context: Context, shape: tuple[int, ...], dimensions: Sequence[int]
) -> Callable[..., tuple[Array, ...]]:
    combine, count = context.vectorized(op, 0), len(op.results)
    kept = [axis for axis in range(len(shape)) if axis not in dimensions]
    order = [*sorted(dimensions), *kept]
    slabs = prod(shape[axis] for axis in dimensions)
    kept_shape = tuple(shape[axis] for axis in kept)
    dtypes = region_dtypes(op)

    def call(*arrays: Array) -> tuple[Array, ...]:
        inits, captured = arrays[count : 2 * count], arrays[2 * count :]
        state = tuple(
            np.broadcast_to(init, kept_shape).astype(dtype) for init, dtype in zip(inits, dtypes, strict=True)
        )
        stacks = tuple(
            array.transpose(order).reshape(slabs, *kept_shape).astype(dtype, copy=False)
            for array, dtype in zip(arrays[:count], dtypes, strict=False)
        )
        return fold(combine, state, stacks, captured)

    return call


def fold(
    combine: Combine, state: tuple[Array, ...], stacks: tuple[Array, ...], captured: Sequence[Array]
) -> tuple[Array, ...]:
    """Return `state` combined with the slabs of `stacks` (along their first axis), in order."""
    slabs = len(stacks[0])
    if slabs <= _FEW_SLABS:
        for index in range(slabs):
            state = combine(*state, *(stack[index] for stack in stacks), *captured)
        return state
    while slabs > 1:
        paired = slabs // 2 * 2
        halves = combine(*(stack[0:paired:2] for stack in stacks), *(stack[1:paired:2] for stack in stacks), *captured)
        if paired < slabs:
            halves = tuple(np.concatenate([half, stack[paired:]]) for half, stack in zip(halves, stacks, strict=True))
        stacks, slabs = halves, (slabs + 1) // 2
    return combine(*state, *(stack[0] for stack in stacks), *captured)
