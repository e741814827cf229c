"""The communication of a per-process program: a table of its collectives, and their totals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from collectives.explain import cost
from collectives.grid import ProcessGrid
from spmd.analysis.collectives import DESCRIPTIONS
from spmd.analysis.grid import grid_of
from spmd.analysis.loops import trip_count
from spmd.dialects.core import Trait, has_trait
from spmd.dialects.mesh_groups import given_groups
from spmd.ir import Module, Op
from spmd.support.arrays import Array


@dataclass(frozen=True)
class CollectiveRow:
    """One collective.

    `bytes` is the larger of what the busiest process sends and receives per execution; `turns` is the number of
    executions, by the trip counts of surrounding loops, None if unknown.
    """

    kind: str
    groups: str
    bytes: int
    place: str
    turns: int | None
    op: Op

    @property
    def times(self) -> int:
        """The executions counted in totals: one if unknown."""
        return 1 if self.turns is None else self.turns


def collectives(module: Module) -> list[CollectiveRow]:
    """Return the collectives of a per-process module, in program order."""
    return [row for function in module.functions for op in function.body.ops for row in _rows(op, module, 1)]


def _rows(op: Op, module: Module, turns: int | None) -> Iterator[CollectiveRow]:
    if has_trait(op, Trait.COLLECTIVE):
        kind = op.name.removeprefix("stablehlo.")
        yield CollectiveRow(kind, _groups(op, module), moved_bytes(op, module), str(op.location), turns, op)
    for number, region in enumerate(op.regions):
        inside = _turns(op, number, turns)
        for block in region.blocks:
            for inner in block.ops:
                yield from _rows(inner, module, inside)


def _turns(op: Op, region: int, turns: int | None) -> int | None:
    """Return the executions of a region of `op`, itself executed `turns` times; a loop's condition runs once more."""
    if op.name != "stablehlo.while":
        return turns
    count = trip_count(op)
    return None if count is None or turns is None else turns * (count + (region == 0))


def _groups(op: Op, module: Module) -> str:
    if op.name == "stablehlo.collective_permute":
        pairs = op["source_target_pairs"]
        return f"{len(pairs)} pairs"
    return "x".join(map(str, given_groups(op, module).shape))


def moved_bytes(op: Op, module: Module) -> int:
    """Return the larger of the bytes that the busiest process sends and receives in one collective of `module`."""
    grid = grid_of(module)
    collective = DESCRIPTIONS[op.name](op, _AsPrinted(module, _Options(grid)))
    groups = collective.groups
    size = grid.size if groups is None else max(map(len, groups), default=1)
    costs = [cost(operation, size) for operation in collective.operations]
    return sum(max(each.sent, each.received) for each in costs)


@dataclass(frozen=True)
class _Options:
    """The compile options that descriptions of collectives read, at their defaults."""

    grid: ProcessGrid
    reproducible: bool = False
    combine_threshold: int = 0


@dataclass(frozen=True)
class _AsPrinted:
    """The context of collectives that are described but not executed."""

    module: Module
    options: _Options

    def vectorized(self, op: Op, index: int) -> Callable[..., tuple[Array, ...]]:
        return lambda *operands: operands


def total_bytes(module: Module) -> int:
    """Return the bytes of all collectives, multiplied by the trip counts of surrounding loops where known."""
    return sum(row.times * row.bytes for row in collectives(module))


def format_table(module: Module, seconds: Callable[[Op], float] | None = None) -> str:
    """Return a table of the collectives, with the expected time of each if `seconds` is given.

    Rows are for one execution, totals by kind for all (one if unknown).
    """
    rows = collectives(module)
    header = f"{'collective':20} {'groups':>10} {'bytes/process':>14} {'turns':>6}"
    times = {row.op: seconds(row.op) for row in rows} if seconds else {}

    def line(kind: str, groups: str, nbytes: int, turns: str, took: float, place: str = "") -> str:
        time = f" {1e6 * took:>12,.1f}" if seconds else ""
        return f"{kind:20} {groups:>10} {nbytes:>14,} {turns:>6}{time}  {place}".rstrip()

    def total(kind: str, mine: Sequence[CollectiveRow]) -> str:
        took = sum(row.times * times[row.op] for row in mine) if seconds else 0.0
        return line(kind, f"{len(mine)}x", sum(row.times * row.bytes for row in mine), "", took)

    lines = [f"{header}{' microseconds' if seconds else ''}  source"]
    lines += [line(row.kind, row.groups, row.bytes, turns_text(row), times.get(row.op, 0.0), row.place) for row in rows]
    for kind in sorted({row.kind for row in rows}):
        lines.append(total(f"total {kind}", [row for row in rows if row.kind == kind]))
    return "\n".join([*lines, total("total", rows)])


def turns_text(row: CollectiveRow) -> str:
    """Return the `turns` of a row as shown in tables: `?` if unknown."""
    return "?" if row.turns is None else f"{row.turns:,}"
