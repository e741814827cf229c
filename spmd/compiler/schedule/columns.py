"""Units that fold dimensions before the last, a block of columns at a time.

A softmax over any dimension but the last goes down columns. Unit after unit each reads the whole array from memory
again; a block of columns with all that is folded stays in the cache from one unit to the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from spmd.analysis.affine import Affine, Variable
from spmd.compiler.schedule.collapse import collapse
from spmd.compiler.schedule.nest import Leaf, Load, Nest, Position, Stage, Store

#: Elements of a block of columns that are expected to stay in the cache, and of an array that does not.
_BLOCK, _LEAST = 1 << 16, 1 << 21
#: Columns of a block at least and at most, and how many are folded side by side.
_FEWEST, _MOST, _SIDE = 32, 512, 64


def column_block(shape: Sequence[int], folded: Sequence[int]) -> int | None:
    """How many columns are taken at a time where the dimensions `folded`, neighbours before the last, are folded.

    What lies behind these is columns. None where the array is small, or where no number divides the columns evenly,
    fills vectors and fits the cache.
    """
    columns = prod(shape[max(folded) + 1 :])
    rows = prod(shape[dimension] for dimension in folded)
    if prod(shape) < _LEAST:
        return None
    most = min(columns, _MOST, _BLOCK // rows)
    sizes = [size for size in range(_FEWEST, most + 1) if columns % size == 0 and size % min(_SIDE, columns) == 0]
    return max(sizes, default=_FEWEST if columns % _FEWEST == 0 and most >= _FEWEST else None)


def column_nest(nests: Sequence[Nest], shape: Sequence[int], folded: Sequence[int]) -> Nest | None:
    """The nests of units over `shape`, or over its columns, as one: its first loops count blocks of columns.

    None where a nest has other loops than one a dimension, or columns are not neighbours in memory.
    """
    nest = _together(nests, shape, folded)
    columns = prod(shape[max(folded) + 1 :])
    if nest is None:
        return None
    nest = collapse(nest)
    last = max(variable for stage in nest.stages for variable in stage.loops)
    size = column_block(shape, folded)
    if size is None or nest.extents[last] != columns:
        return None
    places = {variable: Affine.of(variable + 1) for variable in range(len(nest.extents))}
    places[last] += Affine.of(0).scaled(size)
    extents = [columns // size, *nest.extents]
    extents[last + 1] = size
    outer = (*(variable + 1 for variable in nest.outer), 0)
    return Nest(tuple(extents), tuple(_moved(stage, places) for stage in nest.stages), outer)


def _together(nests: Sequence[Nest], shape: Sequence[int], folded: Sequence[int]) -> Nest | None:
    """The nests as one whose first loops are those before the folded dimensions."""
    dimensions = [dimension for dimension, extent in enumerate(shape) if extent > 1]
    kept = [dimension for dimension in dimensions if dimension not in folded]
    stages = []
    for nest in nests:
        own = next((each for each in (dimensions, kept) if nest.extents == tuple(shape[d] for d in each)), None)
        if own is None or len(nest.stages) != 1:
            return None
        stages.append(_moved(nest.stages[0], {v: Affine.of(dimensions.index(d)) for v, d in enumerate(own)}))
    outer = tuple(variable for variable, dimension in enumerate(dimensions) if dimension < min(folded))
    return Nest(tuple(shape[dimension] for dimension in dimensions), tuple(stages), outer)


def _moved(stage: Stage, places: Mapping[Variable, Affine]) -> Stage:
    """The stage with its loop variables written as others."""

    def leaf(old: Leaf) -> Leaf:
        if isinstance(old, Load):
            return replace(old, address=old.address.replaced(places))
        return Position(old.form.replaced(places))

    def store(old: Store) -> Store:
        return replace(old, address=old.address.replaced(places))

    def variables(old: Sequence[Variable]) -> tuple[Variable, ...]:
        return tuple(sorted(new for variable in old for new, _ in places[variable].terms))

    moved = stage.with_places(leaf, store)
    kept, reduced = variables(stage.kept), variables(stage.reduced)
    return replace(moved, loops=(*kept, *reduced), reduced=reduced)
