"""Reductions over whole dimensions: StableHLO specification, "reduce".

A region that is a monoid on each of its operands becomes NumPy's own reduction; one that finds the largest or smallest
value and its place, argmax and its kin. Any other is applied to whole slabs: one slab after another in the order of
the specification's own example where there are few, in a tree of neighbours where there are many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from collectives.monoids import UFUNCS
from collectives.reduction import MONOIDS, arithmetic
from collectives.stacked import fold_first
from spmd.analysis.constants import constant_scalar
from spmd.analysis.extrema import Extremum, counts_along, extremum_of, keeps_first
from spmd.analysis.order import IN_ORDER
from spmd.backends.numpy.core import Context, Kernel, kernel
from spmd.backends.numpy.pointwise import compute_dtype, is_sign_and_magnitude
from spmd.backends.numpy.reduction_plans import reducer
from spmd.backends.numpy.regions import (
    Fold,
    Loop,
    from_keys,
    has_minus_zero,
    loops_of,
    total_order,
    with_signs_of_zeros,
)
from spmd.backends.numpy.summation import summation
from spmd.ir import Op, Value, captured_values
from spmd.support.arrays import Array, DType, Results
from spmd.types import ElementType

#: A region on whole arrays.
Combine = Callable[..., tuple[Array, ...]]

#: Sums and products of so many floats are taken in the specification's own order, from the initial value on.
FEW = 16
_FEW_SLABS = 128
#: Rows of at most this many elements, if there are many, are searched side by side.
_SHORT_ROW, _MANY_ROWS, _ROWS_AT_A_TIME = 24, 1024, 8192


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
        if count == 1 and _changes_nothing(op, monoids[0]):
            kept = op.result.tensor.static_shape
            return Kernel(lambda operand, init: operand.reshape(kept), aliases=(0,))
        return each_alone([_monoid_reduction(op, index, monoids[index], shape, dimensions) for index in range(count)])
    general = _slab_reduction(op, context, shape, dimensions)
    if count == 2 and shape and prod(shape[axis] for axis in dimensions):
        extremum = extremum_of(op.regions[0])
        if extremum is not None:
            return _extremum_reduction(op, context, extremum, general)
    return applying(op, _single(general) if count == 1 else general)


def _in_order(op: Op, monoid: Loop) -> Kernel:
    """Element after element along the one dimension, from the first: the initial value is neutral."""
    fold, axis = arithmetic(MONOIDS[monoid.kind], op.operands[0].tensor.dtype), op["dimensions"][0]
    return Kernel(lambda operand, init: fold_first(np.moveaxis(operand, axis, 0), fold))


def each_alone(reducers: Sequence[Callable[[Array, Array], Array]]) -> Kernel:
    """The kernel of an op each of whose results follows from one operand and its initial value."""
    if len(reducers) == 1:
        return Kernel(reducers[0])
    count = len(reducers)
    return Kernel(
        lambda *arrays: tuple(
            one(operand, init) for one, operand, init in zip(reducers, arrays[:count], arrays[count:], strict=True)
        )
    )


def _changes_nothing(op: Op, monoid: Loop) -> bool:
    """Whether each element is alone, and the initial value leaves it as it is; 0 + -0 is +0."""
    operand, init = op.operands[:2]
    if any(operand.tensor.static_shape[axis] != 1 for axis in op["dimensions"]) or not monoid.direct:
        return False
    if monoid.kind == "add" and monoid.compute.kind in "fc":
        return False
    return operand.tensor.dtype == op.result.tensor.dtype == monoid.compute and is_identity(init, monoid)


def applying(op: Op, call: Callable[..., Results]) -> Kernel:
    """The kernel of an op that hands its region whole arrays: the region may hand any of them back."""
    return Kernel(call, aliases=tuple(range(len(op.operands) + len(captured_values(op)))))


def _single(call: Callable[..., tuple[Array, ...]]) -> Callable[..., Array]:
    return lambda *arrays: call(*arrays)[0]


def _nothing_to_reduce(op: Op, context: Context) -> Kernel:
    """No dimensions: each element is combined with the initial value once."""
    count, combine = len(op.results), context.vectorized(op, 0)
    dtypes = region_dtypes(op)

    def call(*arrays: Array) -> Results:
        inputs = [array.astype(dtype, copy=False) for array, dtype in zip(arrays, dtypes, strict=False)]
        inits = arrays[count : 2 * count]
        results = combine(*inits, *inputs, *arrays[2 * count :])
        return results[0] if count == 1 else results

    return applying(op, call)


def region_dtypes(op: Op) -> list[DType]:
    """Dtypes in which the region computes: its first arguments'."""
    return [argument.tensor.dtype for argument in op.regions[0].block.arguments[: len(op.results)]]


# --- monoids ---------------------------------------------------------------------------------------------------------


def _monoid_reduction(op: Op, index: int, loop: Loop, shape: tuple[int, ...], dimensions: Sequence[int]) -> Fold:
    """Function of (operand, initial value): converts, reduces, combines with the initial value, rounds once."""
    target = op.results[index].tensor.dtype
    widen = _widening(op.operands[index], loop)
    if loop.rounds:
        return _rounding_reduction(loop, widen, shape, dimensions, target)
    neutral = is_identity(op.operands[len(op.results) + index], loop)

    def make(loop: Loop, target: DType) -> Fold:
        run, ufunc = reducer(loop, shape, dimensions), loop.ufunc

        def call(operand: Array, init: Array) -> Array:
            total = run(operand if operand.dtype == loop.compute else widen(operand))
            if not neutral:
                total = ufunc(init.astype(loop.compute), total)
            return np.asarray(total).astype(target, copy=False)

        return call

    return with_signs_of_zeros(loop, make, target)


def _rounding_reduction(
    loop: Loop,
    widen: Callable[[Array], Array],
    shape: tuple[int, ...],
    dimensions: Sequence[int],
    target: DType,
) -> Fold:
    """Sums and products of floats: few elements from the initial value on, in row-major order; see `summation`."""
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
    """The complex product with each of its terms rounded: parts that cancel leave what any other plain product does."""
    real, imaginary = x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real
    out.real, out.imag = real, imaginary


def _widening(operand: Value, loop: Loop) -> Callable[[Array], Array]:
    """From the operand's type to the region's (to which it may be promoted), then to what is computed in."""
    source, element, compute = operand.tensor.dtype, loop.element.dtype, loop.compute
    if source == element:
        return lambda array: array.astype(compute, copy=False)
    return lambda array: array.astype(element).astype(compute, copy=False)


def is_identity(init: Value, loop: Loop) -> bool:
    """Whether an initial value is known to be the loop's neutral element: of sums of floats -0.0, not 0.0."""
    constant = constant_scalar(init)
    if constant is None:
        return False
    value = constant.astype(loop.compute)
    same_sign = loop.kind != "add" or loop.compute.kind != "f" or bool(np.signbit(value))
    return bool(value == loop.identity) and same_sign and loop.compute.kind != "c"


# --- the largest or smallest and its place ---------------------------------------------------------------------------


def _extremum_reduction(
    op: Op, context: Context, extremum: Extremum, general: Callable[..., tuple[Array, ...]]
) -> Kernel:
    values, places = op.operands[0], op.operands[1]
    shape, axes = values.tensor.static_shape, tuple(op["dimensions"])
    combine, element = context.vectorized(op, 0), _element(values)
    if extremum.total and not is_sign_and_magnitude(element):
        return applying(op, general)
    counted, first_kept = counts_along(places, axes), keeps_first(op, extremum)
    rows = prod(shape) // max(1, shape[axes[0]]) if len(axes) == 1 else 0
    first_nan = len(axes) == 1 and extremum.tie != "last"
    if rows >= _MANY_ROWS and counted and extremum.tie != "last" and _is_short_row(shape, axes[0]):
        find = _short_rows(extremum, shape, axes[0])
    elif len(axes) == 1 and (counted or extremum.tie in ("first", "last")):
        find = _by_position(extremum, shape, axes[0], counted)
    elif extremum.tie == "low":
        find, first_nan = _by_comparison(extremum, axes), False
    else:
        return applying(op, general)

    wide, is_float = compute_dtype(element), element.is_float and not extremum.total
    # Usual initial values lose against every element, or tie with equal ones at the index that is found anyway.
    worst = Loop(extremum.kind, element, UFUNCS[extremum.kind], wide)
    zero = Loop("add", _element(places), np.add, places.tensor.dtype)
    usual = is_identity(op.operands[2], worst) and is_identity(op.operands[3], zero) and not extremum.total
    neutral = counted and extremum.tie != "last" and usual

    def call(value: Array, place: Array, init_value: Array, init_place: Array) -> tuple[Array, ...]:
        if extremum.total:
            best, where = find(total_order(np.ascontiguousarray(value)), place)
            best = from_keys(best, value.dtype)
        else:
            best, where = find(value.astype(wide, copy=False), place)
            nan_wins = extremum.propagates_nan and first_nan
            if is_float and not nan_wins and np.isnan(best).any():
                return general(value, place, init_value, init_place)
            if is_float and _zeros_meet(best, value):
                if not first_kept:
                    return general(value, place, init_value, init_place)
                best = np.take_along_axis(value, np.expand_dims(where, axes[0]), axes[0]).squeeze(axes[0])
            best = best.astype(value.dtype, copy=False)
        return (best, where) if neutral else combine(init_value, init_place, best, where)

    return applying(op, call)


def _zeros_meet(best: Array, values: Array) -> bool:
    """Whether zeros of two signs may have met, which are equal: the region alone tells which of them it keeps."""
    return np.count_nonzero(best) != best.size and has_minus_zero(values)


def _element(value: Value) -> ElementType:
    element = value.tensor.element_type
    assert isinstance(element, ElementType)
    return element


Found = Callable[[Array, Array], tuple[Array, Array]]


def _by_position(extremum: Extremum, shape: tuple[int, ...], axis: int, counted: bool) -> Found:
    """argmax, whose first of several is what `first` wants, and `low` where indices count upwards."""
    argument = np.argmax if extremum.kind == "maximum" else np.argmin
    best_of = UFUNCS[extremum.kind].reduce
    last, size = extremum.tie == "last", shape[axis]
    flipped = (*(slice(None),) * axis, slice(None, None, -1))
    across = prod(shape[axis + 1 :]) > 1 and not last

    def first_true(hits: Array) -> Array:
        """Along `axis`, the first place that holds: hits are few, and of several the first is stored last.

        NumPy stores in the order of the index arrays' memory, hence the copies.
        """
        coordinates = [np.ascontiguousarray(c[::-1]) for c in np.nonzero(hits)]
        position = np.zeros((*shape[:axis], 1, *shape[axis + 1 :]), np.int64)
        position[tuple(c if k != axis else 0 for k, c in enumerate(coordinates))] = coordinates[axis]
        return position

    def call(value: Array, place: Array) -> tuple[Array, Array]:
        if across:
            best = best_of(value, axis=axis, keepdims=True)
            position = first_true(value == best if value.dtype.kind in "iu" else (value == best) | (value != value))
        else:
            position = argument(value[flipped] if last else value, axis=axis, keepdims=True)
            position = size - 1 - position if last else position
            best = np.take_along_axis(value, position, axis)
        at = position.astype(place.dtype) if counted else np.take_along_axis(place, position, axis)
        return best.squeeze(axis), at.squeeze(axis)

    return call


def _is_short_row(shape: tuple[int, ...], axis: int) -> bool:
    return 1 < shape[axis] <= _SHORT_ROW and prod(shape[axis + 1 :]) == 1


def _short_rows(extremum: Extremum, shape: tuple[int, ...], axis: int) -> Found:
    """Many short rows, transposed block by block: an earlier place weighs more, the heaviest hit is the first."""
    best_of = UFUNCS[extremum.kind].reduce
    size, kept = shape[axis], shape[:axis] + shape[axis + 1 :]
    weights = np.arange(size, 0, -1, dtype=np.uint8)[:, None]

    def call(value: Array, place: Array) -> tuple[Array, Array]:
        rows = value.reshape(-1, size)
        best, where = np.empty(len(rows), value.dtype), np.empty(len(rows), place.dtype)
        for start in range(0, len(rows), _ROWS_AT_A_TIME):
            block = slice(start, start + _ROWS_AT_A_TIME)
            columns = np.ascontiguousarray(rows[block].T)
            best_of(columns, axis=0, out=best[block])
            hits = columns == best[block]
            if value.dtype.kind == "f":
                hits |= columns != columns
            where[block] = size - np.maximum.reduce(hits.view(np.uint8) * weights, axis=0).astype(place.dtype)
        return best.reshape(kept), where.reshape(kept)

    return call


def _by_comparison(extremum: Extremum, axes: tuple[int, ...]) -> Found:
    """The lowest index among those whose value is the best one."""
    best_of = UFUNCS[extremum.kind].reduce

    def call(value: Array, place: Array) -> tuple[Array, Array]:
        best = best_of(value, axis=axes, keepdims=True)
        hits = value == best
        if value.dtype.kind == "f":
            hits |= value != value
        lowest = np.where(hits, place, np.iinfo(place.dtype).max).min(axis=axes)
        return best.squeeze(axes), lowest

    return call


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
    """`state` combined with the slabs of `stacks` (along their first axis), which keep their order."""
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
