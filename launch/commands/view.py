"""``spmd view``: write one HTML page that shows a program, its processes and their communication."""

import argparse

from launch import machines, options, programs
from launch.progress import doing

HELP = "write an HTML page on a program: processes, arrays, ops, communication, memory and time; or on two side by side"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.program(parser)
    parser.add_argument("other", nargs="?", metavar="OTHER", help="a second program, shown next to the first")
    options.grid(parser)
    machines.add_arguments(parser)
    options.communication(parser)
    parser.add_argument("--profile", metavar="TRACE.json", help="a measured step, as spmd run --profile writes it")
    parser.add_argument(
        "--run",
        dest="steps",
        action="store_true",
        help="run the (small) program, and show the values of each process at each op",
    )
    options.seed(parser, "of the arguments that --run makes", default=0)
    parser.add_argument(
        "-o", "--output", default="report.html", metavar="FILE", help="file to write (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    import spmd

    machine, network = machines.chosen(args)
    loaded = [programs.load(path, args.function) for path in (args.program, args.other) if path is not None]
    with doing("partitioning, scheduling and predicting"):
        page = spmd.view(
            *loaded,
            grid=args.grid,
            function=args.function,
            machine=machine,
            topology=network,
            profile=args.profile,
            run=args.steps,
            seed=args.random,
            **options.compile_options(args),
        )
    page.save(args.output)
    print(f"wrote {args.output}")
    return 0
