"""``spmd convert``: read a program in any form and write it in another."""

import argparse
import sys

HELP = "convert a program between text, bytecode, portable artifacts and HLO text"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", metavar="IN", help="a program in any supported format")
    parser.add_argument("out", metavar="OUT", help="the file to write; - for the standard output")
    parser.add_argument(
        "--to",
        metavar="FORMAT",
        help="text, generic, bytecode, vhlo, vhlo@VERSION or hlo; by default from the suffix of OUT "
        "(.mlirbc, .bc, .vhlo, .hlo; .mlir, .txt: text)",
    )


def run(args: argparse.Namespace) -> int:
    import spmd
    from spmd.io.saving import render

    module = spmd.load(args.program)
    if args.out == "-":
        sys.stdout.buffer.write(render(module, args.to or "text"))
        sys.stdout.buffer.flush()
    else:
        spmd.save(module, args.out, format=args.to)
    return 0
