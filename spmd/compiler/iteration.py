"""How NumPy walks over the operands of a step that broadcast.

NumPy's iterator runs a ufunc over stretches of as many elements as its buffer has, 8192 unless told otherwise. Where an
operand is broadcast within such a stretch it is first copied out into the buffer, which costs as much as the operation
itself. With a buffer no longer than the rows, the ufunc runs row by row over the arrays where they are: on rows of 512
elements or more that takes half the time. Shorter rows are still better copied, through a buffer that leaves room for
its neighbours in the first-level cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from spmd.compiler.steps import Step, static_shape

Shape = tuple[int, ...]

#: NumPy's own buffer, the shortest rows that are worth a call each, and the buffer for shorter ones, in elements.
_USUAL, _ROW, _SMALL = 8192, 512, 2048
#: Elements of a result from which setting the buffer, some microseconds, is worth it.
_WORTH = 1 << 18


def walk_rows(steps: list[Step]) -> list[Step]:
    """The same steps; the pointwise ones whose operands broadcast run with the buffer that suits their rows."""
    for step in steps:
        shapes = [static_shape(value) for value in (*step.outputs, *step.inputs)]
        if step.kernel.pointwise and len(step.outputs) == 1 and None not in shapes:
            whole, *operands = (shape for shape in shapes if shape is not None)
            step.kernel = replace(step.kernel, call=with_buffer(step.kernel.call, whole, operands))
    return steps


def with_buffer(call: Callable[..., Any], whole: Shape, operands: Sequence[Shape]) -> Callable[..., Any]:
    """`call`, which broadcasts arrays of `operands`' shapes to `whole`, run with the buffer that suits it."""
    size = _buffer(whole, operands)
    if size is None:
        return call

    def sized(*arrays: Any, **keywords: Any) -> Any:
        before = np.setbufsize(size)
        try:
            return call(*arrays, **keywords)
        finally:
            np.setbufsize(before)

    return sized


def _buffer(whole: Shape, operands: Sequence[Shape]) -> int | None:
    """The buffer's elements; None for NumPy's own."""
    row = min((_row(whole, shape) for shape in operands if shape not in ((), whole)), default=_USUAL)
    if row >= _USUAL or prod(whole) < _WORTH:
        return None
    return _ROW if row >= _ROW else _SMALL


def _row(whole: Shape, narrow: Shape) -> int:
    """Elements in the last dimensions of `whole` that are all of them broadcast in `narrow`, or none."""
    row, broadcast = 1, None
    for full, size in zip(reversed(whole), reversed(narrow), strict=False):
        if full == 1:
            continue
        if broadcast not in (None, size == 1):
            break
        row, broadcast = row * full, size == 1
    return row
