"""Scatter: StableHLO specification, "scatter". Rows out of bounds are skipped, duplicates applied in order.

Windows are applied one after another, as in XLA; see spmd.dialects.scatters for windows partly out of bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from spmd.analysis.reducers import binary_of, returned_argument
from spmd.backends.kernels import Context, Kernel, kernel
from spmd.backends.numpy.indexing import IndexPlacement
from spmd.backends.numpy.pointwise import compute_dtype
from spmd.backends.numpy.regions import Loop, from_keys, has_minus_zero, keys, loop_of
from spmd.dialects.scatters import drops_whole_windows
from spmd.ir import Op
from spmd.support.arrays import Array, Results
from spmd.types import ElementType

#: Applies updates (rows, payload) at row numbers to a table (row count, payload), in place.
Apply = Callable[[Array, Array, Array], None]


@kernel("stablehlo.scatter")
def scatter(op: Op, context: Context) -> Kernel:
    count = len(op.results)
    placement, arrange = _placement(op)
    if 0 in placement.shape or 0 in op.operands[-1].tensor.static_shape:
        call: Callable[..., Results] = (lambda operand, *_: operand) if count == 1 else (lambda *arrays: arrays[:count])
        return Kernel(call, aliases=tuple(range(count)))
    region = op.regions[0]
    if count == 1:
        if returned_argument(region) == 1:
            return _in_place(op, placement, arrange, _assign, None)
        if returned_argument(region) == 0:
            return Kernel(lambda operand, *_: operand, aliases=(0,))
        loop = loop_of(region)
        element = region.block.arguments[0].tensor.element_type
        if binary_of(region) == "subtract" and isinstance(element, ElementType):
            loop = Loop("subtract", element, np.subtract, compute_dtype(element))
        if loop is not None:
            return _in_place(op, placement, arrange, _combining(loop), loop)
    return _general(op, context, placement, arrange)


def _placement(op: Op) -> tuple[IndexPlacement, list[int]]:
    """Return the placement, and the permutation of updates to (scatter dimensions..., the operand's dimensions...).

    Inserted and batching dimensions are missing from the updates; their slice size is 1.
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
    """Return the kernel of one operand: updates are applied to a copy of it, or in place if it is dead."""
    dtype = op.result.tensor.dtype
    compute = dtype if monoid is None else monoid.compute
    table = (placement.row_count, placement.payload)

    def call(operand: Array, indices: Array, updates: Array, out: Array | None = None) -> Array:
        here = out is operand and compute == dtype and operand.flags.c_contiguous
        base = operand if here else np.array(operand, compute, order="C")
        values = updates.astype(compute, copy=False)
        apply(base.reshape(table), *_selected(placement, arrange, placement.starts(indices), values))
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
    """Return row numbers and updates (rows, payload) that are in bounds, slice after slice."""
    rows = placement.rows(starts).reshape(-1)
    values = updates.transpose(arrange).reshape(len(rows), placement.payload)
    inside = placement.inside(starts)
    if inside is None:
        return rows, values
    keep = inside.reshape(-1)
    return rows[keep], values[keep]


# --- how rows are applied --------------------------------------------------------------------------------------------


def _assign(table: Array, rows: Array, values: Array) -> None:
    table[np.ascontiguousarray(rows)] = values  # NumPy stores in memory order; the last duplicate must win


def _combining(loop: Loop) -> Apply:
    """Return a function that combines updates in order; maximum and minimum of floats use keys if zeros of both signs
    may meet.
    """

    def plain(table: Array, rows: Array, values: Array) -> None:
        places = (rows[:, None] * table.shape[1] + np.arange(table.shape[1])).reshape(-1)
        loop.ufunc.at(table.reshape(-1), places, values.reshape(-1))

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


# --- any region, any number of operands ------------------------------------------------------------------------------


def _general(op: Op, context: Context, placement: IndexPlacement, arrange: list[int]) -> Kernel:
    """Return the kernel of any region: updates of one row are applied in order, those of different rows at once."""
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
    """Return positions in `rows`, split so that no row is repeated in a part and the order of each row is kept."""
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
