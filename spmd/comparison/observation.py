"""What a side computes, what that would be in 64-bit floats, and how far rounding can take each from what is meant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from spmd.comparison.bounds import Bounds
from spmd.comparison.distance import Distance, farthest, of_largest
from spmd.comparison.formats import as_wide, is_inexact
from spmd.comparison.sides import Side, function_of
from spmd.errors import SpmdError
from spmd.ir import Value
from spmd.support.arrays import Array

#: Without bounds, units in the last place of an array's largest element up to which a difference passes for rounding.
_OF_LARGEST = 256.0


@dataclass(frozen=True)
class Observation:
    """A value of one side, with a leading axis of processes: as `computed`, and as it is in 64-bit floats.

    `bound` and `wide_bound` are how far each may be from the real number that is meant, element by element. Without
    bounds `wide` is None, and `bound` a number for all elements.
    """

    computed: Array
    bound: Array | float
    wide: Array | None = None
    wide_bound: Array | float = 0.0

    def map(self, function: Callable[[Array], Array]) -> Observation:
        """Return the observation of what `function` makes of each array."""
        arrays = (self.computed, self.bound, self.wide, self.wide_bound)
        return Observation(*(function(each) if isinstance(each, np.ndarray) else each for each in arrays))  # type: ignore[arg-type]


def observe(side: Side, inputs: Sequence[Array], values: Sequence[Value] = ()) -> list[Observation]:
    """The results of a side, or `values` of its function's own block, on `inputs` with a leading axis of processes."""
    computed = side.run(inputs, values)
    of = values or side.function.body.terminator.operands
    try:
        bounds = _bounded(side, inputs, of, in_wide=False)
        wide = _bounded(side, inputs, of, in_wide=True)
    except SpmdError:  # an op in it has no meaning in 64-bit floats
        return [Observation(array, of_largest(array, _OF_LARGEST / 2)) for array in computed]
    count = len(computed)
    return [Observation(array, bounds[count + at], wide[at], wide[count + at]) for at, array in enumerate(computed)]


def _bounded(side: Side, inputs: Sequence[Array], of: Sequence[Value], *, in_wide: bool) -> list[Array]:
    """The values in 64-bit floats, and then their bounds."""
    side, body = side.plain(), side.function.body
    function = function_of(Bounds(side.grid.size, in_wide).function(body, of))
    # By NumPy: it runs once, and to make native code of ten ops for each takes longer.
    wide = replace(side, function=function, peer=None, backends=("numpy",))
    arrays = [
        as_wide(array) if is_inexact(argument.type) else array
        for array, argument in zip(inputs, body.arguments, strict=True)
    ]
    return wide.run(arrays)


def parting(left: Observation, right: Observation, tolerance: float = 1.0) -> tuple[int, Distance] | None:
    """The process and the element at which two observations of one value are farthest apart; None where they are equal.

    They part (a share of more than 1) where what was computed differs by more than `tolerance` times both bounds: one
    was not computed as it says; or where they differ in 64-bit floats by more than rounding there explains: they
    compute different things.
    """
    found = farthest(left.computed, right.computed, tolerance * (np.asarray(left.bound) + right.bound))
    wide = wide_parting(left, right, tolerance)
    if wide is None or wide[1].share <= 1 or (found is not None and found[1].share > 1):
        return found
    return wide


def wide_parting(left: Observation, right: Observation, tolerance: float = 1.0) -> tuple[int, Distance] | None:
    """The same of the values in 64-bit floats alone; None, too, where an op has no meaning there."""
    if left.wide is None or right.wide is None:
        return None
    return farthest(left.wide, right.wide, tolerance * (np.asarray(left.wide_bound) + right.wide_bound), wide=True)
