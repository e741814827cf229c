"""Scatter: StableHLO specification, "scatter". Rows outside of the operand are skipped, duplicates taken in order.

Windows are done one after another, as XLA does them; see spmd.dialects.scatters for those that lie partly outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from spmd.analysis.reducers import binary_of, returned_argument
from spmd.backends.numpy import elementwise_float as on_float
from spmd.backends.numpy.core import Context, Kernel, kernel
from spmd.backends.numpy.indexing import IndexPlacement
from spmd.backends.numpy.late import Late
from spmd.backends.numpy.pointwise import compute_dtype
from spmd.backends.numpy.regions import Loop, from_keys, has_minus_zero, keys, loop_of
from spmd.dialects.scatters import drops_whole_windows
from spmd.ir import Op
from spmd.support.arrays import Array, Results
from spmd.types import ElementType

#: SciPy's own loops: its operator would start from zeros, and adding these to the table loses the sign of a -0.0.
sparse = Late("scipy.sparse._sparsetools")
#: Applies updates (rows, payload) at row numbers to a table (row count, payload), in place.
Apply = Callable[[Array, Array, Array], None]

#: A sum over a part of the table larger than this is cheaper as a sparse product over all of it.
_DENSE_PART = 1 / 8
#: Updates that are quicker added one after another than as a product.
_FEW = 4096
#: Elements that make a row worth being combined by itself.
_LONG_ROW = 16


@kernel("stablehlo.scatter")
def scatter(op: Op, context: Context) -> Kernel:
    count = len(op.results)
    placement, arrange = _placement(op)
    if 0 in placement.shape or 0 in op.operands[-1].tensor.static_shape:
        call: Callable[..., Results] = (lambda operand, *_: operand) if count == 1 else (lambda *arrays: arrays[:count])
        return Kernel(call, aliases=tuple(range(count)))
    region = op.regions[0]
    if count == 1:
        kind = binary_of(region)
        monoid = loop_of(region)
        table = (placement.row_count, placement.payload)
        if returned_argument(region) == 1:
            return _in_place(op, placement, arrange, _assign, None)
        if returned_argument(region) == 0:
            return Kernel(lambda operand, *_: operand, aliases=(0,))
        if kind == "subtract" and isinstance(element := region.block.arguments[0].tensor.element_type, ElementType):
            difference = Loop("subtract", element, np.subtract, compute_dtype(element))
            return _in_place(op, placement, arrange, _adding(difference, table), difference)
        if monoid is not None:
            adds = monoid.kind == "add" and monoid.compute != np.bool_
            apply = _adding(monoid, table) if adds else _combining(monoid)
            return _in_place(op, placement, arrange, apply, monoid)
    return _general(op, context, placement, arrange)


def _placement(op: Op) -> tuple[IndexPlacement, list[int]]:
    """The placement, and the order that brings updates into (scatter dimensions..., the operand's dimensions...).

    Inserted and batching dimensions are missing from the updates; they have size 1 in a slice and change no shape.
    """
    numbers = op["scatter_dimension_numbers"]
    shape = op.operand_group("inputs")[0].tensor.static_shape
    update_shape = op.operand_group("updates")[0].tensor.static_shape
    absent = {*numbers.inserted_window_dims, *numbers.input_batching_dims}
    windows = sorted(numbers.update_window_dims)
    sizes_of_windows = iter(update_shape[axis] for axis in windows)
    sizes = [1 if axis in absent else next(sizes_of_windows) for axis in range(len(shape))]
    placement = IndexPlacement(
        shape,
        sizes,
        op.operand("scatter_indices").tensor.static_shape,
        numbers.index_vector_dim,
        numbers.scatter_dims_to_operand_dims,
        list(zip(numbers.input_batching_dims, numbers.scatter_indices_batching_dims, strict=True)),
        whole=drops_whole_windows(op),
    )
    return placement, [*(axis for axis in range(len(update_shape)) if axis not in windows), *windows]


def _in_place(op: Op, placement: IndexPlacement, arrange: list[int], apply: Apply, monoid: Loop | None) -> Kernel:
    """One operand: the updates are applied to a copy of it, or to itself when it is dead."""
    dtype = op.result.tensor.dtype
    compute = dtype if monoid is None else monoid.compute
    if prod(placement.batch_shape) > 1:
        apply_to = _at_rows(placement, arrange, apply)
    elif prod(placement.slice_sizes) > 1:
        apply_to = _at_single_slice(placement, arrange, monoid)
    else:
        apply_to = _at_single_element(placement, monoid)

    def call(operand: Array, indices: Array, updates: Array, out: Array | None = None) -> Array:
        here = out is operand and compute == dtype and operand.flags.c_contiguous
        base = operand if here else np.array(operand, compute, order="C")
        apply_to(base, indices, updates if updates.dtype == compute else updates.astype(compute))
        if here:
            return operand
        result = base.astype(dtype, copy=False)
        if out is None:
            return result
        np.copyto(out, result)
        return out

    return Kernel(call, accepts_out=True, reuses=(0,))


def _selected(
    placement: IndexPlacement, arrange: list[int], starts: Sequence[Array], updates: Array
) -> tuple[Array, Array]:
    """Row numbers and updates (rows, payload) of what lies within the operand, slice after slice."""
    rows = placement.rows(starts).reshape(-1)
    values = updates.transpose(arrange).reshape(len(rows), placement.payload)
    inside = placement.inside(starts)
    if inside is None:
        return rows, values
    keep = inside.reshape(-1)
    return rows[keep], values[keep]


def _at_rows(placement: IndexPlacement, arrange: list[int], apply: Apply) -> Callable[[Array, Array, Array], None]:
    table = (placement.row_count, placement.payload)

    def apply_to(base: Array, indices: Array, updates: Array) -> None:
        apply(base.reshape(table), *_selected(placement, arrange, placement.starts(indices), updates))

    return apply_to


def _at_single_element(placement: IndexPlacement, monoid: Loop | None) -> Callable[[Array, Array, Array], None]:
    """Loops fill an array so, one element in each turn."""
    shape, mapped = placement.shape, placement.mapped

    def apply_to(base: Array, indices: Array, updates: Array) -> None:
        place = [0] * len(shape)
        for axis, first in zip(mapped, indices.ravel().tolist(), strict=True):
            if not 0 <= first < shape[axis]:
                return
            place[axis] = first
        at, value = tuple(place), updates if not updates.ndim else updates[(0,) * updates.ndim]
        base[at] = value if monoid is None else _step(monoid)(base[at], value)

    return apply_to


def _at_single_slice(
    placement: IndexPlacement, arrange: list[int], monoid: Loop | None
) -> Callable[[Array, Array, Array], None]:
    """A single slice needs no row numbers: it is combined with a part of the operand."""
    sizes, shape, mapped = placement.slice_sizes, placement.shape, placement.mapped
    whole: list[slice | Array] = [slice(0, size) for size in sizes]
    straight = arrange == sorted(arrange)

    def apply_to(base: Array, indices: Array, updates: Array) -> None:
        target, source = whole[:], None
        for axis, first in zip(mapped, indices.ravel().tolist(), strict=True):
            last = first + sizes[axis]
            if first < 0 or last > shape[axis]:
                low, high = max(first, 0), min(last, shape[axis])
                if low >= high or placement.whole:
                    return
                source = source or [slice(None)] * len(shape)
                source[axis] = slice(low - first, high - first)
                first, last = low, high
            target[axis] = slice(first, last)
        values = (updates if straight else updates.transpose(arrange)).reshape(sizes)
        if source is not None:
            values = values[tuple(source)]
        if monoid is None:
            base[tuple(target)] = values
        else:
            part = base[(*target, ...)]
            _step(monoid)(part, values, out=part)

    return apply_to


def _step(loop: Loop) -> Callable[..., object]:
    """The loop's function on elements, zeros of two signs in their order."""
    if loop.compute.kind != "f":
        return loop.ufunc
    return {"maximum": on_float.maximum, "minimum": on_float.minimum}.get(loop.kind, loop.ufunc)


# --- how rows are applied --------------------------------------------------------------------------------------------


def _assign(table: Array, rows: Array, values: Array) -> None:
    rows = np.ascontiguousarray(rows)  # NumPy stores in the order of memory; of duplicates the last must win
    if table.shape[1] == 1:
        table[:, 0][rows] = values[:, 0]
    else:
        table[rows] = values


def _combining(loop: Loop) -> Apply:
    """Other monoids; the maximum and minimum of floats by keys where zeros of two signs may meet."""
    plain = _at(loop.ufunc)
    if loop.kind not in ("maximum", "minimum") or loop.compute.kind != "f":
        return plain

    def apply(table: Array, rows: Array, values: Array) -> None:
        if not (has_minus_zero(values) or has_minus_zero(table)):
            plain(table, rows, values)
            return
        ordered = keys(table, loop.kind)
        plain(ordered, rows, keys(values, loop.kind))
        table[rows] = from_keys(ordered[rows], table.dtype)

    return apply


def _at(function: np.ufunc) -> Apply:
    def apply(table: Array, rows: Array, values: Array) -> None:
        if table.shape[1] < _LONG_ROW or not len(rows):
            function.at(table.reshape(-1), _flat(rows, table.shape[1]), values.reshape(-1))
            return
        for turn in _turns(rows):
            places = rows[turn]
            table[places] = function(table[places], values[turn])

    return apply


def _flat(rows: Array, payload: int) -> Array:
    """Places of all elements of the rows in the flat table."""
    return rows if payload == 1 else (rows[:, None] * payload + np.arange(payload)).reshape(-1)


def _adding(monoid: Loop, table_shape: tuple[int, int]) -> Apply:
    """Sums, in the order of the updates: few go to their places one by one; many rows are the product of a sparse
    matrix, one entry an update, added to the table as it is worked out."""
    row_count, payload = table_shape
    dtype, negated = monoid.compute, monoid.kind == "subtract"

    def apply(table: Array, rows: Array, values: Array) -> None:
        if negated:
            values = np.negative(values)
        if payload == 1 or values.size < _DENSE_PART * table.size or values.size <= _FEW or dtype.kind == "c":
            np.add.at(table.reshape(-1), _flat(rows, payload), values.reshape(-1))
            return
        ones, starts = np.ones(len(rows), dtype), np.arange(len(rows) + 1)
        flat, sums = np.ascontiguousarray(values).reshape(-1), table.reshape(-1)
        sparse.csc_matvecs(row_count, len(rows), payload, starts, rows.astype(starts.dtype), ones, flat, sums)

    return apply


# --- any region, any number of operands ------------------------------------------------------------------------------


def _general(op: Op, context: Context, placement: IndexPlacement, arrange: list[int]) -> Kernel:
    """Updates of one place are applied one after another, those of different places at once."""
    count, combine = len(op.results), context.vectorized(op, 0)
    dtypes = [value.tensor.dtype for value in op.results]
    table = (placement.row_count, placement.payload)

    def call(*arrays: Array) -> Results:
        inputs, indices, updates = arrays[:count], arrays[count], arrays[count + 1 : 2 * count + 1]
        captured = arrays[2 * count + 1 :]
        results = [np.array(array, dtype, order="C") for array, dtype in zip(inputs, dtypes, strict=True)]
        tables = [result.reshape(table) for result in results]
        starts = placement.starts(indices)
        chosen = [_selected(placement, arrange, starts, update) for update in updates]
        rows = chosen[0][0]
        for turn in _turns(rows):
            places = rows[turn]
            old = [stored[places] for stored in tables]
            new = [values[turn].astype(dtype, copy=False) for (_, values), dtype in zip(chosen, dtypes, strict=True)]
            for stored, value in zip(tables, combine(*old, *new, *captured), strict=True):
                stored[places] = value
        return results[0] if count == 1 else tuple(results)

    return Kernel(call)


def _turns(rows: Array) -> list[Array]:
    """Positions in `rows`, split so that no row is twice in one part and each row's keep their order."""
    if not len(rows):
        return []
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    turn = np.arange(len(rows)) - np.repeat(starts, np.diff(np.append(starts, len(rows))))
    if turn.max() == 0:
        return [np.arange(len(rows))]
    by_turn = np.argsort(turn, kind="stable")
    return np.split(order[by_turn], np.cumsum(np.bincount(turn))[:-1])
