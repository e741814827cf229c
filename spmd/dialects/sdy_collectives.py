"""Constraints of sdy's collectives: the result's sharding for an operand's sharding and the op's axes.

Source: Shardy's dialect documentation, the "Constraints" of AllGatherOp, AllReduceOp, AllSliceOp, AllToAllOp,
CollectivePermuteOp, ReduceScatterOp, ReplicatedToUnreducedOp, ReshardOp, ShardedToUnreducedOp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from spmd.dialects import sdy_attributes as sdy
from spmd.dialects.sdy_axes import (
    Parts,
    ShardingFault,
    append_part,
    check_sorted,
    difference,
    format_parts,
    joined_parts,
    overlap,
    parts_of,
)
from spmd.ir import Op

#: Collectives whose operand may have no sharding, and is replicated then.
MAY_TAKE_UNSHARDED = frozenset(("sdy.all_slice", "sdy.all_reduce", "sdy.reduce_scatter"))


def collective_axes(op: Op) -> list[tuple[sdy.AxisRef, ...]]:
    """Return the lists of axes in the attributes of the collective `op`."""
    if op.name == "sdy.all_to_all":
        return [param.axes for param in op["params"].params]
    name = _AXES.get(op.name)
    if name is None:
        return []
    attribute = op[name]
    return (
        [entry.axes for entry in attribute.lists] if isinstance(attribute, sdy.ListOfAxisRefLists) else [attribute.axes]
    )


def check_collective(op: Op, before: sdy.TensorSharding, mesh: sdy.Mesh) -> None:
    """Raise ShardingFault unless the result's sharding is what `op` makes of `before`, the operand's."""
    sharding: sdy.TensorSharding = op["out_sharding"]
    if len(before.dimensions) != len(sharding.dimensions):
        raise ShardingFault(
            f"the result's sharding has rank {len(sharding.dimensions)}, the operand's {len(before.dimensions)}"
        )
    _CHECKS[op.name](op, before, mesh)


def check_unreduced(
    operand_sharding: sdy.TensorSharding,
    result_sharding: sdy.TensorSharding,
    mesh: sdy.Mesh,
    adds: str | None,
    takes: str,
) -> None:
    """Raise ShardingFault unless the result's unreduced axes can result from those of the operand.

    `adds` is the reduction of axes that become unreduced (None: not allowed), `takes` that of reduced ones.
    """
    before, after = joined_parts(operand_sharding.unreduced, mesh), joined_parts(result_sharding.unreduced, mesh)
    new, gone = difference(after, before), difference(before, after)
    if new and adds is None:
        raise ShardingFault(f"the axes {format_parts(new, mesh)} must not become unreduced by this op")
    if new and result_sharding.reduction_op != adds:
        raise ShardingFault(f"new unreduced axes must have the reduction {adds}, got {result_sharding.reduction_op}")
    if gone and operand_sharding.reduction_op != takes:
        raise ShardingFault(f"axes unreduced of {operand_sharding.reduction_op} cannot be reduced by {takes}")
    if overlap(before, after) and operand_sharding.reduction_op != result_sharding.reduction_op:
        raise ShardingFault(
            f"axes unreduced of {operand_sharding.reduction_op} cannot stay unreduced of {result_sharding.reduction_op}"
        )


# --- axes by dimension -----------------------------------------------------------------------------------------------

_Move = Callable[[Parts, Sequence[sdy.AxisRef], sdy.Mesh], Parts | None]


def _gathered(parts: Parts, axes: Sequence[sdy.AxisRef], mesh: sdy.Mesh) -> Parts | None:
    """Return `parts` without `axes` at their end; None if they do not end with them."""
    rest = list(parts)
    for name, start, stop in reversed(parts_of(axes, mesh)):
        if not rest or rest[-1][0] != name or rest[-1][2] != stop or rest[-1][1] > start:
            return None
        _, first, _ = rest.pop()
        if first < start:
            rest.append((name, first, start))
    return rest


def _sliced(parts: Parts, axes: Sequence[sdy.AxisRef], mesh: sdy.Mesh) -> Parts:
    """Return `parts` with `axes` appended."""
    sliced = list(parts)
    for part in parts_of(axes, mesh):
        append_part(sliced, *part)
    return sliced


def _check_dimension(dimension: int, expected: Parts | None, op: Op, mesh: sdy.Mesh) -> None:
    if expected is None:
        raise ShardingFault(f"the axes must be the most minor ones of dimension {dimension} of the operand")
    actual = parts_of(op["out_sharding"].dimensions[dimension].axes, mesh)
    if expected != actual:
        expected_parts, actual_parts = format_parts(expected, mesh), format_parts(actual, mesh)
        raise ShardingFault(
            f"dimension {dimension} of the result must be sharded by {expected_parts}, got {actual_parts}"
        )


def _check_moved(op: Op, operand_sharding: sdy.TensorSharding, mesh: sdy.Mesh, move: _Move) -> None:
    """Raise ShardingFault unless moving the axes of each dimension turns the operand's sharding into the result's."""
    lists = collective_axes(op)
    if len(lists) != len(operand_sharding.dimensions):
        raise ShardingFault(
            f"there must be a list of axes for each of {len(operand_sharding.dimensions)} dimensions, got {len(lists)}"
        )
    for index, (axes, dimension) in enumerate(zip(lists, operand_sharding.dimensions, strict=True)):
        _check_dimension(index, move(parts_of(dimension.axes, mesh), axes, mesh), op, mesh)


# --- the collectives -------------------------------------------------------------------------------------------------


def _all_gather(op: Op, operand_sharding: sdy.TensorSharding, mesh: sdy.Mesh) -> None:
    _check_moved(op, operand_sharding, mesh, _gathered)


def _all_slice(op: Op, operand_sharding: sdy.TensorSharding, mesh: sdy.Mesh) -> None:
    _check_moved(op, operand_sharding, mesh, _sliced)


def _reduce_scatter(op: Op, operand_sharding: sdy.TensorSharding, mesh: sdy.Mesh) -> None:
    check_unreduced(operand_sharding, op["out_sharding"], mesh, None, op["reduction_op"])
    _check_moved(op, operand_sharding, mesh, _sliced)


def _all_to_all(op: Op, operand_sharding: sdy.TensorSharding, mesh: sdy.Mesh) -> None:
    before = [parts_of(dimension.axes, mesh) for dimension in operand_sharding.dimensions]
    expected: list[Parts | None] = list(before)
    for param in op["params"].params:
        expected[param.source] = _gathered(before[param.source], param.axes, mesh)
        expected[param.target] = _sliced(before[param.target], param.axes, mesh)
    for index, parts in enumerate(expected):
        _check_dimension(index, parts, op, mesh)


def _collective_permute(op: Op, operand_sharding: sdy.TensorSharding, mesh: sdy.Mesh) -> None:
    for index, (old, new) in enumerate(zip(operand_sharding.dimensions, op["out_sharding"].dimensions, strict=True)):
        sizes = [prod(axis.size(mesh) for axis in dimension.axes) for dimension in (old, new)]
        if sizes[0] != sizes[1]:
            raise ShardingFault(
                f"dimension {index} must have equally many blocks before and after, got {sizes[0]} and {sizes[1]}"
            )


def _all_reduce(op: Op, operand_sharding: sdy.TensorSharding, mesh: sdy.Mesh) -> None:
    sharding: sdy.TensorSharding = op["out_sharding"]
    for index, dimension in enumerate(operand_sharding.dimensions):
        _check_dimension(index, parts_of(dimension.axes, mesh), op, mesh)
    if any(dimension.axes for dimension in operand_sharding.dimensions) and operand_sharding.mesh != sharding.mesh:
        raise ShardingFault("the operand and the result must be sharded over one mesh")
    axes = op["reduction_axes"].axes
    check_sorted("reduction", axes, mesh)
    parts = parts_of(axes, mesh)
    for what, others in (
        ("shard a dimension of the operand", [a for dimension in operand_sharding.dimensions for a in dimension.axes]),
        ("are replicated in the operand's sharding", operand_sharding.replicated),
        ("stay unreduced in the result", sharding.unreduced),
    ):
        if overlap(parts, parts_of(others, mesh)):
            raise ShardingFault(f"the reduction axes {format_parts(parts, mesh)} {what}")
    check_unreduced(operand_sharding, sharding, mesh, None, op["reduction_op"])


def _check_sum(result_sharding: sdy.TensorSharding) -> None:
    if result_sharding.reduction_op != "sum":
        raise ShardingFault(
            f"the result's unreduced axes must have the reduction sum, got {result_sharding.reduction_op}"
        )


def _check_added(op: Op, operand_sharding: sdy.TensorSharding, mesh: sdy.Mesh) -> None:
    """Raise ShardingFault unless the result's unreduced axes are the operand's and the op's."""
    expected = joined_parts(
        [*operand_sharding.unreduced, *(axis for axes in collective_axes(op) for axis in axes)], mesh
    )
    actual = joined_parts(op["out_sharding"].unreduced, mesh)
    if expected != actual:
        raise ShardingFault(
            f"the result's unreduced axes are {format_parts(expected, mesh)}, got {format_parts(actual, mesh)}"
        )


def _sharded_to_unreduced(op: Op, operand_sharding: sdy.TensorSharding, mesh: sdy.Mesh) -> None:
    _check_sum(op["out_sharding"])
    _check_moved(op, operand_sharding, mesh, _gathered)
    _check_added(op, operand_sharding, mesh)


def _replicated_to_unreduced(op: Op, operand_sharding: sdy.TensorSharding, mesh: sdy.Mesh) -> None:
    sharding: sdy.TensorSharding = op["out_sharding"]
    _check_sum(sharding)
    if operand_sharding.dimensions != sharding.dimensions:
        raise ShardingFault(
            "the operand and the result must have the same dimension shardings, including open and closed ones"
        )
    axes = op["axes"].axes
    check_sorted("the op's", axes, mesh)
    parts = parts_of(axes, mesh)
    used = [axis for dimension in operand_sharding.dimensions for axis in dimension.axes]
    if overlap(parts, parts_of([*used, *operand_sharding.unreduced], mesh)):
        raise ShardingFault(
            f"the axes {format_parts(parts, mesh)} must neither shard the operand nor be unreduced in it"
        )
    _check_added(op, operand_sharding, mesh)


_AXES = {
    "sdy.all_gather": "gathering_axes",
    "sdy.all_reduce": "reduction_axes",
    "sdy.all_slice": "slicing_axes",
    "sdy.reduce_scatter": "reduce_scatter_axes",
    "sdy.replicated_to_unreduced": "axes",
    "sdy.sharded_to_unreduced": "axes",
}
_CHECKS: dict[str, Callable[[Op, sdy.TensorSharding, sdy.Mesh], None]] = {
    "sdy.all_gather": _all_gather,
    "sdy.all_reduce": _all_reduce,
    "sdy.all_slice": _all_slice,
    "sdy.all_to_all": _all_to_all,
    "sdy.collective_permute": _collective_permute,
    "sdy.reduce_scatter": _reduce_scatter,
    "sdy.replicated_to_unreduced": _replicated_to_unreduced,
    "sdy.sharded_to_unreduced": _sharded_to_unreduced,
}
