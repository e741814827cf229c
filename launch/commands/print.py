"""``spmd print``: read a program and print it again, in the pretty or the generic form."""

import argparse
import sys

HELP = "reprint a program, in the pretty or the generic form"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", metavar="PROGRAM", help="a file of StableHLO, or of HLO text")
    parser.add_argument("--generic", action="store_true", help="every op in MLIR's generic form")


def run(args: argparse.Namespace) -> int:
    import spmd

    text = spmd.load(args.program).to_string(generic=args.generic)
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    return 0
