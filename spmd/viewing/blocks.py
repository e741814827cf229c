"""The blocks of a sharded array and the processes that hold them: as data, text, and HTML tables."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from collectives.states import ranges_text
from partitioner.sharding import ShardedType
from spmd.support.amounts import amount
from spmd.types import TensorType

#: The largest number of rows and columns of a table, of tables, and of rank ranges in a cell.
_MOST_CELLS, _MOST_PAGES, _MOST_RUNS = 16, 4, 3

Part = tuple[slice, ...]


@dataclass(frozen=True)
class ShownBlock:
    """A block of an array, without padding, and the ranks that hold it."""

    part: Part
    ranks: tuple[int, ...]


def blocks(layout: ShardedType, processes: int) -> dict[tuple[int, ...], ShownBlock]:
    """Return the blocks of an array over `processes`, by block index along each dimension."""
    sharding, type = layout.sharding, layout.type
    assert sharding is not None and isinstance(type, TensorType)
    ranks = np.arange(processes)
    devices = ranks % sharding.mesh.size
    indices = [sharding.mesh.block_index(axes)[devices] for axes in sharding.dimensions]
    held: dict[tuple[int, ...], list[int]] = {}
    for rank, index in zip(ranks.tolist(), np.stack([devices, *indices], 1)[:, 1:].tolist(), strict=True):
        held.setdefault(tuple(index), []).append(rank)
    return {index: ShownBlock(layout.index(found[0]), tuple(found)) for index, found in sorted(held.items())}


@dataclass(frozen=True)
class Sheet:
    """The blocks along the last two dimensions, as rows of cells; `title` is the range of the leading dimensions."""

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]


def sheets(layout: ShardedType, processes: int) -> Iterator[Sheet]:
    """Yield an array as tables of ranks, one per block of the leading dimensions, up to a limit."""
    found = blocks(layout, processes)
    counts = [1 + max(index[at] for index in found) for at in range(len(next(iter(found))))]
    leading, last = counts[:-2], [1, 1, *counts][-2:]
    pad = 2 - min(2, len(counts))
    for page in list(product(*map(range, leading)))[:_MOST_PAGES]:
        grid = [
            [found[(*page, *(row, column)[pad:])] for column in range(min(last[1], _MOST_CELLS))]
            for row in range(min(last[0], _MOST_CELLS))
        ]
        first = found[(*page, *(0, 0)[pad:])].part
        title = ", ".join(_range(part) for part in first[: len(leading)])
        columns = [_range(block.part[-1]) if counts else "" for block in grid[0]]
        rows = [(_range(row[0].part[-2]) if not pad else "", [_ranks(block.ranks) for block in row]) for row in grid]
        yield Sheet(title, columns, rows)


def left_out(layout: ShardedType, processes: int) -> bool:
    """Return whether `sheets` omits blocks."""
    counts = [1 + max(column) for column in zip(*blocks(layout, processes), strict=True)]
    return int(np.prod(counts[:-2])) > _MOST_PAGES or any(count > _MOST_CELLS for count in counts[-2:])


def headline(layout: ShardedType) -> str:
    """Return the type, sharding and block: `tensor<8x6xf32> [{"data"}, {}], a block is tensor<4x6xf32> of 96 B`."""
    local = layout.local_type
    if layout.sharding is None or not isinstance(local, TensorType):
        return f"{layout}, the same on every process"
    text = f"{layout}, a block is {local} of {amount(local.nbytes)}"
    if layout.sharding.partial:
        text += f", each a partial value of the {layout.sharding.reduction.removeprefix('stablehlo.')} over its group"
    return text


def text(layout: ShardedType, processes: int) -> Iterator[str]:
    """Yield lines of text: an array's blocks, each with the ranks that hold it."""
    yield headline(layout)
    if layout.sharding is None:
        return
    for sheet in sheets(layout, processes):
        heads = [name for name, _ in sheet.rows]
        cells = [sheet.columns, *(row for _, row in sheet.rows)]
        widths = [max(len(row[at]) for row in cells) for at in range(len(sheet.columns))]
        margin = max(map(len, heads))
        if sheet.title:
            yield f"  [{sheet.title}, ...]"
        for head, row in zip(["", *heads], cells, strict=True):
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            yield f"    {head:>{margin}}  {line}".rstrip()
    if left_out(layout, processes):
        yield "    ..."


def table(layout: ShardedType, processes: int) -> str:
    """Return the same as HTML tables, for a notebook."""
    parts = [f"<p>{html.escape(headline(layout))}</p>"]
    for sheet in sheets(layout, processes) if layout.sharding is not None else ():
        head = "".join(f"<th>{html.escape(name)}</th>" for name in ("", *sheet.columns))
        rows = (
            f"<tr><th>{html.escape(name)}</th>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>"
            for name, row in sheet.rows
        )
        title = f"<caption>[{html.escape(sheet.title)}, ...]</caption>" if sheet.title else ""
        parts.append(f"<table>{title}<tr>{head}</tr>{''.join(rows)}</table>")
    return "".join(parts)


def _range(part: slice) -> str:
    return f"{part.start}:{part.stop}"


def _ranks(ranks: Sequence[int]) -> str:
    """Return `0-3, 8`, or `0, 2, ... 14` for regular steps."""
    steps = {after - before for before, after in pairwise(ranks)}
    if len(ranks) > 3 and len(steps) == 1 and steps != {1}:
        return f"{ranks[0]}, {ranks[1]}, ... {ranks[-1]}"
    runs = ranges_text(ranks).split(", ")
    return ", ".join(runs[:_MOST_RUNS]) + (f", ... {len(ranks)} in all" if len(runs) > _MOST_RUNS else "")
