"""``spmd explain``: the communication of a program: groups, bytes, algorithms."""

import argparse
from typing import TYPE_CHECKING

from launch import options, progress, terminal

if TYPE_CHECKING:
    from collectives.grid import Groups, ProcessGrid
    from spmd.analysis.collectives import Collective
    from spmd.compiler.pipeline.prepare import Prepared
    from spmd.ir import Op
    from spmd.viewing.communication import Found

HELP = "show the process grid and each collective's groups, bytes and algorithm, or the schedule"

_MOST_GROUPS = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.program(parser)
    options.grid(parser)
    parser.add_argument(
        "--schedule", action="store_true", help="show the units of the schedule, with their operations and bytes"
    )
    parser.add_argument(
        "--arrays", action="store_true", help="show arguments and results as blocks, with the processes that hold them"
    )
    options.communication(parser)


def run(args: argparse.Namespace) -> int:
    from spmd.compiler.pipeline.lower import ModuleLowering
    from spmd.viewing.communication import find_collectives

    with progress.doing("compiling"):
        prepared = options.prepared(args)
        if args.arrays:
            return _arrays(prepared)
        lowering = ModuleLowering(prepared.module, prepared.options)
        flat = lowering.flatten(prepared.function)
        schedule = lowering.schedule(flat.body) if args.schedule else None
        found = [] if args.schedule else list(find_collectives(lowering, flat.body))
    if schedule is not None:
        from spmd.compiler.schedule.show import show_schedule

        print("\n".join(show_schedule(schedule, lowering.schedule)))
        return 0
    notes = [f"not partitioned: {note}" for note in prepared.notes]
    if terminal.is_rich():
        terminal.show(*_tables(prepared.options.grid, found), *notes)
    else:
        print("\n".join([*_report(prepared.options.grid, found), *notes]))
    return 0


def _arrays(prepared: "Prepared") -> int:
    """Print arguments and results as blocks, with the processes that hold them."""
    from spmd.viewing.blocks import text

    size = prepared.options.grid.size
    if prepared.in_shardings is None or prepared.out_shardings is None:
        print(f"the program has no shardings: each of {size} processes has arrays of its own")
        return 0
    for title, layouts in (("argument", prepared.in_shardings), ("result", prepared.out_shardings)):
        for number, layout in enumerate(layouts):
            first, *rest = text(layout, size)
            print("\n".join([f"{title} {number}: {first}", *rest]))
    return 0


def _heading(grid: "ProcessGrid") -> str:
    return (
        f"process grid {grid} (replicas by partitions): {grid.size} process{'es' * (grid.size > 1)}, "
        f"rank = replica_id * {grid.num_partitions} + partition_id"
    )


def _once_through(sent: int, received: int) -> str:
    from spmd.support.amounts import amount

    return f"once through, a process sends up to {amount(sent)} and receives up to {amount(received)}"


_ALONE = "no collectives: the processes do not talk to each other"


def _report(grid: "ProcessGrid", collectives: "list[Found]") -> list[str]:
    lines = [_heading(grid)]
    sent = received = 0
    for found in collectives:
        op, loop = found.op, ", in a loop" * found.repeated
        lines.append("")
        if found.collective is None:
            lines.append(f"{op.location}: {op.name}{_channel(op)}{loop}")
            continue
        described, out, back = _describe(grid, op, found.collective, loop)
        lines += described
        sent, received = sent + out, received + back
    return [*lines, "", _once_through(sent, received)] if collectives else [*lines, _ALONE]


def _tables(grid: "ProcessGrid", collectives: "list[Found]") -> "list[terminal.Table | str]":
    """Return the same for a terminal: one row per message."""
    from collectives.explain import cost
    from collectives.operations import describe
    from spmd.support.amounts import amount

    if not collectives:
        return [_heading(grid), _ALONE]
    columns = [terminal.Column("collective", wraps=True, style="bold"), terminal.Column("groups", wraps=True)]
    columns += [terminal.Column(name, right=True) for name in ("sends", "receives")]
    columns += [terminal.Column("carried by", wraps=True), terminal.Column("place", wraps=True)]
    table = terminal.Table(_heading(grid), columns)
    sent = received = 0
    for found in collectives:
        op, collective = found.op, found.collective
        loop = ", in a loop" * found.repeated
        if collective is None:
            table.add(f"{op.name}{_channel(op)}{loop}", "", "", "", "", str(op.location))
            continue
        size = grid.size if collective.groups is None else collective.groups.largest
        for operation in collective.messages:
            price = cost(operation, size)
            sent, received = sent + price.sent, received + price.received
            costs = amount(price.sent), amount(price.received), price.algorithm
            table.add(f"{describe(operation)}{loop}", _groups(collective.groups), *costs, str(op.location))
    return [table, _once_through(sent, received)]


def _describe(grid: "ProcessGrid", op: "Op", collective: "Collective", loop: str) -> tuple[list[str], int, int]:
    from collectives.explain import cost
    from collectives.operations import describe
    from spmd.support.amounts import amount

    size = grid.size if collective.groups is None else collective.groups.largest
    lines = [f"{op.location}: {op.name}{loop}", f"  {_groups(collective.groups)}"]
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
    from collectives.states import short_list

    if groups is None:
        return "pairs of processes, by rank"
    shown = ", ".join(short_list(group) for group in groups[:_MOST_GROUPS])
    rest = f", ... {len(groups)} in all" if len(groups) > _MOST_GROUPS else ""
    return f"{len(groups)} group{'s' * (len(groups) > 1)}: {shown}{rest}"
