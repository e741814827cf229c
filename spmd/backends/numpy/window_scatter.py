"""select_and_scatter: StableHLO specification, "select_and_scatter" (the gradient of max pooling)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from spmd.analysis.reducers import binary_of
from spmd.analysis.windows import Windows, windows_of
from spmd.backends.kernels import Context, Kernel, kernel
from spmd.backends.numpy.data_movement import padder
from spmd.backends.numpy.elementwise_selection import selection
from spmd.backends.numpy.window import padding_of
from spmd.ir import Op
from spmd.support.arrays import Array

_COMPARISONS = {
    "GE": np.greater_equal,
    "GT": np.greater,
    "LE": np.less_equal,
    "LT": np.less,
}


@kernel("stablehlo.select_and_scatter")
def select_and_scatter(op: Op, context: Context) -> Kernel:
    """Scatter the source's element of each window to the operand element that the window selects.

    Padding is never selected. Equal offsets within their windows are distinct elements for distinct windows: all of
    them are scattered at once, offset by offset.
    """
    shape = op.operands[0].tensor.static_shape
    windows = windows_of(op)
    combine = _scattering(op, context)
    places = windows.places()
    covered = all(
        stride == size and count * size == extent
        for stride, size, count, extent in zip(
            windows.strides, windows.sizes, windows.counts, windows.padded_shape, strict=True
        )
    )
    padded_shape, counts = windows.padded_shape, windows.counts
    valid = None
    if windows.is_padded:
        mask = padding_of(windows)(np.ones(shape, np.bool_), np.asarray(False))
        valid = [mask[place] for place in places]
    unpad = padder(
        padded_shape, [-low for low, _ in windows.padding], [-high for _, high in windows.padding], (0,) * len(shape)
    ).call
    dtype = op.result.tensor.dtype  # the scatter region's dtype, to which source and initial value are promoted
    blend = selection(dtype)
    choose = _chooser(op, context, windows, valid)
    apart = all(stride >= size for stride, size in zip(windows.strides, windows.sizes, strict=True))

    def call(operand: Array, source: Array, init: Array, *captured: Array) -> Array:
        chosen, source = choose(operand, captured), source.astype(dtype, copy=False)
        start = np.asarray(init, dtype)
        result = np.empty(padded_shape, dtype)
        if not (apart and covered):
            result[...] = start
        added = combine(np.broadcast_to(start, counts), source, *captured) if apart else None
        # From the last offset to the first, an element meets the windows that selected it in order.
        for number, place in reversed(list(enumerate(places))):
            hit = chosen == number
            if valid is not None:
                hit &= valid[number]
            target = result[place]
            if added is not None:
                target[...] = blend(hit, added, start)
            else:
                target[...] = blend(hit, combine(target, source, *captured), target)
        return result if valid is None else unpad(result, start)

    return Kernel(call)


def _chooser(
    op: Op, context: Context, windows: Windows, valid: list[Array] | None
) -> Callable[[Array, Sequence[Array]], Array]:
    """Return a function of the operand and captured values; `valid`: which windows have each offset in bounds."""
    select, places, counts = _selection(op, context), windows.places(), windows.counts
    pad, blend_best = padding_of(windows), selection(op.operands[0].tensor.dtype)
    number_type = np.uint8 if len(places) < 256 else np.int64

    def choose(operand: Array, captured: Sequence[Array]) -> Array:
        """Return the number of the offset that each window selects."""
        padded = pad(operand, operand.dtype.type(0))
        chosen = np.zeros(counts, number_type)
        best = padded[places[0]]
        seen = None if valid is None else valid[0]
        for number, place in enumerate(places[1:], 1):
            here = padded[place]
            moves = np.logical_not(select(best, here, *captured))
            if valid is not None:
                assert seen is not None
                moves = (moves | ~seen) & valid[number]
                seen = seen | valid[number]
            # Offsets ascend: the last change is the largest.
            np.maximum(chosen, moves.view(np.uint8) * number_type(number), out=chosen)
            best = blend_best(moves, here, best)
        return chosen

    return choose


def _selection(op: Op, context: Context) -> Callable[..., Array]:
    """Return the select region as a function on arrays that returns booleans."""
    if binary_of(op.regions[0]) == "compare":
        compare = op.regions[0].block.terminator.operands[0].defining_op
        if compare is not None and compare["comparison_direction"] in _COMPARISONS:
            dtype = op.operands[0].tensor.dtype
            if dtype.kind in "fiu" and compare["compare_type"] != "TOTALORDER":
                ufunc = _COMPARISONS[compare["comparison_direction"]]
                return lambda selected, here, *_: ufunc(selected, here)
    function = context.vectorized(op, 0)
    return lambda *arrays: function(*arrays)[0]


def _scattering(op: Op, context: Context) -> Callable[..., Array]:
    function = context.vectorized(op, 1)
    return lambda *arrays: function(*arrays)[0]
