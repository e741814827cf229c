"""``spmd test``: run conformance files; the last line tells how many modules passed and how many failed."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import groupby
from multiprocessing import get_context
from typing import TYPE_CHECKING

from launch import options, progress, values
from launch.conformance import Case, Verdict, judge, read_cases

if TYPE_CHECKING:
    from collectives.communicator import Communicator

HELP = "run conformance files: programs with their own checks, or with errors expected at marked lines"

Outcome = tuple[str, Verdict]
Judge = Callable[[Case], Verdict]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file, or a folder of .mlir files")
    parser.add_argument("-v", "--verbose", action="store_true", help="tell each module's outcome, and why it failed")
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
        "run the grids that modules run on threads, as one stacked program, or stacked where they can be "
        "(default: %(default)s)",
        default="threads",
    )
    parser.add_argument(
        "--diagnostics",
        action="store_true",
        help="compare expected errors by their text, too, as MLIR's -verify-diagnostics does, not by line alone",
    )


def run(args: argparse.Namespace) -> int:
    cases = [case for case in read_cases(args.paths) if args.keyword in case.name]
    passed = failed = by_line = only_verified = 0
    world = _ranks()
    judged = partial(judge, execute=not args.no_run, diagnostics=args.diagnostics, mode=args.mode, explore=args.explore)
    outcomes = _outcomes(cases, args.jobs if world is None else 1, judged)
    if world is not None:
        outcomes = _of_all(world, outcomes)
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


def _ranks() -> Communicator | None:
    """All ranks when there are several: they take each module together."""
    from spmd.runtime.world import ranks, under_mpi

    world = ranks() if under_mpi() else None
    return world if world is not None and world.size > 1 else None


def _of_all(world: Communicator, outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
    """A module passes when it passes on every rank."""
    for name, verdict in outcomes:
        problems = {
            rank: other
            for rank, other in enumerate(world.exchange_results(verdict.problem, f"the verdict on {name}"))
            if other is not None
        }
        first = next(iter(problems.items()), None)
        yield name, verdict if first is None else Verdict(f"on rank {first[0]}: {first[1]}")


def _outcomes(cases: list[Case], jobs: int, judged: Judge) -> Iterator[Outcome]:
    """Each module's name and verdict, in order."""
    files = [list(group) for _, group in groupby(cases, lambda case: case.path)]
    if jobs <= 1 or len(files) <= 1:
        for group in files:
            yield from _check(judged, group)
        return
    # Started afresh: a fork of this process would share the threads of whatever libraries it has loaded.
    with ProcessPoolExecutor(min(jobs, len(files)), mp_context=get_context("forkserver")) as pool:
        check = partial(_check, judged)
        for outcomes in pool.map(check, files, chunksize=max(1, len(files) // (8 * jobs))):
            yield from outcomes


def _check(judged: Judge, cases: Iterable[Case]) -> list[Outcome]:
    return [(case.name, _verdict(judged, case)) for case in cases]


def _verdict(judged: Judge, case: Case) -> Verdict:
    try:
        return judged(case)
    except Exception as error:  # a defect of ours: it fails this module, not the run
        return Verdict(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
