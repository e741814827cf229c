"""``spmd test``: run conformance files; the last line counts the modules that passed and failed."""

import argparse
import os
import sys

from launch import options, progress, values

HELP = "run conformance files: programs with their own checks, or errors expected at marked lines"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file, or a folder of .mlir files")
    parser.add_argument("-v", "--verbose", action="store_true", help="print each module's outcome, and why it failed")
    parser.add_argument("-k", dest="keyword", metavar="TEXT", default="", help="only modules with TEXT in their name")
    parser.add_argument(
        "-j", dest="jobs", metavar="N", type=values.positive, default=os.cpu_count() or 1, help="parallel workers"
    )
    parser.add_argument("--no-run", action="store_true", help="read, verify and print only")
    parser.add_argument(
        "--explore",
        metavar="N",
        type=values.positive,
        default=0,
        help="run each module's processes in N random orders of their communication, of seeds 0 to N - 1",
    )
    options.mode(
        parser,
        "how the grids that modules start are run: on threads, as one stacked program, or stacked where possible "
        "(default: %(default)s)",
        default="threads",
    )
    parser.add_argument(
        "--diagnostics",
        action="store_true",
        help="compare expected errors by line and text, as MLIR's -verify-diagnostics does",
    )


def run(args: argparse.Namespace) -> int:
    from functools import partial

    from launch.conformance import judge, read_cases
    from launch.judging import all_ranks, outcomes_of, outcomes_of_ranks

    cases = [case for case in read_cases(args.paths) if args.keyword in case.name]
    passed = failed = by_line = only_verified = 0
    world = all_ranks()
    judged = partial(judge, execute=not args.no_run, diagnostics=args.diagnostics, mode=args.mode, explore=args.explore)
    outcomes = outcomes_of(cases, args.jobs if world is None else 1, judged)
    if world is not None:
        outcomes = outcomes_of_ranks(world, outcomes)
        if world.rank:
            return max((verdict.problem is not None for _, verdict in outcomes), default=True)
    for name, verdict in progress.counted("checking", outcomes, len(cases)):
        problem = verdict.problem
        passed += problem is None
        failed += problem is not None
        by_line += verdict.by_line
        only_verified += verdict.only_verified
        if problem is not None:
            print(f"FAILED {name}: {problem}" if args.verbose else f"FAILED {name}: {problem.splitlines()[0][:200]}")
        elif args.verbose:
            print(f"passed {name}{' (only verified)' if verdict.only_verified else ''}")
    if by_line:
        print(
            f"{by_line} expected error{'s' * (by_line != 1)} matched by line alone: --diagnostics compares their text"
        )
    if only_verified:
        why = "--no-run" if args.no_run else "no main, or only function, without arguments to run"
        print(f"{only_verified} module{'s' * (only_verified != 1)} only verified: {why}")
    sys.stdout.flush()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0
