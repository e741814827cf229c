"""``spmd check``: parse and verify programs; silent when all is well."""

import argparse
import sys

HELP = "parse and verify programs: silent, or the errors with their source lines"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("programs", nargs="+", metavar="PROGRAM", help="a file of StableHLO, or of HLO text")


def run(args: argparse.Namespace) -> int:
    import spmd
    from launch.cli import explain

    status = 0
    for path in args.programs:
        try:
            spmd.load(path)
        except spmd.SpmdError as error:
            message, failed = explain(error)
            print(message, file=sys.stderr)
            status = max(status, failed)
    return status
