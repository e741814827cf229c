"""Row groups: a reduction fused with its producers and users, one row at a time.

A softmax is a maximum, a sum and a quotient of each row. Run one after another, each streams the whole array from
memory; run row by row, all but the first hit the cache, and intermediates take one row of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod

from spmd.analysis.affine import Affine, Variable
from spmd.compiler.schedule.fusibility import cost_of
from spmd.compiler.schedule.fusion import Unit
from spmd.compiler.schedule.nest import Leaf, Load, Nest, Store
from spmd.compiler.schedule.sliding import is_sliding
from spmd.ir import Value

#: Longest reductions that run element by element with one reduction per lane.
FEW = 16
#: Longest row expected to stay in cache, in elements, and most units of a group.
_LONGEST, _MOST = 1 << 14, 12
#: Points of a lane loop computed at a time.
_SIDE_BY_SIDE = 16


#: Iteration space of a unit and its reduced dimensions.
Rows = tuple[tuple[int, ...], tuple[int, ...]]


def row_groups(units: Sequence[Unit]) -> list[list[Unit]]:
    """Return `units` with adjacent ones over the same rows grouped."""
    groups: list[list[Unit]] = []
    shape: tuple[int, ...] | None = None
    folded: tuple[int, ...] = ()
    for unit in units:
        rows = _rows(unit)
        group = groups[-1] if groups else []
        if rows is not None and group and shape is not None and len(group) < _MOST and _reads(unit, group):
            if _matches(unit, shape, folded):
                group.append(unit)
                continue
            if not folded and rows[1] and rows[0] == shape:  # elementwise units, then the first reduction of their rows
                folded = rows[1]
                group.append(unit)
                continue
        groups.append([unit])
        shape, folded = rows if rows is not None else (None, ())
    return [part for group in groups for part in _without_last_points(group)]


def _without_last_points(group: list[Unit]) -> Iterator[list[Unit]]:
    """Yield `group`, and separately the trailing units with one point per row, which gain nothing from row order."""
    end = len(group)
    shape, folded = max(((unit.shape, unit.reduced) for unit in group), key=lambda rows: len(rows[1]))
    if folded:
        row = prod(shape[dimension] for dimension in folded)
        while end > 1 and not group[end - 1].is_reduction and row * prod(group[end - 1].shape) == prod(shape):
            if _SIDE_BY_SIDE * sum(map(cost_of, group[end - 1].ops)) <= row:
                break
            end -= 1
    yield group[:end]
    yield from ([unit] for unit in group[end:])


def _rows(unit: Unit) -> Rows | None:
    """Return the iteration space of `unit` and its reduced dimensions; None if it cannot join a group."""
    if not unit.is_open or not all(unit.shape) or is_sliding(unit.outputs[0]):
        return None
    if not unit.is_reduction:
        return unit.shape, ()
    first = min(unit.reduced, default=0)
    if unit.reduced != tuple(range(first, first + len(unit.reduced))) or len(unit.reduced) in (0, len(unit.shape)):
        return None
    folded = prod(unit.shape[dimension] for dimension in unit.reduced)
    if unit.reduced[-1] != len(unit.shape) - 1:
        return None
    if folded <= FEW:
        return unit.shape[:first], ()  # each reduction is one point of its users
    return (unit.shape, unit.reduced) if folded <= _LONGEST else None


def group_nest(group: Sequence[Unit], nests: Sequence[Nest]) -> Nest | None:
    """Return the nests of a group as one with shared outer loops; None if rows depend on other rows."""
    longest = min((unit for unit in group if unit.is_reduction), key=_rows_of)
    return row_nest(nests, _rows_of(longest))


def _rows_of(unit: Unit) -> int:
    """Return the number of rows of a reduction."""
    return prod(size for dimension, size in enumerate(unit.shape) if dimension not in unit.reduced)


def _matches(unit: Unit, shape: tuple[int, ...], folded: tuple[int, ...]) -> bool:
    """Return whether `unit` iterates over the rows of `shape`, which `folded` are the dimensions of, or over their
    points.
    """
    if not folded:
        return False
    if unit.is_reduction:
        return _rows(unit) == (shape, folded)
    if unit.shape == shape:
        return True
    rows = tuple(size for dimension, size in enumerate(shape) if dimension not in folded)
    if unit.shape not in (rows, tuple(1 if dimension in folded else size for dimension, size in enumerate(shape))):
        return False
    # A value per row is computed by scalar code here, by vectors in a unit of its own.
    return sum(map(cost_of, unit.ops)) <= prod(shape[dimension] for dimension in folded)


def _reads(unit: Unit, group: Sequence[Unit]) -> bool:
    return any(unit in earlier.users for earlier in group)


def row_nest(nests: Sequence[Nest], rows: int) -> Nest | None:
    """Return nests as one whose shared outer loops have `rows` iterations; None if rows depend on other rows."""
    widest = max(nests, key=lambda nest: len(nest.extents))
    outer = _outer(widest.extents, rows)
    if outer is None or any(nest.extents != widest.extents[: len(nest.extents)] for nest in nests):
        return None
    if any(len(nest.stages) != 1 or len(nest.extents) < outer for nest in nests):
        return None
    nest = Nest(widest.extents, tuple(stage for nest in nests for stage in nest.stages), tuple(range(outer)))
    return nest if _stays_in_rows(nest) else None


def _outer(extents: Sequence[int], rows: int) -> int | None:
    """Return how many leading loops have `rows` iterations together; None if none do."""
    turns = 1
    for count, extent in enumerate(extents):
        if turns == rows:
            return count
        turns *= extent
    return None


def row_of(form: Affine, nest: Nest) -> tuple[Affine, int, int] | None:
    """Return the part of an address that selects the row, and the least and greatest offset within it; None if
    unbounded.
    """
    outer = Affine(0, tuple((v, c) for v, c in form.terms if v in nest.outer))
    inner = Affine(form.offset, tuple((v, c) for v, c in form.terms if v not in nest.outer), form.dynamic)
    bounds = inner.bounds(nest.extents)
    return None if bounds is None else (outer, *bounds)


def _stays_in_rows(nest: Nest) -> bool:
    """Return whether values stored by one stage are loaded by others in the same row only."""
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
    """Return whether address `read` is in the row that `written` is in, for the same iteration of the outer loops."""
    if written == read:
        return True
    first, second = row_of(written, nest), row_of(read, nest)
    if first is None or second is None or first[0] != second[0]:
        return False
    step = min((abs(c) for _, c in first[0].terms), default=0)
    return second[1] >= 0 and (not step or second[2] < step) and first[1] >= 0 and (not step or first[2] < step)


def in_one_row(nest: Nest, private: Callable[[Value], bool]) -> Nest:
    """Return `nest` with the memory of values for which `private` holds reduced to a single row."""

    def local(form: Affine) -> Affine:
        return Affine(form.offset, tuple((v, c) for v, c in form.terms if v not in nest.outer), form.dynamic)

    def store(old: Store) -> Store:
        return replace(old, address=local(old.address)) if private(old.value) else old

    def leaf(old: Leaf) -> Leaf:
        return replace(old, address=local(old.address)) if isinstance(old, Load) and private(old.value) else old

    return Nest(nest.extents, tuple(stage.with_accesses(leaf, store) for stage in nest.stages), nest.outer)


def row_elements(nest: Nest, value: Value, outer: Sequence[Variable]) -> int:
    """Return the elements per row of `value`."""
    rows = prod(nest.extents[variable] for variable in outer)
    return prod(value.tensor.static_shape) // max(rows, 1)
