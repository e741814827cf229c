"""The ``spmd`` command: subcommands are found by listing :mod:`launch.commands`; errors become exit statuses."""

import argparse
import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from typing import Protocol, cast

from launch import commands

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class Command(Protocol):
    """What a module of :mod:`launch.commands` offers."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


def command_names() -> list[str]:
    """Names of all subcommands, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(commands.__path__) if not module.name.startswith("_"))


def load_command(name: str) -> Command:
    """The module behind one subcommand."""
    return cast(Command, importlib.import_module(f"{commands.__name__}.{name}"))


def build_parser(names: Sequence[str]) -> argparse.ArgumentParser:
    """A parser for the named subcommands."""
    parser = argparse.ArgumentParser(prog="spmd", description="Runs StableHLO programs as MPI processes.")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in names:
        command = load_command(name)
        subparser = subparsers.add_parser(name, help=command.HELP, description=command.HELP)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the exit status: 0, or 1 for an error that a user can meet, with its message."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    names = command_names()
    # A named command needs its own module alone; the help text needs them all.
    wanted = [arguments[0]] if arguments and arguments[0] in names else names
    args = build_parser(wanted).parse_args(arguments)
    if fault := _environment_fault():
        print(f"spmd: {fault}", file=sys.stderr)
        return EXIT_USAGE
    try:
        return int(args.run(args))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`spmd print x | head`): not an error of ours, and nobody is left to tell.
        sys.stderr.close()
        return EXIT_FAILURE
    except Exception as error:
        return _report(error)


def _environment_fault() -> str:
    """What is wrong with the variables that the ranks of a job will read; nothing if they can."""
    if not any(name.startswith("COLLECTIVE_") for name in os.environ):
        return ""
    from collectives.settings import SettingError, WatchSettings

    try:
        WatchSettings.from_environment(os.environ)
    except SettingError as error:
        return str(error)
    return ""


def _report(error: Exception) -> int:
    """Tell an expected error in its own words; anything else keeps its traceback, for it is a defect."""
    from spmd import SpmdError
    from spmd.runtime import failure

    if isinstance(error, SpmdError):
        message = "\n".join([str(error), *getattr(error, "__notes__", ())])
    elif isinstance(error, OSError) and error.filename is not None:
        message = f"{error.filename}: error: {error.strerror}"
    else:
        raise error
    failure.fail(message)
    return EXIT_FAILURE
