"""How the collectives of the sdy dialect move axes: what an operand's sharding and the op's axes make of the result's.

Source: Shardy's dialect documentation, the "Constraints" of AllGatherOp, AllReduceOp, AllSliceOp, AllToAllOp,
CollectivePermuteOp, ReduceScatterOp, ReplicatedToUnreducedOp and ShardedToUnreducedOp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod

from spmd.dialects import sdy_attributes as sdy
from spmd.ir import Op

#: Parts of mesh axes, major to minor: the axis, and the product of the sizes before and up to the end of the part.
Parts = list[tuple[str, int, int]]


def collective_axes(op: Op) -> list[tuple[sdy.AxisRef, ...]]:
    """The lists of axes that the collective `op` is given."""
    if op.name == "sdy.all_to_all":
        return [param.axes for param in op["params"].params]
    name = _AXES.get(op.name)
    if name is None:
        return []
    given = op[name]
    return [entry.axes for entry in given.lists] if isinstance(given, sdy.ListOfAxisRefLists) else [given.axes]


def collective_fault(op: Op, given: sdy.TensorSharding, mesh: sdy.Mesh) -> str | None:
    """What is wrong with the result's sharding of the collective `op`, whose operand has the sharding `given`."""
    made: sdy.TensorSharding = op["out_sharding"]
    before = [_parts(dimension.axes, mesh) for dimension in given.dimensions]
    after = [_parts(dimension.axes, mesh) for dimension in made.dimensions]
    if len(before) != len(after):
        return f"the result's sharding has rank {len(after)}, the operand's {len(before)}"
    check = _CHECKS.get(op.name)
    fault = check(op, before, after, mesh) if check is not None else None
    return fault or _unreduced_fault(op, given, made, mesh)


def _parts(axes: Iterable[sdy.AxisRef], mesh: sdy.Mesh) -> Parts:
    """The axes as parts, those that follow one another joined."""
    found: Parts = []
    for axis in axes:
        size = mesh.axis_size(axis.name)
        assert size is not None
        _append(found, axis.name, *axis.interval(size))
    return found


def _append(parts: Parts, name: str, start: int, stop: int) -> None:
    """Adds a part, joined with the last one where it follows that."""
    if parts and parts[-1][0] == name and parts[-1][2] == start:
        start = parts.pop()[1]
    parts.append((name, start, stop))


def _shown(parts: Parts, mesh: sdy.Mesh) -> str:
    texts = [
        f'"{name}"' if (start, stop) == (1, mesh.axis_size(name)) else f'"{name}":({start}){stop // start}'
        for name, start, stop in parts
    ]
    return "{" + ", ".join(texts) + "}"


def _gathered(parts: Parts, axes: Sequence[sdy.AxisRef], mesh: sdy.Mesh) -> Parts | None:
    """The parts without `axes` at their end; None when they do not end with them."""
    rest = list(parts)
    for name, start, stop in reversed(_parts(axes, mesh)):
        if not rest or rest[-1][0] != name or rest[-1][2] != stop or rest[-1][1] > start:
            return None
        _, first, _ = rest.pop()
        if first < start:
            rest.append((name, first, start))
    return rest


def _sliced(parts: Parts, axes: Sequence[sdy.AxisRef], mesh: sdy.Mesh) -> Parts:
    """The parts with `axes` at their end."""
    found = list(parts)
    for part in _parts(axes, mesh):
        _append(found, *part)
    return found


Dimensions = list[Parts]
_Check = Callable[[Op, Dimensions, Dimensions, sdy.Mesh], str | None]


def _dimension_fault(dimension: int, expected: Parts | None, found: Parts, mesh: sdy.Mesh) -> str | None:
    if expected is None:
        return f"the axes are not the last that shard dimension {dimension} of the operand"
    if expected == found:
        return None
    return f"dimension {dimension} of the result is sharded by {_shown(expected, mesh)}, got {_shown(found, mesh)}"


def _per_dimension(move: Callable[[Parts, Sequence[sdy.AxisRef], sdy.Mesh], Parts | None]) -> _Check:
    """A check that the axes listed for each dimension, moved, make the result's sharding of the operand's."""

    def check(op: Op, before: Dimensions, after: Dimensions, mesh: sdy.Mesh) -> str | None:
        lists = collective_axes(op)
        if len(lists) != len(after):
            return f"there are {len(lists)} lists of axes for {len(after)} dimensions"
        faults = (
            _dimension_fault(index, move(before[index], axes, mesh), after[index], mesh)
            for index, axes in enumerate(lists)
        )
        return next(filter(None, faults), None)

    return check


def _all_to_all(op: Op, before: Dimensions, after: Dimensions, mesh: sdy.Mesh) -> str | None:
    expected: list[Parts | None] = list(before)
    for param in op["params"].params:
        expected[param.source] = _gathered(before[param.source], param.axes, mesh)
        expected[param.target] = _sliced(before[param.target], param.axes, mesh)
    faults = (_dimension_fault(index, parts, after[index], mesh) for index, parts in enumerate(expected))
    return next(filter(None, faults), None)


def _permuted(op: Op, before: Dimensions, after: Dimensions, mesh: sdy.Mesh) -> str | None:
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        sizes = [prod(stop // start for _, start, stop in parts) for parts in (old, new)]
        if sizes[0] != sizes[1]:
            return f"dimension {index} is cut in {sizes[0]} before and in {sizes[1]} after"
    return None


def _same_dimensions(op: Op, before: Dimensions, after: Dimensions, mesh: sdy.Mesh) -> str | None:
    faults = (_dimension_fault(index, parts, after[index], mesh) for index, parts in enumerate(before))
    return next(filter(None, faults), None) or _overlap_fault(op, before, mesh)


def _overlap_fault(op: Op, before: Dimensions, mesh: sdy.Mesh) -> str | None:
    """Axes that are reduced over, or become unreduced, stand in the mesh's order and shard no dimension."""
    axes = [axis for entry in collective_axes(op) for axis in entry]
    parts = _parts(axes, mesh)
    if parts != _joined(axes, mesh):
        return f"the axes stand in the order of the mesh, got {_shown(parts, mesh)}"
    if _overlap(parts, (part for dimension in before for part in dimension)):
        return f"the axes {_shown(parts, mesh)} shard a dimension of the operand"
    left = _joined(op["out_sharding"].unreduced, mesh)
    if op.name == "sdy.all_reduce" and _overlap(parts, left):
        return f"the result's axes {_shown(left, mesh)} stay unreduced, {_shown(parts, mesh)} are reduced over"
    return None


def _overlap(left: Parts, right: Iterable[tuple[str, int, int]]) -> bool:
    others = list(right)
    return any(
        name == other and first < stop and start < last for name, start, stop in left for other, first, last in others
    )


def _unreduced_fault(op: Op, given: sdy.TensorSharding, made: sdy.TensorSharding, mesh: sdy.Mesh) -> str | None:
    """The ops that make axes unreduced add them to those that are."""
    if op.name not in ("sdy.sharded_to_unreduced", "sdy.replicated_to_unreduced"):
        return None
    added = [axis for axes in collective_axes(op) for axis in axes]
    expected = _joined([*given.unreduced, *added], mesh)
    found = _joined(made.unreduced, mesh)
    if expected == found:
        return None
    return f"the result's unreduced axes are {_shown(expected, mesh)}, got {_shown(found, mesh)}"


def _joined(axes: Iterable[sdy.AxisRef], mesh: sdy.Mesh) -> Parts:
    """The parts in the order of the mesh, those that follow one another joined."""
    known = list(axes)
    known.sort(key=lambda axis: (mesh.axis_position(axis.name), axis.interval(mesh.axis_size(axis.name) or 1)))
    return _parts(known, mesh)


_AXES = {
    "sdy.all_gather": "gathering_axes",
    "sdy.all_reduce": "reduction_axes",
    "sdy.all_slice": "slicing_axes",
    "sdy.reduce_scatter": "reduce_scatter_axes",
    "sdy.replicated_to_unreduced": "axes",
    "sdy.sharded_to_unreduced": "axes",
}
_CHECKS: dict[str, _Check] = {
    "sdy.all_gather": _per_dimension(_gathered),
    "sdy.all_reduce": _same_dimensions,
    "sdy.all_slice": _per_dimension(_sliced),
    "sdy.all_to_all": _all_to_all,
    "sdy.collective_permute": _permuted,
    "sdy.reduce_scatter": _per_dimension(_sliced),
    "sdy.replicated_to_unreduced": _same_dimensions,
    "sdy.sharded_to_unreduced": _per_dimension(_gathered),
}
