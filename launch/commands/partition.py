"""``spmd partition``: the program of one process, and a table of what it sends."""

import argparse
import sys

HELP = "print the program of one process of a program with shardings, and a table of its collectives"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", metavar="PROGRAM", help="a file of StableHLO with shardings")
    parser.add_argument("--function", default="main", help="default: %(default)s")
    parser.add_argument(
        "--axis-priority",
        default="",
        metavar="AXES",
        help="mesh axes in the order in which they are propagated, such as data,model; the others come last",
    )
    parser.add_argument("--no-propagate", action="store_true", help="what the program does not lay out is replicated")
    parser.add_argument("--table", action="store_true", help="the table alone, without the program")


def run(args: argparse.Namespace) -> int:
    import partitioner
    import spmd
    from partitioner.report import format_table

    module = spmd.load(args.program)
    if not partitioner.is_sharded(module):
        raise spmd.CompileError(f"{args.program} has no shardings: it is the program of one process already")
    axes = [name.strip() for name in args.axis_priority.split(",") if name.strip()]
    parts = partitioner.partition(
        module, None, args.function, axis_priority=axes, propagate_layouts=not args.no_propagate
    )
    if not args.table:
        sys.stdout.write(str(parts.module).rstrip("\n") + "\n\n")
    for title, layouts in (("argument", parts.in_shardings), ("result", parts.out_shardings)):
        for index, layout in enumerate(layouts):
            sys.stdout.write(f"{title} {index}: {layout} as {layout.local_type}\n")
    sys.stdout.write("\n" + format_table(parts.module) + "\n")
    for note in parts.notes:
        sys.stdout.write(f"not split: {note}\n")
    return 0
