"""Pictures for the pages, as SVG. Their values are computed by the operations that they show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from IPython.display import SVG

from collectives.arrays import Array
from collectives.grid import ProcessGrid
from collectives.operations import Operation, describe

#: Colours of processes, distinct also for readers with red-green colour blindness (Okabe and Ito), light under text.
COLOURS = ("#56b4e9", "#e69f00", "#3dbf97", "#cc79a7", "#f0e442", "#7aa6d8", "#d98c5f", "#bbbbbb")
COMPUTED = "#dddddd"
CELL, GAP, ROW = 46, 18, 34


def operands(operation: Operation, ranks: Sequence[int]) -> list[Array]:
    """Return one operand per process, whose elements identify it: 10, 11, ... on process 1."""
    count = int(np.prod(operation.shape, dtype=int))
    return [(np.arange(count) + 10 * rank).astype(operation.dtype).reshape(operation.shape) for rank in ranks]


def before_and_after(operation: Operation, groups: Sequence[tuple[int, ...]]) -> SVG:
    """Draw each process's operand and result of `operation` within `groups`, side by side, in row-major order."""
    before: dict[int, Array] = {}
    after: dict[int, Array] = {}
    for group in groups:
        arrays = operands(operation, group)
        before.update(zip(group, arrays, strict=True))
        after.update(zip(group, operation.evaluate(arrays), strict=True))
    ranks = sorted(before)
    owner = {value: rank for rank in ranks for value in before[rank].ravel().tolist()}
    widest = [max(side[rank].size for rank in ranks) for side in (before, after)]
    left = 92
    right = left + widest[0] * CELL + 3 * GAP
    parts = [_text(left, 14, "before"), _text(right, 14, f"after {operation.name}")]
    for line, rank in enumerate(ranks):
        top = 26 + line * ROW
        parts.append(_text(0, top + 20, f"process {rank}"))
        parts += _row(left, top, before[rank], owner) + _row(right, top, after[rank], owner)
    return _picture(right + widest[1] * CELL + 4, 30 + len(ranks) * ROW, parts, f"{describe(operation)} in {groups}")


def groups_on_grid(grid: ProcessGrid, groupings: Mapping[str, Sequence[tuple[int, ...]]]) -> SVG:
    """Draw the grid once for each grouping, replicas as rows; processes of one group have one colour."""
    width, height = grid.num_partitions * CELL, grid.num_replicas * ROW
    parts, top = [], 0
    for name, groups in groupings.items():
        parts.append(_text(0, top + 14, name))
        for number, group in enumerate(groups):
            for rank in group:
                row, column = divmod(rank, grid.num_partitions)
                parts.append(_cell(column * CELL, top + 24 + row * ROW, _colour(number), str(rank)))
        top += height + 40
    return _picture(max(width, 380), top, parts, "process groups: " + ", ".join(groupings))


def blocks(arrays: Mapping[str, tuple[Sequence[int], Sequence[str | None]]], mesh: Mapping[str, int]) -> SVG:
    """Draw arrays as blocks that list their processes. `arrays` has the shape and the mesh axis of each dimension."""
    parts, left = [], 0
    sizes = list(mesh.values())
    coordinates = np.stack(np.unravel_index(np.arange(np.prod(sizes)), sizes), axis=1)
    for name, (_, spec) in arrays.items():
        axes = [None if axis is None else list(mesh).index(axis) for axis in spec]
        rows, columns = (1 if axis is None else sizes[axis] for axis in axes)
        parts.append(_text(left, 14, name))
        width, height = 200 / columns, 120 / rows
        for row, column in np.ndindex(rows, columns):
            wanted = [(axis, at) for axis, at in zip(axes, (row, column), strict=True) if axis is not None]
            held = [rank for rank, at in enumerate(coordinates) if all(at[axis] == value for axis, value in wanted)]
            words = ",".join(map(str, held))
            parts.append(
                f'<rect x="{left + column * width}" y="{22 + row * height}" width="{width - 2}" height="{height - 2}" '
                f'rx="3" fill="{_colour(held[0])}"/><text x="{left + (column + 0.5) * width - 1}" '
                f'y="{26 + (row + 0.5) * height}" text-anchor="middle" style="fill:#111">{words}</text>'
            )
        left += 200 + GAP
    return _picture(left, 146, parts, f"blocks of {', '.join(arrays)} and the processes that hold them")


def _cell(x: float, y: float, colour: str, words: str) -> str:
    return (
        f'<rect x="{x}" y="{y}" width="{CELL - 3}" height="{ROW - 6}" rx="3" fill="{colour}"/>'
        f'<text x="{x + CELL / 2 - 1.5}" y="{y + 19}" text-anchor="middle" style="fill:#111">{words}</text>'
    )


def _row(x: int, y: int, array: Array, owner: dict[float, int]) -> list[str]:
    return [
        _cell(x + i * CELL, y, _colour(owner[value]) if value in owner else COMPUTED, f"{value:g}")
        for i, value in enumerate(array.ravel().tolist())
    ]


def _colour(rank: int) -> str:
    return COLOURS[rank % len(COLOURS)]


def _text(x: float, y: float, words: str) -> str:
    return f'<text x="{x}" y="{y}">{escape(words)}</text>'


def _picture(width: float, height: float, parts: Sequence[str], title: str) -> SVG:
    return SVG(
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" role="img" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="13">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )
