"""``spmd check``: parse and verify programs; silent when all is well.

What the specification's text forbids and StableHLO's own verifier takes is a warning, or with --strict an error.
"""

import argparse
import sys

HELP = "parse and verify programs: silent, or the errors with their source lines"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("programs", nargs="+", metavar="PROGRAM", help="a program in any form that is read")
    parser.add_argument(
        "--strict", action="store_true", help="what only the specification's text forbids is an error, too"
    )


def run(args: argparse.Namespace) -> int:
    import spmd
    from launch.cli import explain
    from spmd.compiler.pipeline.verify import warnings

    status = 0
    for path in args.programs:
        try:
            unmet = warnings(spmd.load(path))
            if unmet and args.strict:
                raise spmd.VerificationError(unmet)
            for warning in unmet:
                print(f"warning: {warning}", file=sys.stderr)
        except spmd.SpmdError as error:
            message, failed = explain(error)
            print(message, file=sys.stderr)
            status = max(status, failed)
    return status
