"""What a per-process program sends: a table of its collectives, and their totals.

Bytes are what one process sends with the usual algorithms on k processes: all_gather (k - 1) blocks, all_reduce
2 (k - 1) / k of the value, reduce_scatter and all_to_all (k - 1) / k, collective_permute the value where it moves.
"""

from __future__ import annotations

from collections.abc import Iterator
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


def collectives(module: Module) -> list[Row]:
    """The collectives of a per-process module, in program order."""
    return [row for function in module.functions for op in function.body.ops for row in _rows(op, module, False)]


def _rows(op: Op, module: Module, in_loop: bool) -> Iterator[Row]:
    if has_trait(op, Trait.COLLECTIVE):
        kind = op.name.removeprefix("stablehlo.")
        yield Row(kind, _groups(op, module), sent_bytes(op, module), str(op.location), in_loop)
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


def format_table(module: Module) -> str:
    """The collectives as a table with totals by kind."""
    rows = collectives(module)
    lines = [f"{'collective':20} {'groups':>10} {'bytes/process':>14}  source"]
    for row in rows:
        loop = " (in a loop)" if row.in_loop else ""
        lines.append(f"{row.kind:20} {row.groups:>10} {row.bytes:>14,}  {row.place}{loop}")
    for kind in sorted({row.kind for row in rows}):
        mine = [row for row in rows if row.kind == kind]
        lines.append(f"{'total ' + kind:20} {len(mine):>9}x {sum(row.bytes for row in mine):>14,}")
    lines.append(f"{'total':20} {len(rows):>9}x {sum(row.bytes for row in rows):>14,}")
    return "\n".join(lines)
