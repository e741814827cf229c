"""What a per-process program sends: a table of its collectives, and their totals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from collectives.explain import cost
from collectives.grid import ProcessGrid
from spmd.analysis.collectives import DESCRIPTIONS
from spmd.analysis.grid import grid_of
from spmd.dialects.core import Trait, has_trait
from spmd.dialects.mesh_groups import given_groups
from spmd.ir import Module, Op
from spmd.support.arrays import Array


@dataclass(frozen=True)
class Row:
    """One collective: `bytes` is what the busiest process sends or receives each time, `in_loop` whether that may be
    many times."""

    kind: str
    groups: str
    bytes: int
    place: str
    in_loop: bool
    op: Op


def collectives(module: Module) -> list[Row]:
    """The collectives of a per-process module, in program order."""
    return [row for function in module.functions for op in function.body.ops for row in _rows(op, module, False)]


def _rows(op: Op, module: Module, in_loop: bool) -> Iterator[Row]:
    if has_trait(op, Trait.COLLECTIVE):
        kind = op.name.removeprefix("stablehlo.")
        yield Row(kind, _groups(op, module), moved_bytes(op, module), str(op.location), in_loop, op)
    for region in op.regions:
        for block in region.blocks:
            for inner in block.ops:
                yield from _rows(inner, module, in_loop or op.name == "stablehlo.while")


def _groups(op: Op, module: Module) -> str:
    if op.name == "stablehlo.collective_permute":
        pairs = op["source_target_pairs"]
        return f"{len(pairs)} pairs"
    return "x".join(map(str, given_groups(op, module).shape))


def moved_bytes(op: Op, module: Module) -> int:
    """Bytes that the busiest process sends or receives, whichever is more, in one collective of `module`."""
    grid = grid_of(module)
    collective = DESCRIPTIONS[op.name](op, _AsPrinted(module, _Options(grid)))
    groups = collective.groups
    size = grid.size if groups is None else max(map(len, groups), default=1)
    costs = [cost(operation, size) for operation in collective.operations]
    return sum(max(each.sent, each.received) for each in costs)


@dataclass(frozen=True)
class _Options:
    """The default compile options that descriptions of collectives read."""

    grid: ProcessGrid
    reproducible: bool = False
    combine_threshold: int = 0


@dataclass(frozen=True)
class _AsPrinted:
    """A module whose collectives are described and never carried out."""

    module: Module
    options: _Options

    def vectorized(self, op: Op, index: int) -> Callable[..., tuple[Array, ...]]:
        return lambda *operands: operands


def total_bytes(module: Module) -> int:
    """The bytes of all collectives, those in loops counted once."""
    return sum(row.bytes for row in collectives(module))


def format_table(module: Module, seconds: Callable[[Op], float] | None = None) -> str:
    """The collectives as a table with totals by kind, and the expected time of each where `seconds` has it."""
    rows = collectives(module)
    header = f"{'collective':20} {'groups':>10} {'bytes/process':>14}"
    times = {row.op: seconds(row.op) for row in rows} if seconds else {}

    def line(kind: str, groups: str, mine: Sequence[Row], place: str = "") -> str:
        took = f" {1e6 * sum(times[row.op] for row in mine):>12,.1f}" if seconds else ""
        return f"{kind:20} {groups:>10} {sum(row.bytes for row in mine):>14,}{took}  {place}".rstrip()

    lines = [f"{header}{' microseconds' if seconds else ''}  source"]
    lines += [line(row.kind, row.groups, [row], f"{row.place}{' (in a loop)' if row.in_loop else ''}") for row in rows]
    for kind in sorted({row.kind for row in rows}):
        mine = [row for row in rows if row.kind == kind]
        lines.append(line(f"total {kind}", f"{len(mine)}x", mine))
    return "\n".join([*lines, line("total", f"{len(rows)}x", rows)])
