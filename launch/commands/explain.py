"""``spmd explain``: what a program's processes say to each other: groups, bytes, algorithms."""

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from launch import options

if TYPE_CHECKING:
    from collectives.grid import Groups, ProcessGrid
    from spmd.analysis.collectives import Collective
    from spmd.compiler.pipeline.lower import ModuleLowering
    from spmd.ir import Block, Op

HELP = "show the process grid and each collective's groups, bytes and algorithm, or the schedule"

_MOST_GROUPS = 8
_LOOPS = ("stablehlo.while",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.program(parser)
    options.grid(parser)
    parser.add_argument("--schedule", action="store_true", help="the units that run, with their operations and bytes")
    options.communication(parser)


def run(args: argparse.Namespace) -> int:
    from spmd.compiler.pipeline.lower import ModuleLowering

    prepared = options.prepared(args)
    lowering = ModuleLowering(prepared.module, prepared.options)
    flat = lowering.flatten(prepared.function)
    if args.schedule:
        from spmd.compiler.schedule.show import show_schedule

        print("\n".join(show_schedule(lowering.schedule(flat.body), lowering.schedule)))
        return 0
    print("\n".join(_report(prepared.options.grid, list(_collectives(lowering, flat.body, False, set())))))
    for note in prepared.notes:
        print(f"not split: {note}")
    return 0


def _collectives(
    lowering: "ModuleLowering", block: "Block", repeated: bool, seen: set[str]
) -> Iterator[tuple["Op", "Collective | None", bool]]:
    """The collectives of a block and of the regions inside, with what each asks for, and whether a loop repeats it.

    A function that stays a function, being called too often to be inlined, counts as a loop; `seen` are those met.
    """
    from spmd.analysis.collectives import DESCRIPTIONS
    from spmd.dialects.calls import CALLS

    for op in block.ops:
        if op.name in CALLS and (symbol := op[CALLS[op.name]]) not in seen:
            seen.add(symbol)
            yield from _collectives(lowering, lowering.flatten(lowering.lookup(symbol, op)).body, True, seen)
        if op.name in DESCRIPTIONS:
            yield op, DESCRIPTIONS[op.name](op, lowering), repeated
            continue
        if op.name in ("stablehlo.send", "stablehlo.recv", "stablehlo.infeed", "stablehlo.outfeed"):
            yield op, None, repeated
        for region in op.regions:
            for inner in region.blocks:
                yield from _collectives(lowering, inner, repeated or op.name in _LOOPS, seen)


def _report(grid: "ProcessGrid", collectives: list[tuple["Op", "Collective | None", bool]]) -> list[str]:
    from spmd.support.amounts import amount

    lines = [
        f"process grid {grid} (replicas by partitions): {grid.size} process{'es' * (grid.size > 1)}, "
        f"rank = replica_id * {grid.num_partitions} + partition_id"
    ]
    sent = received = 0
    for op, collective, repeated in collectives:
        lines.append("")
        if collective is None:
            lines.append(f"{op.location}: {op.name}{_channel(op)}{', in a loop' * repeated}")
            continue
        told, out, back = _tell(grid, op, collective, repeated)
        lines += told
        sent, received = sent + out, received + back
    if not collectives:
        lines.append("no collectives: the processes do not talk to each other")
    else:
        lines.append("")
        lines.append(f"once through, a process sends up to {amount(sent)} and receives up to {amount(received)}")
    return lines


def _tell(grid: "ProcessGrid", op: "Op", collective: "Collective", repeated: bool) -> tuple[list[str], int, int]:
    from collectives.explain import cost
    from collectives.operations import describe
    from spmd.support.amounts import amount

    size = grid.size if collective.groups is None else collective.groups.largest
    lines = [f"{op.location}: {op.name}{', in a loop' * repeated}", f"  {_groups(collective.groups)}"]
    sent = received = 0
    for operation in collective.messages:
        price = cost(operation, size)
        sent, received = sent + price.sent, received + price.received
        lines.append(f"  {describe(operation)}: sends {amount(price.sent)}, receives {amount(price.received)}")
        lines.append(f"    {price.algorithm}")
    if len(collective.messages) < len(collective.operations):
        lines.append(f"    {len(collective.operations)} operands travel as one message")
    return lines, sent, received


def _channel(op: "Op") -> str:
    handle = op.attributes.get("channel_handle")
    return "" if handle is None else f", channel {handle.handle}"


def _groups(groups: "Groups | None") -> str:
    from collectives.operations import short_list

    if groups is None:
        return "pairs of processes, by rank"
    shown = ", ".join(short_list(group) for group in groups[:_MOST_GROUPS])
    rest = f", ... {len(groups)} in all" if len(groups) > _MOST_GROUPS else ""
    return f"{len(groups)} group{'s' * (len(groups) > 1)}: {shown}{rest}"
