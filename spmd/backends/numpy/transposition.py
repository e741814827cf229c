"""Transposes that move memory.

A transposed view costs nothing, but whoever walks over it pays: NumPy goes along the result's rows, each element of
which lies in another line of the operand. Where the distance between them is a power of two, as sizes mostly are, all
these lines fall into a few places of the cache, and reading takes twenty times as long as it should. Here a strip of
the operand at a time is copied to a buffer whose rows are some elements longer, and read from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod

import numpy as np

from spmd.support.arrays import Array, DType

Copy = Callable[[Array], Array]
#: From a transposed view to an array of its shape.
Fill = Callable[[Array, Array], None]

#: A strip with its buffer fits a core's second-level cache.
_STRIP_BYTES = 1 << 19
#: Rows of a strip, where so many fit: they become stretches of a result's row.
_MOST_ROWS, _FEWEST_ROWS = 64, 16
#: Elements that make a buffer's rows longer, so that no two neighbours fall into the same place.
_APART = 16
#: Rows of a result that are so short are filled one column after another.
_SHORT = 8
#: The first-level cache, about, in bytes: a matrix that fits is read well in any order.
_NEAR = 1 << 16
#: Lines of the cache hold so many bytes, about; rows no longer than that cannot be read in any better way.
_LINE = 128


def transposer(shape: Sequence[int], permutation: Sequence[int], dtype: DType) -> Copy:
    """Function that copies an array of `shape` and `dtype` into a new one, its dimensions permuted."""
    out_shape = tuple(shape[axis] for axis in permutation)
    fill = _way(shape, permutation, dtype)

    def call(array: Array) -> Array:
        out = np.empty(out_shape, dtype)
        fill(array.transpose(permutation), out)
        return out

    return call


def _way(shape: Sequence[int], permutation: Sequence[int], dtype: DType) -> Fill:
    length = shape[permutation[-1]]
    beyond = prod(shape[permutation[-1] + 1 :]) * dtype.itemsize  # from one element of a result's row to the next
    if beyond < _LINE or beyond * length <= _NEAR or not prod(shape):
        return _plainly
    return _by_columns if length <= _SHORT else _by_strips(shape, permutation, dtype)


def _plainly(view: Array, out: Array) -> None:
    np.copyto(out, view)


def _by_columns(view: Array, out: Array) -> None:
    for column in range(out.shape[-1]):
        np.copyto(out[..., column], view[..., column])


def _by_strips(shape: Sequence[int], permutation: Sequence[int], dtype: DType) -> Fill:
    out_shape = tuple(shape[axis] for axis in permutation)
    cuts = list(_cuts(out_shape, permutation, dtype.itemsize))
    back = np.argsort(permutation)
    inner = prod(cuts[0][1][axis] for axis in back[permutation[-1] + 1 :])

    def fill(view: Array, out: Array) -> None:
        buffer = np.empty((prod(cuts[0][1]) // inner, inner + _APART), dtype)
        for index, extents in cuts:
            sizes = [extents[axis] for axis in back]  # of the block, in the operand's order
            block = buffer[: prod(sizes) // inner, :inner].reshape(sizes).transpose(permutation)
            np.copyto(block, view[index])
            np.copyto(out[index], block)

    return fill


def _cuts(
    out_shape: tuple[int, ...], permutation: Sequence[int], itemsize: int
) -> Iterator[tuple[tuple[slice, ...], tuple[int, ...]]]:
    """Blocks of the result that a strip holds, each as an index and its sizes; the first is the largest.

    Leading dimensions are taken one by one until the rest fits, but not those whose elements are neighbours in the
    operand; then the last one is cut.
    """
    last = permutation[-1]
    steps = list(out_shape)
    for axis, source in enumerate(permutation):
        if prod(steps) * itemsize <= _STRIP_BYTES or source > last:
            break
        steps[axis] = 1
    row_bytes = prod(steps[:-1]) * itemsize
    if prod(steps) * itemsize > _STRIP_BYTES:
        steps[-1] = min(steps[-1], max(_FEWEST_ROWS, min(_MOST_ROWS, _STRIP_BYTES // row_bytes)))
    for starts in product(*(range(0, size, step) for size, step in zip(out_shape, steps, strict=True))):
        stops = [min(start + step, size) for start, step, size in zip(starts, steps, out_shape, strict=True)]
        yield (
            tuple(slice(start, stop) for start, stop in zip(starts, stops, strict=True)),
            tuple(stop - start for start, stop in zip(starts, stops, strict=True)),
        )
