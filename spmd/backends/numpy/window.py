"""Reductions over sliding windows: StableHLO specification, "reduce_window".

A monoid is reduced dimension by dimension, and along each by doubling, so that a window of w elements costs log2(w)
passes. Any other region is applied for each window offset to all windows at once; windows that form prefix sums use an
associative scan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

import numpy as np

from spmd.analysis.windows import Windows, windows_of
from spmd.backends.kernels import Context, Kernel, kernel
from spmd.backends.numpy.data_movement import padder
from spmd.backends.numpy.reduction import applying, each_alone, is_identity, region_dtypes
from spmd.backends.numpy.regions import Fold, Loop, loops_of, with_signs_of_zeros
from spmd.ir import Op
from spmd.support.arrays import Array, DType, Results

#: A region on whole arrays.
Combine = Callable[..., tuple[Array, ...]]

#: Largest window that is combined in the specification's order if the order matters.
FEW = 16


def padding_of(windows: Windows) -> Callable[[Array, Array], Array]:
    """Return a function of (operand, value) to the padded array that windows slide over."""
    if not windows.is_padded:
        return lambda operand, value: operand
    low, high = [pair[0] for pair in windows.padding], [pair[1] for pair in windows.padding]
    call: Callable[[Array, Array], Array] = padder(
        windows.shape, low, high, [step - 1 for step in windows.base_dilations]
    ).call
    return call


@kernel("stablehlo.reduce_window")
def reduce_window(op: Op, context: Context) -> Kernel:
    windows = windows_of(op)
    monoids = loops_of(op.regions[0])
    if monoids is not None:
        return each_alone([_monoid_windows(op, index, windows, loop) for index, loop in enumerate(monoids)])
    return applying(op, _general_windows(op, context, windows))


# --- monoids ---------------------------------------------------------------------------------------------------------


def _monoid_windows(op: Op, index: int, windows: Windows, loop: Loop) -> Fold:
    """Return a function of (operand, initial value); the latter is also the padding."""
    target, init = op.results[index].tensor.dtype, op.operands[len(op.results) + index]
    neutral = is_identity(init, loop)
    if 0 in windows.counts:
        return lambda operand, init: np.empty(windows.counts, target)
    if loop.rounds and prod(windows.sizes) <= FEW:
        return _place_by_place(windows, loop, target, neutral)
    return with_signs_of_zeros(loop, partial(_all_windows, windows=windows, neutral=neutral), target)


def _all_windows(loop: Loop, target: DType, *, windows: Windows, neutral: bool) -> Fold:
    ufunc, compute = loop.ufunc, loop.compute
    pad, steps = padding_of(windows), [_along(windows, loop, axis) for axis in _cheapest_order(windows)]

    def call(operand: Array, init: Array) -> Array:
        start = init.astype(compute)
        array = pad(operand.astype(compute, copy=False), start)
        for step in steps:
            array = step(array)
        if not neutral:
            array = ufunc(start, array)
        elif array is operand or array.base is not None:
            array = array.copy()
        return array.astype(target, copy=False)

    return call


def _place_by_place(windows: Windows, loop: Loop, target: DType, neutral: bool) -> Fold:
    """Return small windows combined in row-major order, from the initial value on."""
    compute, ufunc = loop.compute, loop.ufunc
    pad, places, counts = padding_of(windows), windows.places(), windows.counts
    first = 1 if neutral else 0

    def call(operand: Array, init: Array) -> Array:
        start = init.astype(compute)
        array = pad(operand.astype(compute, copy=False), start)
        total = array[places[0]].copy() if neutral else np.broadcast_to(start, counts).copy()
        for place in places[first:]:
            ufunc(total, array[place], out=total)
        return total.astype(target, copy=False)

    return call


def _cheapest_order(windows: Windows) -> list[int]:
    """Return the dimensions with windows or strides, those that shrink the array most first, independent of
    its size.
    """
    active = [axis for axis in range(windows.rank) if windows.sizes[axis] != 1 or windows.strides[axis] != 1]
    return sorted(active, key=lambda axis: (-windows.strides[axis], -axis))


def _along(windows: Windows, monoid: Loop, axis: int) -> Callable[[Array], Array]:
    """Return a function that reduces all windows along one dimension."""
    size, stride, dilation = windows.sizes[axis], windows.strides[axis], windows.window_dilations[axis]
    count, ufunc, identity = windows.counts[axis], monoid.ufunc, monoid.identity
    lead = (slice(None),) * axis

    def part(array: Array, start: int, length: int, step: int) -> Array:
        taken: Array = array[(*lead, slice(start, start + (length - 1) * step + 1, step) if length else slice(0, 0))]
        return taken

    if size == 0:
        return lambda array: np.full((*array.shape[:axis], count, *array.shape[axis + 1 :]), identity, array.dtype)

    def doubling(array: Array) -> Array:
        """Reduce by doubling: `level` holds windows of 1, 2, 4, ... elements at stride 1, from which the size is
        composed.
        """
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


# --- any region ------------------------------------------------------------------------------------------------------


def _general_windows(op: Op, context: Context, windows: Windows) -> Callable[..., Results]:
    combine, count = context.vectorized(op, 0), len(op.results)
    dtypes = region_dtypes(op)
    shape, pad = windows.counts, padding_of(windows)
    running = windows.cumulative_axis()
    if running is not None and running[1] and prod(windows.sizes) <= FEW:
        running = None  # the reverse is not the specification's order
    places = [] if running is not None else windows.places()

    def call(*arrays: Array) -> Results:
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
    """Return sequential prefix sums along the first axis."""
    steps = []
    for index in range(len(stacks[0])):
        state = combine(*state, *(stack[index] for stack in stacks), *captured)
        steps.append(state)
    return tuple(np.stack(totals) for totals in zip(*steps, strict=True))


def scan(combine: Combine, stacks: tuple[Array, ...], captured: Sequence[Array]) -> tuple[Array, ...]:
    """Return prefix sums of an associative function along the first axis, in about 2n applications and log2(n) steps.

    Neighbours are combined in pairs; sums of the pairs are those at odd indices; an even index combines its left
    neighbour's sum with its own element.
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
