"""Units that go over the same rows, one row at a time: a reduction with what feeds it and what follows it.

A softmax is a maximum, a sum and a quotient of each row. Run one after another each reads the whole array from memory
again; run row by row, all but the first find the row in the cache, and what they hand to each other alone is one row
of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from spmd.analysis.affine import Affine, Variable
from spmd.compiler.schedule.forms import cost_of
from spmd.compiler.schedule.fusion import Unit
from spmd.compiler.schedule.nest import Load, LoopReduction, Nest, Stage, Store
from spmd.compiler.schedule.sliding import is_sliding
from spmd.ir import Value

#: Elements that are folded one after another, many folds side by side.
FEW = 16
#: Elements of a row that are expected to stay in the cache from one unit to the next, and units of one group.
_LONGEST, _MOST = 1 << 14, 12


def row_groups(units: Sequence[Unit]) -> list[list[Unit]]:
    """`units`, neighbours that go over the same rows taken together."""
    groups: list[list[Unit]] = []
    shape: tuple[int, ...] | None = None
    kept = 0
    for unit in units:
        rows = _rows(unit)
        group = groups[-1] if groups else []
        if rows is not None and group and shape is not None and len(group) < _MOST and _reads(unit, group):
            if _matches(unit, shape, kept):
                group.append(unit)
                continue
            if kept == 0 and rows[1] and rows[0] == shape:  # points, then the first reduction of their rows
                kept = rows[1]
                group.append(unit)
                continue
        groups.append([unit])
        shape, kept = rows if rows is not None else (None, 0)
    return groups


def _rows(unit: Unit) -> tuple[tuple[int, ...], int] | None:
    """The points of `unit`, and how many of their dimensions count rows: none are known where little is folded."""
    if not unit.is_open or not all(unit.shape) or is_sliding(unit.roots[0]):
        return None
    if not unit.is_reduction:
        return unit.shape, 0
    kept = len(unit.shape) - len(unit.reduced)
    if not kept or unit.reduced != tuple(range(kept, len(unit.shape))):
        return None
    folded = prod(unit.shape[kept:])
    if folded <= FEW:
        return unit.shape[:kept], 0  # each fold is a point of what comes after
    return (unit.shape, kept) if folded <= _LONGEST else None


def rows_of(group: Sequence[Unit]) -> int:
    """The rows that the units of a group go over: those of its longest folds."""
    return min(prod(unit.shape[: len(unit.shape) - len(unit.reduced)]) for unit in group if unit.is_reduction)


def _matches(unit: Unit, shape: tuple[int, ...], kept: int) -> bool:
    """Whether `unit` goes over the rows of `shape`, whose first `kept` dimensions count them, or over their points."""
    if not kept:
        return False
    if unit.is_reduction:
        return _rows(unit) == (shape, kept)
    if unit.shape == shape:
        return True
    rows = shape[:kept]
    if unit.shape != rows and unit.shape != (*rows, *(1 for _ in shape[kept:])):
        return False
    # What is computed once a row is computed alone, where by itself it would be many rows at a time.
    return sum(map(cost_of, unit.ops)) <= prod(shape[kept:])


def _reads(unit: Unit, group: Sequence[Unit]) -> bool:
    return any(unit in earlier.readers for earlier in group)


def row_nest(nests: Sequence[Nest], rows: int) -> Nest | None:
    """The nests of a group as one, of which the first loops share `rows` turns; None where rows need other rows."""
    widest = max(nests, key=lambda nest: len(nest.extents))
    outer = _outer(widest.extents, rows)
    if outer is None or any(nest.extents != widest.extents[: len(nest.extents)] for nest in nests):
        return None
    if any(len(nest.stages) != 1 or len(nest.extents) < outer for nest in nests):
        return None
    variables = tuple(range(outer))
    nest = Nest(widest.extents, tuple(stage for nest in nests for stage in nest.stages), variables)
    return nest if _stays_in_rows(nest) else None


def _outer(extents: Sequence[int], rows: int) -> int | None:
    """How many of the first loops make `rows` turns."""
    turns = 1
    for count, extent in enumerate(extents):
        if turns == rows:
            return count
        turns *= extent
    return None


def row_of(form: Affine, nest: Nest) -> tuple[Affine, int, int] | None:
    """The part of an address that counts rows, and the first and last place within the row."""
    outer = Affine(0, tuple((v, c) for v, c in form.terms if v in nest.outer))
    inner = Affine(form.offset, tuple((v, c) for v, c in form.terms if v not in nest.outer), form.dynamic)
    bounds = inner.bounds(nest.extents)
    return None if bounds is None else (outer, *bounds)


def _stays_in_rows(nest: Nest) -> bool:
    """Whether what one stage writes is read by others in the same row only."""
    written: dict[Value, Store] = {}
    for stage in nest.stages:
        for load in stage.loads():
            if load.value in written and not same_rows(nest, written[load.value].address, load.address):
                return False
        for store in stage.all_stores():
            if row_of(store.address, nest) is None:
                return False
            written[store.value] = store
    return True


def same_rows(nest: Nest, written: Affine, read: Affine) -> bool:
    """Whether an address that is read lies in the row that is written in the same turn of the outer loops."""
    first, second = row_of(written, nest), row_of(read, nest)
    if first is None or second is None or first[0] != second[0]:
        return False
    step = min((abs(c) for _, c in first[0].terms), default=0)
    return second[1] >= 0 and (not step or second[2] < step) and first[1] >= 0 and (not step or first[2] < step)


def in_one_row(nest: Nest, private: Callable[[Value], bool]) -> Nest:
    """`nest` with a single row of memory for each value that is private to it."""

    def local(form: Affine) -> Affine:
        return Affine(form.offset, tuple((v, c) for v, c in form.terms if v not in nest.outer), form.dynamic)

    def store(old: Store) -> Store:
        return replace(old, address=local(old.address)) if private(old.value) else old

    def reduction(old: LoopReduction) -> LoopReduction:
        return replace(old, stores=tuple(map(store, old.stores)))

    def stage(old: Stage) -> Stage:
        leaves = tuple(
            replace(leaf, address=local(leaf.address)) if isinstance(leaf, Load) and private(leaf.value) else leaf
            for leaf in old.leaves
        )
        reductions = tuple(map(reduction, old.reductions))
        return replace(old, leaves=leaves, stores=tuple(map(store, old.stores)), reductions=reductions)

    return Nest(nest.extents, tuple(map(stage, nest.stages)), nest.outer)


def row_elements(nest: Nest, value: Value, outer: Sequence[Variable]) -> int:
    """How many elements of `value` one row has."""
    rows = prod(nest.extents[variable] for variable in outer)
    return prod(value.tensor.static_shape) // max(rows, 1)
