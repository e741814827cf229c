"""``spmd compile``: compile a program to an object file and a header, or to C, for programs in other languages."""

import argparse
import sys
from pathlib import Path

from launch import options, programs
from spmd.support.processor import HOST, TARGETS

HELP = "compile a program to an object file and a C header, or to C source, without a Python runtime"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.program(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="OBJECT", help="default: PROGRAM's name, ending in .o, .c")
    parser.add_argument(
        "--emit", choices=("object", "c"), default="object", help="object file, or C source (default: object)"
    )
    parser.add_argument("--header", type=Path, metavar="HEADER", help="default: OBJECT's name, ending in .h")
    parser.add_argument("--target", choices=(HOST, *TARGETS), help="target processor (default: this machine's)")
    parser.add_argument("--name", help="the function's name in C (default: derived from OBJECT)")


def run(args: argparse.Namespace) -> int:
    from spmd.ahead import compile_ahead, compile_source
    from spmd.support.c_names import free_name, why_taken
    from spmd.support.files import write_file

    output = args.output or Path(Path(args.program).name).with_suffix(".c" if args.emit == "c" else ".o")
    name = args.name or free_name(output.stem)
    if not args.name and (reason := why_taken(output.stem)) is not None:
        note = f"the function is called {name}, since {output.stem!r} {reason}; --name chooses another"
        print(f"spmd compile: {note}", file=sys.stderr)
    program = programs.load(args.program, args.function)
    if args.emit == "c":
        write_file(output, compile_source(program, function=args.function, name=name).encode())
        return 0
    compiled = compile_ahead(program, function=args.function, name=name, processor=args.target)
    write_file(output, compiled.object)
    write_file(args.header or output.with_suffix(".h"), compiled.header.encode())
    return 0
