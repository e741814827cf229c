"""Observed values of a side: as computed, in 64-bit floats, and the bounds of their rounding errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import is_

import numpy as np

from spmd.comparison.bounds import Bounds
from spmd.comparison.distance import Distance, farthest, of_largest
from spmd.comparison.perturbed import in_wide, wide_bounds
from spmd.comparison.precision import OWN
from spmd.comparison.sides import Side, wide_runner
from spmd.errors import SpmdError
from spmd.ir import Value
from spmd.support.arrays import Array

#: Bounds of one side: of what it computes, and of the same in 64-bit floats.
_Pair = tuple[Array | float, Array | float]
#: Units in the last place of an array's largest element that count as rounding if there are no bounds.
_OF_LARGEST = 256.0
#: Number of values whose bounds are computed at first; more if these do not suffice.
_AT_FIRST = 8


@dataclass(frozen=True)
class Observation:
    """A value of one side, with a leading axis of processes: as `computed`, and in 64-bit floats (`wide`).

    `bound` and `wide_bound` are how far each may be from the exact number, by element. Without bounds `wide` is None,
    and `bound` is one number for all elements.
    """

    computed: Array
    bound: Array | float
    wide: Array | None = None
    wide_bound: Array | float = 0.0

    def map(self, function: Callable[[Array], Array]) -> Observation:
        """Return the observation with `function` applied to each array."""
        arrays = (self.computed, self.bound, self.wide, self.wide_bound)
        return Observation(*(function(each) if isinstance(each, np.ndarray) else each for each in arrays))  # type: ignore[arg-type]


@dataclass
class Observed:
    """The results of both sides, or `values` of their blocks, on inputs with a leading axis of processes.

    Bounds are computed lazily, for several values at a time, and not for values that are equal bitwise. If both sides
    are one function of the same inputs, it is computed in 64-bit floats once.
    """

    sides: tuple[Side, Side]
    inputs: tuple[Sequence[Array], Sequence[Array]]
    values: tuple[Sequence[Value], Sequence[Value]] = ((), ())

    def __post_init__(self) -> None:
        of = zip(self.sides, self.inputs, self.values, strict=True)
        self._computed = [side.run(arrays, values) for side, arrays, values in of]
        results = [side.function.body.terminator.operands for side in self.sides]
        self._of = [values or each for values, each in zip(self.values, results, strict=True)]
        is_one = self.sides[0].function is self.sides[1].function and self.inputs[0] is self.inputs[1]
        self._is_one = is_one and all(map(is_, *self._of))
        self._wide = self._both(range(len(self._of[0])), in_wide)
        pairs = [zip(*arrays, strict=True) for arrays in (self._computed, self._wide) if arrays is not None]
        same = [all(_is_same(*pair) for pair in each) for each in zip(*pairs, strict=True)]
        self._differing = [at for at, is_same in enumerate(same) if not is_same]
        self._bounds: dict[int, tuple[_Pair, _Pair] | None] = {}

    def __iter__(self) -> Iterator[tuple[Observation, Observation]]:
        return map(self.pair, range(len(self._of[0])))

    def pair(self, at: int) -> tuple[Observation, Observation]:
        """Return the observations of value number `at` on both sides."""
        bounds: tuple[_Pair, _Pair] | None = ((0.0, 0.0), (0.0, 0.0))
        if at in self._differing:
            if at not in self._bounds:
                self._bound([each for each in self._differing if each >= at][: 2 * len(self._bounds) + _AT_FIRST])
            bounds = self._bounds[at]
        x, y = (each[at] for each in self._computed)
        if bounds is None or self._wide is None:
            return Observation(x, of_largest(x, _OF_LARGEST / 2)), Observation(y, of_largest(y, _OF_LARGEST / 2))
        (bound, wide_bound), (other, other_wide) = bounds
        ours, theirs = (each[at] for each in self._wide)
        return Observation(x, bound, ours, wide_bound), Observation(y, other, theirs, other_wide)

    def _bound(self, places: Sequence[int]) -> None:
        """Compute the bounds of some values; None if one of their ops has none."""
        own, wide = (None if self._wide is None else self._both(places, kind) for kind in (_own_bounds, wide_bounds))
        for number, at in enumerate(places):
            if own is None or wide is None:
                self._bounds[at] = None
                continue
            ours, theirs = ((one[number], other[number]) for one, other in zip(own, wide, strict=True))
            self._bounds[at] = ours, theirs

    def _both(
        self, places: Sequence[int], computed: Callable[[Side, Sequence[Array], Sequence[Value]], list[Array]]
    ) -> list[list[Array]] | None:
        """Return the results of `computed` for values of both sides; None if an op is not defined in 64-bit floats."""
        try:
            of = [[values[at] for at in places] for values in self._of]
            ours = computed(self.sides[0], self.inputs[0], of[0])
            return [ours, ours if self._is_one else computed(self.sides[1], self.inputs[1], of[1])]
        except SpmdError:
            return None


def _is_same(left: Array, right: Array) -> bool:
    """Return whether two arrays are equal bitwise."""
    return left.shape == right.shape and left.dtype == right.dtype and left.tobytes() == right.tobytes()


def _own_bounds(side: Side, inputs: Sequence[Array], of: Sequence[Value]) -> list[Array]:
    """Return bounds of the values in the program's own types."""
    side = side.plain()
    return wide_runner(side, Bounds(side.grid.size, side.meant, OWN).function(side.function.body, of))(inputs)


def parting(left: Observation, right: Observation, tolerance: float = 1.0) -> tuple[int, Distance] | None:
    """Return the process and the element at which two observations of a value differ most; None if they are equal.

    They differ beyond rounding (a share above 1) if the computed values do by more than `tolerance` times both bounds,
    so that one is computed wrongly, or if the values in 64-bit floats do by more than rounding explains, so that they
    mean different things.
    """
    found = farthest(left.computed, right.computed, tolerance * (np.asarray(left.bound) + right.bound))
    wide = wide_parting(left, right, tolerance)
    if wide is None or wide[1].share <= 1 or (found is not None and found[1].share > 1):
        return found
    return wide


def wide_parting(left: Observation, right: Observation, tolerance: float = 1.0) -> tuple[int, Distance] | None:
    """Return the same for the values in 64-bit floats only; None also if an op is not defined there."""
    if left.wide is None or right.wide is None:
        return None
    return farthest(left.wide, right.wide, tolerance * (np.asarray(left.wide_bound) + right.wide_bound), wide=True)
