"""Lists of axis references: validation, and operations on the sub-axes that they consist of.

Source: Shardy's dialect documentation, the "Constraints" of AxisRefListAttr and SubAxisInfoAttr.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spmd.dialects import sdy_attributes as sdy

#: Sub-axes, major first: the axis, and its interval (pre-size, pre-size * size).
Parts = list[tuple[str, int, int]]


class ShardingFault(Exception):
    """A violated constraint on shardings."""


def parts_of(axes: Iterable[sdy.AxisRef], mesh: sdy.Mesh) -> Parts:
    """Return valid axes as sub-axes, adjacent ones merged."""
    parts: Parts = []
    for axis in axes:
        size = mesh.axis_size(axis.name)
        assert size is not None
        append_part(parts, axis.name, *axis.interval(size))
    return parts


def append_part(parts: Parts, name: str, start: int, stop: int) -> None:
    """Append a sub-axis, merged with the last one if adjacent."""
    if parts and parts[-1][0] == name and parts[-1][2] == start:
        start = parts.pop()[1]
    parts.append((name, start, stop))


def joined_parts(axes: Iterable[sdy.AxisRef], mesh: sdy.Mesh) -> Parts:
    """Return the sub-axes in mesh order, adjacent ones merged."""
    return parts_of(sort_axes(list(axes), mesh), mesh)


def format_parts(parts: Parts, mesh: sdy.Mesh) -> str:
    """Return sub-axes as text, a list of axis references."""
    texts = [
        f'"{name}"' if (start, stop) == (1, mesh.axis_size(name)) else f'"{name}":({start}){stop // start}'
        for name, start, stop in parts
    ]
    return "{" + ", ".join(texts) + "}"


def overlap(left: Parts, right: Iterable[tuple[str, int, int]]) -> bool:
    """Return whether a sub-axis of `left` overlaps one of `right`."""
    others = list(right)
    return any(
        name == other and first < stop and start < last for name, start, stop in left for other, first, last in others
    )


def difference(left: Parts, right: Parts) -> Parts:
    """Return the parts of `left` that `right` does not cover."""
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
    """Return `axes` in mesh order, sub-axes by pre-size."""

    def key(axis: sdy.AxisRef) -> tuple[int, tuple[int, int]]:
        return mesh.axis_position(axis.name), axis.interval(mesh.axis_size(axis.name) or 1)

    return sorted(axes, key=key)


def check_axes(lists: Sequence[Sequence[sdy.AxisRef]], mesh: sdy.Mesh) -> None:
    """Raise ShardingFault for unknown axes, invalid sub-axes, overlaps, and adjacent sub-axes that should be merged."""
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
                    raise ShardingFault(f"axis {axis.format()} is used twice, or overlaps another sub-axis of its axis")
            seen[axis.name].append((start, stop))
            if previous and previous.name == axis.name and previous.interval(size)[1] == start:
                raise ShardingFault(f"{previous.format()} and {axis.format()} are adjacent and must be merged")
            previous = axis


def check_sorted(name: str, axes: Sequence[sdy.AxisRef], mesh: sdy.Mesh) -> None:
    """Raise ShardingFault unless the (valid) axes are in mesh order."""
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
        raise ShardingFault(f"sub-axis {axis.format()} is the full axis and must be written as such")
