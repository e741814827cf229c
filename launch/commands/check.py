"""``spmd check``: parse and verify programs, and check their communication; no output if nothing is wrong.

Warnings: what the specification forbids but StableHLO's verifier accepts, suspected errors of communication, and what
`spmd run` would not compile. With --strict they are errors.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collectives.grid import ProcessGrid
    from spmd import Module, SpmdError
    from spmd.analysis.varying.findings import Finding

HELP = "parse and verify programs, and check their communication; prints errors with their source lines"

DESCRIPTION = """\
Parses and verifies programs. If a program is for several processes (--grid, or its own mhlo.num_replicas and
mhlo.num_partitions), its communication is analysed, and these are reported: collectives that some processes of a group
do not reach, sums of values that are already replicated, results declared as replicated that differ, random numbers
with the same key where they should differ, sends without a receive, and sends on one channel that no token orders.
So is what `spmd run` rejects before it runs: an op that no back end implements, a custom call whose target is
not registered, a mesh that does not fit the grid.
A line with the comment `spmd: ignore`, or `spmd: ignore[KIND]`, is not reported.

`spmd check a.mlir : 3 b.mlir` checks one process of a.mlir and three of b.mlir, as mpirun starts them, and their
communication with each other.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from launch.values import grid

    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "programs",
        nargs="+",
        metavar="PROGRAM",
        help="a program in any form that is read; or [N] PROGRAM : [N] PROGRAM",
    )
    parser.add_argument("--strict", action="store_true", help="treat warnings as errors")
    parser.add_argument("--grid", type=grid, metavar="RxP", help="replicas x partitions; the program's own by default")
    parser.add_argument("--function", default="main", metavar="NAME", help="the function that the processes run")
    for what in ("arguments", "results"):
        parser.add_argument(
            f"--replicated-{what}",
            type=_indices,
            default=(),
            metavar="I,J,...",
            help=f"{what} that are the same on all processes, by number",
        )


def run(args: argparse.Namespace) -> int:
    if ":" in args.programs:
        return _check_together(args)
    return max(_check(path, args) for path in args.programs)


def _check(path: str, args: argparse.Namespace) -> int:
    """Return the exit status of one program that all processes run."""
    import spmd
    from spmd.analysis.varying.check import check_processes
    from spmd.compiler.pipeline.verify import warnings

    try:
        module = spmd.load(path)
        unmet = warnings(module)
        if unmet and args.strict:
            raise spmd.VerificationError(unmet)
        for warning in unmet:
            print(f"warning: {warning}", file=sys.stderr)
        findings = []
        if args.replicated_arguments or args.replicated_results or args.function in _functions(module):
            findings = check_processes(
                module,
                args.grid,
                args.function,
                replicated_arguments=args.replicated_arguments,
                replicated_results=args.replicated_results,
            )
        status = _report(findings, args.strict)
        if args.function in _functions(module) and not any(finding.certain for finding in findings):
            status |= _try_compiling(module, args.grid, args)
        return status
    except spmd.SpmdError as error:
        return _print(error)


def _try_compiling(module: Module, grid: ProcessGrid | None, args: argparse.Namespace) -> int:
    """Return 1 if the program does not compile and --strict makes that an error; print the reason."""
    import spmd

    try:
        spmd.compile(module, grid, args.function, backends=("numpy",))
    except spmd.CompileError as error:
        for diagnostic in error.diagnostics:
            print(f"{'error' if args.strict else 'warning'}: {diagnostic}", file=sys.stderr)
        return int(args.strict)
    return 0


def _check_together(args: argparse.Namespace) -> int:
    """Return the exit status of several programs whose processes communicate."""
    import spmd
    from spmd.analysis.varying.check import check_programs, grid_of_programs

    try:
        counts, paths = _parts(args.programs)
        modules = {path: spmd.load(path) for path in paths}
        grid = args.grid or grid_of_programs([*modules.values()], sum(counts))
        findings = check_programs([(path, modules[path]) for path in paths], counts, grid, args.function)
        status = _report(findings, args.strict)
        if any(finding.certain for finding in findings):
            return status
        return max(status, *(_try_compiling(module, grid, args) for module in modules.values()))
    except spmd.SpmdError as error:
        return _print(error)


def _parts(words: Sequence[str]) -> tuple[list[int], list[str]]:
    """Return the numbers of processes and the files in `[N] FILE : [N] FILE ...`."""
    import spmd

    counts, paths = [], []
    for part in " ".join(words).split(" : "):
        given = part.split()
        count = given.pop(0) if len(given) == 2 and given[0].isdecimal() else "1"
        if len(given) != 1 or int(count) < 1:
            raise spmd.UsageError(f"expected [NUMBER] PROGRAM between colons, got '{part}'")
        counts.append(int(count))
        paths.append(given[0])
    return counts, paths


def _functions(module: Module) -> set[str]:
    return {function.symbol for function in module.functions if not function.is_declaration}


def _print(error: SpmdError) -> int:
    from launch.cli import explain

    message, status = explain(error)
    print(message, file=sys.stderr)
    return status


def _report(findings: Sequence[Finding], strict: bool) -> int:
    for finding in findings:
        is_error = finding.certain or strict
        print(f"{'error' if is_error else 'warning'}: {finding}", file=sys.stderr)
    return int(any(finding.certain or strict for finding in findings))


def _indices(text: str) -> tuple[int, ...]:
    """Return the numbers in `1,2` or `0-3,7`."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        try:
            numbers += range(int(first), int(last or first) + 1)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected numbers such as 1,2 or 0-3, got '{text}'") from None
    return tuple(numbers)
