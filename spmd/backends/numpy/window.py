"""Reductions over sliding windows: StableHLO specification, "reduce_window".

A window that holds everything up to its element is a running total and costs one pass. A monoid is reduced one
dimension after another, and along each by doubling, so that a window of w elements costs log2(w) passes. Any other
region goes over the places of the window, at each of them for all windows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from spmd.backends.numpy.core import Context, Kernel, kernel
from spmd.backends.numpy.data_movement import padder
from spmd.backends.numpy.reduction import FEW, applying, each_alone, fold_in_order, is_identity, region_dtypes
from spmd.backends.numpy.regions import Loop, loops_of
from spmd.dialects.shapes import dilated, window_count
from spmd.ir import Op

Array = np.ndarray[Any, Any]
#: A region on whole arrays.
Combine = Callable[..., tuple[Array, ...]]

#: Running sums of floats longer than this are added up in blocks, for the sake of rounding.
_BLOCK = 512
#: Elements that make a running total's row worth a call.
_WIDE = 256
#: Elements of all windows together that are as well added up in the specification's own order.
_SMALL = 4096


@dataclass(frozen=True)
class Windows:
    """Windows over a padded and dilated array: sizes, strides and dilations by dimension, and how many there are."""

    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    base_dilations: tuple[int, ...]
    window_dilations: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def padded_shape(self) -> tuple[int, ...]:
        return tuple(
            max(0, low + dilated(size, dilation) + high)
            for size, dilation, (low, high) in zip(self.shape, self.base_dilations, self.padding, strict=True)
        )

    @property
    def counts(self) -> tuple[int, ...]:
        """How many windows along each dimension."""
        reaches = map(dilated, self.sizes, self.window_dilations)
        return tuple(map(window_count, self.padded_shape, reaches, self.strides))

    @property
    def is_padded(self) -> bool:
        return any(low or high for low, high in self.padding) or any(step != 1 for step in self.base_dilations)

    def pad(self) -> Callable[[Array, Array], Array]:
        """Function of (operand, value): the array that windows slide over."""
        if not self.is_padded:
            return lambda operand, value: operand
        low, high = [pair[0] for pair in self.padding], [pair[1] for pair in self.padding]
        call: Callable[[Array, Array], Array] = padder(
            self.shape, low, high, [step - 1 for step in self.base_dilations]
        ).call
        return call

    def places(self) -> list[tuple[slice, ...]]:
        """For each place within a window, in row-major order: what all windows have there."""
        return [
            tuple(
                slice(k * dilation, k * dilation + (count - 1) * stride + 1, stride) if count else slice(0, 0)
                for k, dilation, count, stride in zip(
                    place, self.window_dilations, self.counts, self.strides, strict=True
                )
            )
            for place in product(*map(range, self.sizes))
        ]

    def running_axis(self) -> tuple[int, bool] | None:
        """(axis, backwards) when each window holds all up to its own element, or all from it on; else None."""
        wide = [axis for axis in range(self.rank) if self.sizes[axis] != 1]
        plain = all(step == 1 for step in (*self.strides, *self.base_dilations, *self.window_dilations))
        if len(wide) != 1 or not plain or any(any(pair) for k, pair in enumerate(self.padding) if k != wide[0]):
            return None
        (axis,) = wide
        low, high = self.padding[axis]
        if self.sizes[axis] < self.shape[axis] or not self.shape[axis]:
            return None
        if (low, high) == (self.sizes[axis] - 1, 0):
            return axis, False
        return (axis, True) if (low, high) == (0, self.sizes[axis] - 1) else None


def windows_of(op: Op, shape: tuple[int, ...]) -> Windows:
    """The windows of reduce_window or select_and_scatter."""
    ones = (1,) * len(shape)

    def given(name: str) -> tuple[int, ...]:
        value = op[name] if op.definition is not None and name in op.definition.attribute_table else None
        return ones if value is None else tuple(value)

    padding = op["padding"]
    pairs = ((0, 0),) * len(shape) if padding is None else tuple((int(low), int(high)) for low, high in padding)
    return Windows(
        shape,
        given("window_dimensions"),
        given("window_strides"),
        given("base_dilations"),
        given("window_dilations"),
        pairs,
    )


@kernel("stablehlo.reduce_window")
def reduce_window(op: Op, context: Context) -> Kernel:
    count = len(op.results)
    windows = windows_of(op, op.operands[0].tensor.static_shape)
    monoids = loops_of(op.regions[0])
    if monoids is not None:
        neutral = [is_identity(op.operands[count + index], monoid) for index, monoid in enumerate(monoids)]
        reducers = [
            _monoid_windows(windows, monoid, op.results[index].tensor.dtype, neutral[index])
            for index, monoid in enumerate(monoids)
        ]
        return each_alone(reducers)
    return applying(op, _general_windows(op, context, windows))


# --- monoids ---------------------------------------------------------------------------------------------------------


def _monoid_windows(
    windows: Windows, monoid: Loop, dtype: np.dtype[Any], neutral: bool
) -> Callable[[Array, Array], Array]:
    """Function of (operand, initial value), which is also what padding holds."""
    ufunc, compute = monoid.ufunc, monoid.compute
    running = windows.running_axis()
    in_order = running is not None and not running[1] and monoid.direct and neutral
    if monoid.rounds and not in_order:
        if prod(windows.sizes) <= FEW:
            return _place_by_place(windows, monoid, dtype, neutral)
        if prod(windows.sizes) * prod(windows.counts) <= _SMALL:
            return _all_at_once(windows, monoid, dtype)
    if running is not None and (neutral or monoid.idempotent):
        total = _running_total(monoid, *running)

        def accumulate(operand: Array, init: Array) -> Array:
            result = total(operand.astype(compute, copy=False))
            if not neutral:
                ufunc(result, init.astype(compute), out=result)
            return result.astype(dtype, copy=False)

        return accumulate
    pad, steps = windows.pad(), [_along(windows, monoid, axis) for axis in _cheapest_order(windows)]

    def call(operand: Array, init: Array) -> Array:
        start = init.astype(compute)
        array = pad(operand.astype(compute, copy=False), start)
        for step in steps:
            array = step(array)
        if not neutral:
            array = ufunc(start, array)
        elif array is operand or array.base is not None:
            array = array.copy()
        return array.astype(dtype, copy=False)

    return call


def _place_by_place(
    windows: Windows, monoid: Loop, dtype: np.dtype[Any], neutral: bool
) -> Callable[[Array, Array], Array]:
    """Few elements a window: in row-major order, each step rounded to the element type as the region rounds it."""
    compute = monoid.compute
    pad, places, counts = windows.pad(), windows.places(), windows.counts
    first = 1 if neutral else 0

    def call(operand: Array, init: Array) -> Array:
        start = init.astype(compute)
        array = pad(operand.astype(compute, copy=False), start)
        total = array[places[0]].copy() if neutral else np.broadcast_to(start, counts).copy()
        return fold_in_order(monoid, total, (array[place] for place in places[first:])).astype(dtype, copy=False)

    return call


def _all_at_once(windows: Windows, monoid: Loop, dtype: np.dtype[Any]) -> Callable[[Array, Array], Array]:
    """The same for few small windows: all their elements side by side, accumulated in the element type itself."""
    element, pad, counts, size = monoid.element.dtype, windows.pad(), windows.counts, prod(windows.sizes)

    def call(operand: Array, init: Array) -> Array:
        array = pad(operand.astype(element, copy=False), init.astype(element))
        between = [step * dilation for step, dilation in zip(array.strides, windows.window_dilations, strict=True)]
        apart = [step * stride for step, stride in zip(array.strides, windows.strides, strict=True)]
        held = as_strided(array, (*windows.sizes, *counts), (*between, *apart), writeable=False)
        column = np.empty((1 + size, *counts), element)
        column[0] = init
        column[1:] = held.reshape(size, *counts)
        total: Array = monoid.ufunc.accumulate(column, axis=0, dtype=element)[-1]
        return total.astype(dtype)

    return call


def _cheapest_order(windows: Windows) -> list[int]:
    """Dimensions that have windows or strides, those that shrink the array most first."""
    active = [axis for axis in range(windows.rank) if windows.sizes[axis] != 1 or windows.strides[axis] != 1]
    sizes, counts = windows.padded_shape, windows.counts
    return sorted(active, key=lambda axis: (counts[axis] / max(sizes[axis], 1), -axis))


def _along(windows: Windows, monoid: Loop, axis: int) -> Callable[[Array], Array]:
    """Reduces all windows along one dimension."""
    size, stride, dilation = windows.sizes[axis], windows.strides[axis], windows.window_dilations[axis]
    count, ufunc, identity = windows.counts[axis], monoid.ufunc, monoid.identity
    lead = (slice(None),) * axis

    def part(array: Array, start: int, length: int, step: int) -> Array:
        taken: Array = array[(*lead, slice(start, start + (length - 1) * step + 1, step) if length else slice(0, 0))]
        return taken

    if size == 0:
        return lambda array: np.full((*array.shape[:axis], count, *array.shape[axis + 1 :]), identity, array.dtype)
    if size <= 3 or size <= 2 * stride:

        def one_by_one(array: Array) -> Array:
            if size == 1:
                return part(array, 0, count, stride)
            total: Array = ufunc(part(array, 0, count, stride), part(array, dilation, count, stride))
            for place in range(2, size):
                ufunc(total, part(array, place * dilation, count, stride), out=total)
            return total

        return one_by_one

    def doubling(array: Array) -> Array:
        """`level` holds windows of 1, 2, 4, ... elements at stride 1; the wanted size is put together from them."""
        positions = (count - 1) * stride + 1 if count else 0
        level, width, covered = array, 1, 0
        total: Array | None = None
        while True:
            if size & width:
                piece = part(level, covered * dilation, positions, 1)
                total = piece if total is None else ufunc(total, piece)
                covered += width
            if width * 2 > size:
                break
            length = level.shape[axis] - width * dilation
            level = ufunc(part(level, 0, length, 1), part(level, width * dilation, length, 1))
            width *= 2
        assert total is not None
        return part(total, 0, count, stride)

    return doubling


def _running_total(monoid: Loop, axis: int, backwards: bool) -> Callable[[Array], Array]:
    """Function that gives a fresh array of running totals along `axis`."""
    accumulate, ufunc = monoid.ufunc.accumulate, monoid.ufunc
    lead = (slice(None),) * axis
    flip = (*lead, slice(None, None, -1))
    rounds = monoid.kind == "add" and monoid.compute.kind in "fc"

    def straight(array: Array) -> Array:
        """NumPy accumulates well along the last axis only: across wide rows, row by row; else along a copy."""
        last = array.ndim - 1
        if axis == last or array.size == 0:
            total: Array = accumulate(array, axis=axis, dtype=array.dtype)
            return total
        if array.size < _WIDE * array.shape[axis]:
            moved = accumulate(np.ascontiguousarray(array.swapaxes(axis, last)), axis=last, dtype=array.dtype)
            return np.ascontiguousarray(moved.swapaxes(axis, last))
        total = np.empty(array.shape, array.dtype)
        totals, rows = np.moveaxis(total, axis, 0), np.moveaxis(array, axis, 0)
        totals[0] = rows[0]
        for index in range(1, len(rows)):
            ufunc(totals[index - 1], rows[index], out=totals[index])
        return total

    def forward(array: Array) -> Array:
        size = array.shape[axis]
        if not rounds or size <= 2 * _BLOCK:
            return straight(array)
        blocks = size // _BLOCK
        whole = blocks * _BLOCK
        shape = (*array.shape[:axis], blocks, _BLOCK, *array.shape[axis + 1 :])
        result = np.empty(array.shape, array.dtype)
        inner = _running_total(monoid, axis + 1, False)(array[(*lead, slice(0, whole))].reshape(shape))
        before = forward(inner.take(-1, axis=axis + 1))
        inner[(*lead, slice(1, None))] += np.expand_dims(before[(*lead, slice(0, -1))], axis + 1)
        result[(*lead, slice(0, whole))] = inner.reshape((*array.shape[:axis], whole, *array.shape[axis + 1 :]))
        if whole < size:
            rest = straight(array[(*lead, slice(whole, None))])
            result[(*lead, slice(whole, None))] = ufunc(rest, before[(*lead, slice(-1, None))])
        return result

    return (lambda array: forward(array[flip])[flip]) if backwards else forward


# --- any region ------------------------------------------------------------------------------------------------------


def _general_windows(op: Op, context: Context, windows: Windows) -> Callable[..., Any]:
    combine, count = context.vectorized(op, 0), len(op.results)
    dtypes = region_dtypes(op)
    shape, pad = windows.counts, windows.pad()
    running = windows.running_axis()
    if running is not None and running[1] and prod(windows.sizes) <= FEW:
        running = None  # from the end on is not the order of the specification
    places = [] if running is not None else windows.places()

    def call(*arrays: Array) -> Any:
        inits, captured = arrays[count : 2 * count], arrays[2 * count :]
        operands = [array.astype(dtype, copy=False) for array, dtype in zip(arrays, dtypes, strict=False)]
        state = tuple(np.broadcast_to(init, shape).astype(dtype) for init, dtype in zip(inits, dtypes, strict=True))
        if running is not None:
            axis, backwards = running
            moved = tuple(np.moveaxis(operand, axis, 0)[:: -1 if backwards else 1] for operand in operands)
            ordered = tuple(np.moveaxis(part, axis, 0) for part in state)
            if len(moved[0]) <= FEW:
                totals = _step_by_step(combine, tuple(part[0] for part in ordered), moved, captured)
            else:
                totals = combine(*ordered, *scan(combine, moved, captured), *captured)
            results = tuple(np.moveaxis(total[:: -1 if backwards else 1], 0, axis) for total in totals)
        else:
            padded = [pad(operand, init.astype(operand.dtype)) for operand, init in zip(operands, inits, strict=True)]
            results = state
            for place in places:
                results = combine(*results, *(array[place] for array in padded), *captured)
        return results[0] if count == 1 else results

    return call


def _step_by_step(
    combine: Combine, state: tuple[Array, ...], stacks: tuple[Array, ...], captured: Sequence[Array]
) -> tuple[Array, ...]:
    """Running totals along the first axis, one element after another."""
    steps = []
    for index in range(len(stacks[0])):
        state = combine(*state, *(stack[index] for stack in stacks), *captured)
        steps.append(state)
    return tuple(np.stack(totals) for totals in zip(*steps, strict=True))


def scan(combine: Combine, stacks: tuple[Array, ...], captured: Sequence[Array]) -> tuple[Array, ...]:
    """Running totals along the first axis of an associative function, in about 2n applications and log2(n) steps.

    Neighbours are combined in pairs; the totals of the pairs are those of the odd places; each even place is its left
    neighbour's total combined with its own element.
    """
    size = len(stacks[0])
    if size < 2:
        return stacks
    paired = size // 2 * 2
    pairs = combine(*(stack[0:paired:2] for stack in stacks), *(stack[1:paired:2] for stack in stacks), *captured)
    odd = scan(combine, pairs, captured)
    left = tuple(total[: (size - 1) // 2] for total in odd)
    even = combine(*left, *(stack[2::2] for stack in stacks), *captured)
    results = []
    for stack, at_odd, at_even in zip(stacks, odd, even, strict=True):
        result = np.empty(stack.shape, stack.dtype)
        result[0], result[1::2], result[2::2] = stack[0], at_odd, at_even
        results.append(result)
    return tuple(results)
