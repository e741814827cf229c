"""Dynamic slices, gathers and scatters: the leading axis is a batch dimension if indices differ, else a full window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from spmd.compiler.stack.core import StackedValue, Stacker, Tree, rule
from spmd.compiler.stack.data_movement import after
from spmd.compiler.stack.one_by_one import one_by_one
from spmd.dialects.make import make_op
from spmd.dialects.structs import GatherDimensionNumbersAttr, ScatterDimensionNumbersAttr
from spmd.ir import AttributeValue, Block, Op, Region, Value
from spmd.types import I64, ElementType, TensorType


@rule("stablehlo.dynamic_slice")
def dynamic_slice(stacker: Stacker, op: Op) -> Sequence[Tree]:
    operand, *starts = (stacker.leaf(value) for value in op.operands)
    sizes = op["slice_sizes"]
    if not any(start.stacked for start in starts):
        places = [start.value for start in starts]
        operands = [operand.value, _zero(stacker, places), *places]
        return stacker.lifted(op, operands, {"slice_sizes": (stacker.size, *sizes)})
    rank = len(sizes)
    batched = operand.stacked
    numbers = GatherDimensionNumbersAttr(
        offset_dims=tuple(range(1, rank + 1)),
        operand_batching_dims=(0,) if batched else (),
        start_indices_batching_dims=(0,) if batched else (),
        start_index_map=tuple(range(batched, rank + batched)),
        index_vector_dim=1,
    )
    attributes = {"dimension_numbers": numbers, "slice_sizes": np.array((*(1,) * batched, *sizes))}
    type = stacker.tensor_of(op.result.type)
    gathered = stacker.op(
        "stablehlo.gather", [operand.value, _places(stacker, starts, operand, sizes)], [type], attributes
    )
    return [StackedValue(gathered.result, True)]


def _zero(stacker: Stacker, places: Sequence[Value]) -> Value:
    """Return index 0 of the leading axis, of the type of the other indices."""
    return stacker.splat(0, places[0].tensor if places else TensorType((), I64))


def _places(stacker: Stacker, starts: Sequence[StackedValue], operand: StackedValue, sizes: Sequence[int]) -> Value:
    """Return the start indices of each process as rows, clamped as in the specification."""
    rows = []
    for start, extent, size in zip(starts, operand.shape, sizes, strict=True):
        inside = _clamped(stacker, start, extent - size)
        row = stacker.stack(replace(start, value=inside))
        rows.append(stacker.reshape(row, (stacker.size, 1)))
    return stacker.concatenate(rows, 1)


def _clamped(stacker: Stacker, start: StackedValue, last: int) -> Value:
    """Return a start index clamped to 0 ... `last`, as an i64."""
    element = start.value.tensor.element_type
    assert isinstance(element, ElementType)
    shape = start.value.tensor.static_shape
    value, scalar = start.value, TensorType((), element)
    most = np.iinfo(element.dtype).max if element.bits >= 8 else 2 ** (element.bits - element.is_signed) - 1
    limits = [stacker.splat(0, scalar), stacker.splat(min(last, int(most)), scalar)]
    value = stacker.one("clamp", [limits[0], value, limits[1]], start.value.type)
    return stacker.convert(value, TensorType(shape, I64))


@rule("stablehlo.dynamic_update_slice")
def dynamic_update_slice(stacker: Stacker, op: Op) -> Sequence[Tree]:
    operand, update, *starts = (stacker.leaf(value) for value in op.operands)
    both = [stacker.stack(operand), stacker.stack(update)]
    if not any(start.stacked for start in starts):
        places = [start.value for start in starts]
        return stacker.lifted(op, [*both, _zero(stacker, places), *places])
    rank = operand.rank
    numbers = ScatterDimensionNumbersAttr(
        update_window_dims=tuple(range(1, rank + 1)),
        input_batching_dims=(0,),
        scatter_indices_batching_dims=(0,),
        scatter_dims_to_operand_dims=tuple(range(1, rank + 1)),
        index_vector_dim=1,
    )
    rows = _places(stacker, starts, operand, update.shape)
    scalar = operand.value.tensor.with_shape(())
    body = Block([scalar, scalar])
    body.ops.append(make_op("stablehlo.return", [body.arguments[1]], location=op.location))
    attributes: dict[str, AttributeValue] = {"scatter_dimension_numbers": numbers, "unique_indices": True}
    scattered = stacker.op("stablehlo.scatter", [both[0], rows, both[1]], [both[0].type], attributes, [Region([body])])
    return [StackedValue(scattered.result, True)]


@rule("stablehlo.gather")
def gather(stacker: Stacker, op: Op) -> Sequence[Tree]:
    operand, indices = (stacker.leaf(value) for value in op.operands)
    numbers: GatherDimensionNumbersAttr = op["dimension_numbers"]
    both, sizes = operand.stacked and indices.stacked, tuple(op["slice_sizes"])
    whole = operand.stacked and not indices.stacked
    moved = GatherDimensionNumbersAttr(
        offset_dims=((0,) if whole else ()) + after(numbers.offset_dims),
        collapsed_slice_dims=_behind(numbers.collapsed_slice_dims, operand.stacked),
        operand_batching_dims=(0,) * both + _behind(numbers.operand_batching_dims, operand.stacked),
        start_indices_batching_dims=(0,) * both + _behind(numbers.start_indices_batching_dims, indices.stacked),
        start_index_map=_behind(numbers.start_index_map, operand.stacked),
        index_vector_dim=numbers.index_vector_dim + indices.stacked,
    )
    extent = (1,) * both + (stacker.size,) * whole
    attributes = {
        "dimension_numbers": moved,
        "slice_sizes": np.array((*extent, *sizes)) if isinstance(op["slice_sizes"], np.ndarray) else (*extent, *sizes),
        "indices_are_sorted": bool(op["indices_are_sorted"]) and not indices.stacked,
    }
    return stacker.lifted(op, [operand.value, indices.value], attributes)


def _behind(dimensions: Sequence[int], stacked: bool) -> tuple[int, ...]:
    return after(dimensions) if stacked else tuple(dimensions)


@rule("stablehlo.scatter")
def scatter(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """Scatter; if indices are uniform, the leading axis is a window dimension."""
    if stacker.captures_differ(op):
        return one_by_one(stacker, op)
    numbers: ScatterDimensionNumbersAttr = op["scatter_dimension_numbers"]
    indices = stacker.leaf(op.operand("scatter_indices"))
    batch, window = ((0,), ()) if indices.stacked else ((), (0,))
    moved = ScatterDimensionNumbersAttr(
        update_window_dims=window + after(numbers.update_window_dims),
        inserted_window_dims=after(numbers.inserted_window_dims),
        input_batching_dims=batch + after(numbers.input_batching_dims),
        scatter_indices_batching_dims=batch + _behind(numbers.scatter_indices_batching_dims, indices.stacked),
        scatter_dims_to_operand_dims=after(numbers.scatter_dims_to_operand_dims),
        index_vector_dim=numbers.index_vector_dim + indices.stacked,
    )
    inputs, updates = (
        [stacker.stack(stacker.leaf(value)) for value in op.operand_group(name)] for name in ("inputs", "updates")
    )
    attributes = {
        "scatter_dimension_numbers": moved,
        "indices_are_sorted": bool(op["indices_are_sorted"]) and not indices.stacked,
    }
    return stacker.lifted(op, [*inputs, indices.value, *updates], attributes)


@rule("stablehlo.torch_index_select")
def torch_index_select(stacker: Stacker, op: Op) -> Sequence[Tree]:
    operands = [stacker.stack(stacker.leaf(value)) for value in op.operands]
    return stacker.lifted(op, operands, {"dim": op["dim"] + 1, "batch_dims": op["batch_dims"] + 1})
