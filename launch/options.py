"""Options that several commands share, each declared once."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from launch import values

if TYPE_CHECKING:
    from spmd.compiler.pipeline.options import CompileOptions
    from spmd.compiler.pipeline.prepare import Prepared

Arguments = argparse.ArgumentParser | argparse._ArgumentGroup

MODES = ("auto", "stacked", "threads")


def valued(
    parser: Arguments, name: str, type: Callable[[str], object], metavar: str, use: str, default: object = None
) -> None:
    """Declare an option with a value, which `type` parses, and a `default`."""
    parser.add_argument(name, type=type, metavar=metavar, default=default, help=use)


def program(parser: Arguments) -> None:
    """Declare the program, in any format, and its function."""
    parser.add_argument("program", metavar="PROGRAM", help="a program in any supported format")
    parser.add_argument("--function", default="main", help="the program's function (default: %(default)s)")


def grid(parser: Arguments, use: str = "replicas by partitions (default: the module's own)") -> None:
    valued(parser, "--grid", values.grid, "RxP", use)


def seed(parser: Arguments, use: str, default: int | None = None) -> None:
    valued(parser, "--random", values.not_negative, "SEED", use, default)


def profile_steps(parser: Arguments, use: str) -> None:
    valued(parser, "--profile-steps", values.steps, "FIRST:LAST", use)


def mode(parser: Arguments, use: str, default: str) -> None:
    parser.add_argument("--mode", choices=MODES, default=default, help=use)


def communication(parser: Arguments) -> None:
    """Declare the compile options of a program's collectives."""
    parser.add_argument(
        "--reproducible", action="store_true", help="make reductions between processes bitwise equal on any transport"
    )
    use = "combine small all_reduces up to this size; 0: never"
    valued(parser, "--combine-threshold", values.not_negative, "BYTES", use)
    parser.add_argument(
        "--overlap",
        action=argparse.BooleanOptionalAction,
        help="overlap large all_reduces with computation (default: if every rank has a spare core)",
    )


def compile_options(args: argparse.Namespace) -> "CompileOptions":
    """Return the options of ``spmd.compile`` that `communication` declares, if they are set."""
    options: CompileOptions = {"reproducible": args.reproducible}
    if args.combine_threshold is not None:
        options["combine_threshold"] = args.combine_threshold
    if args.overlap is not None:
        options["overlap"] = args.overlap
    return options


def prepared(args: argparse.Namespace) -> "Prepared":
    """Return the program of one process, for a command with the options `program`, `grid` and `communication`."""
    from launch import programs
    from spmd.compiler.pipeline.prepare import prepare

    module = programs.load(args.program, args.function)
    return prepare(module, args.grid, args.function, **compile_options(args))
