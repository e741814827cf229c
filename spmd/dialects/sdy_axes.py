"""Lists of axis references: whether they are sound, and as parts of axes that can be joined, cut and compared.

Source: Shardy's dialect documentation, the "Constraints" of AxisRefListAttr and SubAxisInfoAttr.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spmd.dialects import sdy_attributes as sdy

#: Parts of mesh axes, major to minor: the axis, and the product of the sizes before and up to the end of the part.
Parts = list[tuple[str, int, int]]


class ShardingFault(Exception):
    """What breaks a constraint on shardings."""


def parts_of(axes: Iterable[sdy.AxisRef], mesh: sdy.Mesh) -> Parts:
    """Known axes as parts, those that follow one another joined."""
    parts: Parts = []
    for axis in axes:
        size = mesh.axis_size(axis.name)
        assert size is not None
        append_part(parts, axis.name, *axis.interval(size))
    return parts


def append_part(parts: Parts, name: str, start: int, stop: int) -> None:
    """Add a part, joined with the last one where it follows that."""
    if parts and parts[-1][0] == name and parts[-1][2] == start:
        start = parts.pop()[1]
    parts.append((name, start, stop))


def joined_parts(axes: Iterable[sdy.AxisRef], mesh: sdy.Mesh) -> Parts:
    """Return the parts in the order of the mesh, those that follow one another joined."""
    return parts_of(sort_axes(list(axes), mesh), mesh)


def format_parts(parts: Parts, mesh: sdy.Mesh) -> str:
    """Parts as a list of axis references."""
    texts = [
        f'"{name}"' if (start, stop) == (1, mesh.axis_size(name)) else f'"{name}":({start}){stop // start}'
        for name, start, stop in parts
    ]
    return "{" + ", ".join(texts) + "}"


def overlap(left: Parts, right: Iterable[tuple[str, int, int]]) -> bool:
    """Return whether a part of `left` and one of `right` have something in common."""
    others = list(right)
    return any(
        name == other and first < stop and start < last for name, start, stop in left for other, first, last in others
    )


def difference(left: Parts, right: Parts) -> Parts:
    """What of the parts `left` no part of `right` covers."""
    parts = list(left)
    for other, first, last in right:
        rest: Parts = []
        for name, start, stop in parts:
            if name != other or last <= start or stop <= first:
                rest.append((name, start, stop))
                continue
            if start < first:
                rest.append((name, start, first))
            if last < stop:
                rest.append((name, last, stop))
        parts = rest
    return parts


def sort_axes(axes: Sequence[sdy.AxisRef], mesh: sdy.Mesh) -> list[sdy.AxisRef]:
    """Return `axes` in the order of the mesh, sub-axes by where they start."""

    def key(axis: sdy.AxisRef) -> tuple[int, tuple[int, int]]:
        return mesh.axis_position(axis.name), axis.interval(mesh.axis_size(axis.name) or 1)

    return sorted(axes, key=key)


def check_axes(lists: Sequence[Sequence[sdy.AxisRef]], mesh: sdy.Mesh) -> None:
    """ShardingFault when an axis is unknown, a sub-axis does not fit, two overlap, or two neighbours could be one."""
    seen: dict[str, list[tuple[int, int]]] = {}
    for axes in lists:
        previous: sdy.AxisRef | None = None
        for axis in axes:
            size = mesh.axis_size(axis.name)
            if size is None:
                raise ShardingFault(f'unknown axis "{axis.name}"; the mesh has {mesh.format()}')
            _check_sub_axis(axis, size)
            start, stop = axis.interval(size)
            for other_start, other_stop in seen.setdefault(axis.name, []):
                if (start < other_stop and other_start < stop) or (start, stop) == (other_start, other_stop):
                    raise ShardingFault(f"axis {axis.format()} is used twice, or overlaps with another part of itself")
            seen[axis.name].append((start, stop))
            if previous and previous.name == axis.name and previous.interval(size)[1] == start:
                raise ShardingFault(f"{previous.format()} and {axis.format()} follow one another and must be one axis")
            previous = axis


def check_sorted(name: str, axes: Sequence[sdy.AxisRef], mesh: sdy.Mesh) -> None:
    """ShardingFault when known axes do not stand in the order of the mesh."""
    if list(axes) != sort_axes(axes, mesh):
        raise ShardingFault(f"{name} axes must stand in the order of the mesh, got {sdy.format_axes(tuple(axes))}")


def _check_sub_axis(axis: sdy.AxisRef, size: int) -> None:
    info = axis.sub_axis_info
    if info is None:
        return
    if info.pre_size < 1:
        raise ShardingFault(f"the pre-size of {axis.format()} must be at least 1")
    if info.size <= 1:
        raise ShardingFault(f"the size of sub-axis {axis.format()} must be greater than 1")
    if size % (info.pre_size * info.size):
        raise ShardingFault(f"sub-axis {axis.format()} does not divide its axis of size {size}")
    if info.size == size:
        raise ShardingFault(f"sub-axis {axis.format()} is the whole axis and must be written so")
