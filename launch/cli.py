"""The ``spmd`` command: subcommands are the modules of :mod:`launch.commands`; errors become exit statuses.

Imports are deferred until they are needed: listing commands or reporting a wrong option loads nothing else.
"""

import argparse
import difflib
import gc
import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from typing import NoReturn, Protocol, cast

from launch import commands, output

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class Command(Protocol):
    """The interface of a module of :mod:`launch.commands`."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


def command_names() -> list[str]:
    """Return the names of all subcommands, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(commands.__path__) if not module.name.startswith("_"))


def load_command(name: str) -> Command:
    """Return the module of one subcommand."""
    return cast(Command, importlib.import_module(f"{commands.__name__}.{name}"))


class _Parser(argparse.ArgumentParser):
    """Reports an invalid command line in one line."""

    @property
    def takes_the_rest(self) -> bool:
        """Whether the last argument is a command with arguments of its own."""
        return any(action.nargs == argparse.REMAINDER for action in self._get_positional_actions())

    def _get_option_tuples(self, option_string: str) -> list[tuple[argparse.Action, str, str | None]]:
        """Return the options that a prefix may abbreviate; none if it is ambiguous and may belong to a command.

        argparse examines all words before it finds where the command begins, and rejects ambiguous ones.
        """
        found = super()._get_option_tuples(option_string)
        return [] if len(found) > 1 and self.takes_the_rest else found

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def overview(names: Sequence[str]) -> _Parser:
    """Return the parser used without a subcommand; its help lists the subcommands."""
    parser = _Parser(prog="spmd", description="Runs StableHLO programs as MPI processes.")
    parser.add_argument("--version", action="version", version=_version())
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in names:
        subparsers.add_parser(name, help=load_command(name).HELP)
    return parser


def parser_of(name: str) -> _Parser:
    """Return the parser of one subcommand's arguments."""
    command = load_command(name)
    parser = _Parser(prog=f"spmd {name}", description=command.HELP)
    command.add_arguments(parser)
    parser.set_defaults(run=command.run)
    return parser


def whole_parser() -> argparse.ArgumentParser:
    """Return a parser of the whole command line, with the arguments of each subcommand, from which shells complete."""
    parser = argparse.ArgumentParser(prog="spmd")
    subparsers = parser.add_subparsers()
    for name in command_names():
        command = load_command(name)
        command.add_arguments(subparsers.add_parser(name, help=command.HELP))
    return parser


def _parse(arguments: list[str]) -> argparse.Namespace:
    names = command_names()
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    word, rest = arguments[0] if arguments else "--help", arguments[1:]
    if word not in names:
        parser = overview(names)
        if not word.startswith("-"):
            likely = difflib.get_close_matches(word, names)
            meant = f"did you mean {' or '.join(likely)}?" if likely else f"there are {', '.join(names)}"
            parser.error(f"no command {word!r}: {meant}")
        return parser.parse_args(arguments or [word])
    parser = parser_of(word)
    return parser.parse_args(rest) if parser.takes_the_rest else parser.parse_intermixed_args(rest)


def _version() -> str:
    from spmd.version import __version__

    return f"spmd {__version__}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the exit status.

    0 on success; 1 for an invalid or failing program, 2 for an invalid command line or unreadable files, with a
    message.
    """
    if argv is None:
        _collect_rarely()
    try:
        with output.checked():
            return _run(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe (`spmd print x | head`): not an error, and nothing reads a message.
        return EXIT_FAILURE
    except Exception as error:
        return _report(error)


def _collect_rarely() -> None:
    """Look for cyclic garbage less often, in a process that runs this command alone.

    What its imports make stays until the end; to go through it 140 times takes a fifth of the time of a short command.
    """
    gc.set_threshold(50_000, 20, 20)


def _run(arguments: list[str]) -> int:
    args = _parse(arguments)
    if fault := _environment_fault():
        print(f"spmd: {fault}", file=sys.stderr)
        return EXIT_USAGE
    return int(args.run(args))


def _environment_fault() -> str:
    """Return what is wrong with the environment variables that ranks will read; "" if nothing is."""
    if not any(name.startswith("COLLECTIVE_") for name in os.environ):
        return ""
    from collectives.settings import SettingError, WatchSettings

    try:
        WatchSettings.from_environment(os.environ)
    except SettingError as error:
        return str(error)
    return ""


def _report(error: Exception) -> int:
    """Print an expected error's message; any other error is a defect and keeps its traceback."""
    from collectives import failure

    message, status = explain(error)
    failure.fail(message, status)
    return status


def explain(error: Exception) -> tuple[str, int]:
    """Return the message and the exit status of an expected error; raise any other error again."""
    from spmd import SpmdError, UsageError

    if isinstance(error, SpmdError):
        usage = isinstance(error, UsageError | OSError)
        return "\n".join([str(error), *getattr(error, "__notes__", ())]), EXIT_USAGE if usage else EXIT_FAILURE
    if isinstance(error, OSError) and error.filename is not None:
        status = EXIT_FAILURE if error.filename == output.NAME else EXIT_USAGE
        return f"{error.filename}: error: {error.strerror}", status
    raise error
