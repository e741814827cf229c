"""``spmd compare``: find the first value at which two programs, or one under two back ends, diverge."""

import argparse
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from launch import options

if TYPE_CHECKING:
    from spmd.ir import Module
    from spmd.support.arrays import Array, Nested

HELP = "run two programs, or one in two ways, and find the first value that differs"

DESCRIPTION = """\
Runs both on the same inputs, which are the arguments in an HloSnapshot where one is given. Status 0: their results
agree up to rounding; 1: they differ, and the first value that differs is printed, by op, source line and process: its
op has equal operands and unequal results. A program can be given without shardings, with shardings, or partitioned by
spmd partition; any two of these forms are compared, and shardings that are not given are inferred. With one program,
--with names two ways to run it.
"""

#: Back ends that need JAX: names of functions in spmd.jax.peers.
_PEERS = ("xla", "reference")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("programs", nargs="+", metavar="PROGRAM", help="one program or two, in any form that is read")
    parser.add_argument("--inputs", nargs="+", metavar="FILE", help=".npy or .npz files, in the order of the arguments")
    use = "make the inputs from the function's signature (default: the arguments in a snapshot, else 0)"
    options.seed(parser, use)
    options.grid(parser)
    parser.add_argument("--function", default="main", metavar="NAME", help="the programs' function")
    parser.add_argument(
        "--with",
        dest="ways",
        default="llvm,numpy",
        metavar="A,B",
        help="what runs the sides: llvm, numpy, and where JAX is installed xla and reference (default: %(default)s; "
        "two programs run under llvm both)",
    )
    parser.add_argument(
        "--exact",
        action="store_true",
        help="say whether a difference is rounding (then status 0), and which side is nearer to the right values",
    )
    parser.add_argument(
        "--gradient",
        action="store_true",
        help="PROGRAM is FILE.py:FUNCTION, a JAX function of --inputs: compare its gradient with finite differences",
    )
    use = "how many times what rounding explains of an element it may differ"
    options.valued(parser, "--tolerance", float, "TIMES", use, 1.0)
    parser.add_argument("--json", action="store_true", help="print JSON, of which `equal` is what the status says")


def run(args: argparse.Namespace) -> int:
    import spmd

    if args.gradient:
        return _gradient(args)
    if len(args.programs) > 2:
        raise spmd.UsageError(f"spmd compare takes one program or two, got {len(args.programs)}")
    modules = [spmd.load(path) for path in args.programs]
    names = args.ways.split(",")
    if len(names) != 2:
        raise spmd.UsageError(f"--with takes two ways of running a program, got '{args.ways}'")
    ways = [_way(name) for name in names] if len(modules) == 1 else ["llvm", "llvm"]
    found = spmd.compare(
        (modules[0], ways[0]),
        (modules[-1], ways[1]),
        _inputs(args, modules),
        args.grid,
        args.function,
        seed=args.random or 0,
        tolerance=args.tolerance,
        exact=args.exact,
    )
    print(json.dumps(found.to_json(), indent=1) if args.json else found)
    return 0 if found.equal else 1


def _inputs(
    args: argparse.Namespace, modules: "Sequence[Module]"
) -> "Sequence[Array] | Sequence[Sequence[Array]] | None":
    """Return the inputs of --inputs, or those in the programs' files unless --random makes them; None for made ones.

    They are arrays, or of a snapshot of several devices arrays for each process.
    """
    import spmd
    from spmd.compiler.pipeline.prepare import declared_grid
    from spmd.io import arguments
    from spmd.io.snapshots import arguments_in

    if args.inputs:
        return arguments.load(args.inputs, modules[0].function(args.function))
    if args.random is not None:
        return None
    held: list[tuple[tuple[Nested, ...], ...]] = [tuple(read) for path in args.programs if (read := arguments_in(path))]
    if not held:
        return None
    if not _are_equal(held[0], held[-1]):
        raise spmd.UsageError("the snapshots have different arguments: --inputs or --random gives others")
    rows = [_arrays_of(row) for row in held[0]]
    size = max((args.grid or declared_grid(module, args.function)).size for module in modules)
    return rows[0] if len(rows) == 1 or size == 1 else [rows[rank % len(rows)] for rank in range(size)]


def _are_equal(left: "Nested", right: "Nested") -> bool:
    """Return whether arrays, or tuples of them, are equal in every bit."""
    if isinstance(left, tuple) or isinstance(right, tuple):
        same = isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right)
        return same and all(map(_are_equal, left, right))
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


def _arrays_of(row: "Sequence[Nested]") -> "list[Array]":
    """Return the arguments of one device; UsageError where one is a tuple."""
    import spmd

    for number, argument in enumerate(row):
        if isinstance(argument, tuple):
            raise spmd.UsageError(f"argument {number} of the snapshot is a tuple, which spmd compare does not take")
    return [argument for argument in row if not isinstance(argument, tuple)]


def _gradient(args: argparse.Namespace) -> int:
    """Return the exit status of comparing a JAX function's gradient with finite differences."""
    import runpy

    import numpy as np

    import spmd

    path, colon, name = args.programs[0].rpartition(":")
    if len(args.programs) > 1 or not colon or not args.inputs:
        raise spmd.UsageError("--gradient takes FILE.py:FUNCTION, and --inputs of its arguments")
    try:
        from spmd.jax import compare_gradient
    except ImportError:
        raise spmd.UsageError("--gradient needs JAX: pip install 'spmd[jax]'") from None
    try:
        function = runpy.run_path(path, run_name="<compare>").get(name)
    except OSError as error:
        raise spmd.UsageError(f"--gradient: {error}") from None
    if not callable(function):
        raise spmd.UsageError(f"--gradient: {path} has no function {name}")
    arrays = [array for file in args.inputs for array in _arrays(np.load(file))]
    found = compare_gradient(function, *arrays, seed=args.random or 0)
    print(found)
    return 0 if found else 1


def _arrays(loaded: Any) -> list[Any]:
    """Return the array of an .npy file, or those of an .npz file in order."""
    return list(loaded.values()) if hasattr(loaded, "values") else [loaded]


def _way(name: str) -> str | Callable[..., Any]:
    import spmd

    if name in ("llvm", "numpy"):
        return name
    if name not in _PEERS:
        raise spmd.UsageError(f"--with must be llvm, numpy, xla or reference, got '{name}'")
    try:
        from spmd.jax import peers
    except ImportError:
        raise spmd.UsageError(f"{name} needs JAX: pip install 'spmd[jax]'") from None
    way: Callable[..., Any] = getattr(peers, name)
    return way
