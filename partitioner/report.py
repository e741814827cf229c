"""What a per-process program sends: a table of its collectives, and their totals.

Bytes are what one process sends with the usual algorithms on k processes: all_gather (k - 1) blocks, all_reduce
2 (k - 1) / k of the value, reduce_scatter and all_to_all (k - 1) / k, collective_permute the value where it moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from spmd.analysis.process_groups import given_groups
from spmd.dialects.core import Trait, has_trait
from spmd.ir import Module, Op
from spmd.types import TensorType

_ALL_REDUCES = ("stablehlo.all_reduce", "stablehlo.cross-replica-sum")


@dataclass(frozen=True)
class Row:
    """One collective: `bytes` is what a process sends each time, `in_loop` whether that may be many times."""

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
        yield Row(kind, _groups(op, module), sent_bytes(op, module), str(op.location), in_loop, op)
    for region in op.regions:
        for block in region.blocks:
            for inner in block.ops:
                yield from _rows(inner, module, in_loop or op.name == "stablehlo.while")


def _groups(op: Op, module: Module) -> str:
    if op.name == "stablehlo.collective_permute":
        pairs = op["source_target_pairs"]
        return f"{len(pairs)} pairs"
    return "x".join(map(str, given_groups(op, module).shape))


def sent_bytes(op: Op, module: Module) -> int:
    """Bytes that a process sends in one collective of `module`."""
    size = sum(value.type.nbytes for value in op.operands if isinstance(value.type, TensorType))
    if op.name == "stablehlo.collective_permute":
        pairs = op["source_target_pairs"]
        return size if (pairs[:, 0] != pairs[:, 1]).any() else 0
    groups = given_groups(op, module)
    count = groups.shape[1] if groups.size else 1
    if op.name == "stablehlo.all_gather":
        return size * (count - 1)
    if op.name == "stablehlo.collective_broadcast":
        return size
    return size * (count - 1) * (2 if op.name in _ALL_REDUCES else 1) // count


def total_bytes(module: Module) -> int:
    """Bytes that a process sends in all collectives, those in loops counted once."""
    return sum(row.bytes for row in collectives(module))


def format_table(module: Module, seconds: Callable[[Op], float] | None = None) -> str:
    """The collectives as a table with totals by kind, and the expected time of each where `seconds` tells it."""
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
