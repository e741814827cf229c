"""``spmd partition``: print the program of one process, and a table of its collectives.

Or the global program in Shardy's form: with each op's factor rule, or with all propagated shardings.
"""

import argparse
import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from launch import machines, options, output, programs, progress, terminal, values

if TYPE_CHECKING:
    from partitioner import Partitioned, ShardedType
    from partitioner.report import CollectiveRow
    from spmd.ir import Module, Op
    from spmd.sharding_search.plan import ShardingPlan

HELP = "print the program of one process of a program with shardings, and a table of its collectives"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.program(parser)
    use = "order in which mesh axes are propagated, such as data,model; the others come last"
    options.valued(parser, "--axis-priority", str, "AXES", use, "")
    parser.add_argument("--no-propagate", action="store_true", help="replicate what the program does not annotate")
    parser.add_argument(
        "--conservative",
        action="store_true",
        help="propagate no sub-axes, and nothing along sliced, padded, concatenated or windowed dimensions",
    )
    auto = parser.add_argument_group("automatic sharding")
    auto.add_argument(
        "--auto", action="store_true", help="shard what the program does not, for the shortest predicted step"
    )
    options.valued(auto, "--mesh", values.mesh, "AXES", "axes and their sizes, major first, such as data=8,model=4")
    options.valued(auto, "--memory", values.memory, "BYTES", "memory per process, such as 16GB")
    auto.add_argument("--explain", action="store_true", help="print the choices, and the cost of the next best")
    use = "file for the program of one process; with --auto, --rules or --propagate for the global program"
    parser.add_argument("-o", "--output", metavar="OUT", help=use)
    machines.add_arguments(parser)
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--table", action="store_true", help="print only the table")
    shown.add_argument(
        "--rules", action="store_true", help="the global program, each op with its factor rule (sdy.sharding_rule)"
    )
    shown.add_argument(
        "--propagate", action="store_true", help="the global program with every propagated sharding (sdy.sharding)"
    )


def run(args: argparse.Namespace) -> int:
    import partitioner
    import spmd
    from partitioner.publish import with_propagated, with_rules
    from partitioner.report import format_table

    if args.rules:
        _write(args, with_rules(spmd.load(args.program), conservative=args.conservative))
        return 0
    module = programs.load(args.program, args.function)
    if args.auto:
        module, plan = _searched(args, module)
        if args.explain:
            print(plan.explain())
        if args.output:
            spmd.save(module, args.output)
        if (args.explain or args.output) and not args.table:
            return 0
    elif given := [name for name in ("mesh", "memory", "explain") if getattr(args, name)]:
        raise spmd.UsageError(f"--{given[0]} requires --auto")
    if not partitioner.is_sharded(module):
        raise spmd.UsageError(f"{args.program} has no shardings: it is the program of one process already")
    if partitioner.starts_processes(module, args.function):
        text = "starts processes itself: name one of the functions that it starts with --function"
        raise spmd.UsageError(f"{args.program}: @{args.function} {text}")
    axes = [name.strip() for name in args.axis_priority.split(",") if name.strip()]
    if args.propagate:
        if not args.auto:
            module = with_propagated(module, args.function, axes, conservative=args.conservative)
        _write(args, module)
        return 0
    # A searched layout was priced as compiled here, without prices of a machine.
    with contextlib.nullcontext() if args.auto else _weighed(args), progress.doing("partitioning"):
        parts = partitioner.partition(
            module,
            None,
            args.function,
            axis_priority=axes,
            propagate_layouts=not args.no_propagate,
            conservative=args.conservative,
        )
    if args.output and not args.auto:
        _write(args, parts.module)
    elif not args.table:
        output.write_program(str(parts.module))
        print()
    seconds = _times(args, parts.module)
    notes = [f"not partitioned: {note}" for note in parts.notes]
    if terminal.is_rich():
        terminal.show(_layouts(parts), _collectives(parts.module, seconds), *notes)
        return 0
    for title, index, layout in _boundary(parts):
        print(f"{title} {index}: {layout} as {layout.local_type}")
    print(f"\n{format_table(parts.module, seconds)}")
    for note in notes:
        print(note)
    return 0


def _write(args: argparse.Namespace, module: "Module") -> None:
    """Write a program to the given file, or to standard output."""
    import spmd

    if args.output:
        spmd.save(module, args.output)
    else:
        output.write_program(str(module))


def _boundary(parts: "Partitioned") -> Iterator["tuple[str, int, ShardedType]"]:
    for title, layouts in (("argument", parts.in_shardings), ("result", parts.out_shardings)):
        for index, layout in enumerate(layouts):
            yield title, index, layout


def _layouts(parts: "Partitioned") -> terminal.Table:
    """Return the layout of arguments and results, for a terminal."""
    columns = [terminal.Column(""), terminal.Column("type", wraps=True), terminal.Column("sharding", wraps=True)]
    table = terminal.Table("", [*columns, terminal.Column("of one process", wraps=True)])
    for title, index, layout in _boundary(parts):
        table.add(f"{title} {index}", str(layout.type), str(layout.sharding or ""), str(layout.local_type))
    return table


def _collectives(module: "Module", seconds: "Callable[[Op], float] | None") -> terminal.Table:
    """Return the collectives with totals by kind, for a terminal, with bars proportional to bytes."""
    from partitioner.report import collectives, turns_text

    rows = collectives(module)
    most = max((row.bytes for row in rows), default=0) or 1
    columns = [terminal.Column("collective", style="bold"), terminal.Column("groups", right=True)]
    columns += [terminal.Column("bytes/process", right=True), terminal.Column("", style="cyan")]
    columns += [terminal.Column("turns", right=True)]
    columns += [terminal.Column("microseconds", right=True)] if seconds else []
    table = terminal.Table("", [*columns, terminal.Column("source", wraps=True)])

    for row in rows:
        took = [f"{1e6 * seconds(row.op):,.1f}"] if seconds else []
        bar = terminal.bar(row.bytes / most)
        table.add(row.kind, row.groups, f"{row.bytes:,}", bar, turns_text(row), *took, row.place)

    def total(kind: str, mine: "list[CollectiveRow]") -> None:
        took = [f"{1e6 * sum(row.times * seconds(row.op) for row in mine):,.1f}"] if seconds else []
        nbytes = sum(row.times * row.bytes for row in mine)
        table.add(kind, f"{len(mine)}x", f"{nbytes:,}", "", "", *took, "", style="bold")

    for kind in sorted({row.kind for row in rows}):
        total(f"total {kind}", [row for row in rows if row.kind == kind])
    total("total", rows)
    return table


def _searched(args: argparse.Namespace, module: "Module") -> "tuple[Module, ShardingPlan]":
    """Return the program with automatic shardings, and the plan."""
    import spmd

    if args.mesh is None:
        raise spmd.UsageError("--auto needs a mesh: --mesh data=8,model=4 names its axes and their sizes")
    with progress.doing("searching for a layout", in_lines=True) as shown:

        def priced(number: int, most: int) -> None:
            shown.what, shown.at, shown.total = "pricing layouts", number, most

        return spmd.autoshard(
            module,
            mesh=args.mesh,
            memory=args.memory,
            topology=args.topology,
            machine=args.machine,
            function=args.function,
            progress=priced,
        )


def _weighed(args: argparse.Namespace) -> contextlib.AbstractContextManager[None]:
    """Return a context in which the partitioner prices its choices by the given machine and network."""
    if args.machine is None and args.topology is None:
        return contextlib.nullcontext()
    import partitioner
    from spmd.predict.prediction import partitioner_prices

    return partitioner.using(partitioner_prices(*machines.chosen(args)))


def _times(args: argparse.Namespace, module: "Module") -> "Callable[[Op], float] | None":
    """Return the function of a collective's predicted seconds, if a machine or network is given."""
    if args.machine is None and args.topology is None:
        return None
    from spmd.analysis.grid import grid_of
    from spmd.predict.prediction import collective_seconds

    return collective_seconds(module, grid_of(module), *machines.chosen(args))
