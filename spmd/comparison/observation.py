"""What a side computes, what that would be in 64-bit floats, and how far rounding can take each from what is meant."""

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
#: Without bounds, units in the last place of an array's largest element up to which a difference passes for rounding.
_OF_LARGEST = 256.0
#: Of how many values bounds are worked out at first; of more, when these have not been enough.
_AT_FIRST = 8


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


@dataclass
class Observed:
    """The results of both sides, or `values` of their own blocks, on inputs with a leading axis of processes.

    Bounds are worked out when they are asked for, of some values at a time, and of none that is the same bit by bit.
    What is one function of the same inputs on both is computed in 64-bit floats but once.
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
        """What value number `at` is on both sides."""
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
        """Works out the bounds of some values; None where an op of theirs has none."""
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
        """What is computed of values of both sides; None where an op of theirs has no meaning in 64-bit floats."""
        try:
            of = [[values[at] for at in places] for values in self._of]
            ours = computed(self.sides[0], self.inputs[0], of[0])
            return [ours, ours if self._is_one else computed(self.sides[1], self.inputs[1], of[1])]
        except SpmdError:
            return None


def _is_same(left: Array, right: Array) -> bool:
    """Whether two arrays are equal bit by bit."""
    return left.shape == right.shape and left.dtype == right.dtype and left.tobytes() == right.tobytes()


def _own_bounds(side: Side, inputs: Sequence[Array], of: Sequence[Value]) -> list[Array]:
    """Bounds of the values in the program's own types."""
    side = side.plain()
    return wide_runner(side, Bounds(side.grid.size, side.meant, OWN).function(side.function.body, of))(inputs)


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
