"""Judge the modules of conformance files: in several processes of this machine, or on all MPI ranks together."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import groupby
from multiprocessing import get_context
from typing import TYPE_CHECKING

from launch.conformance import Case, Verdict

if TYPE_CHECKING:
    from collectives.communicator import Communicator

#: A module's name and verdict.
Outcome = tuple[str, Verdict]
Judge = Callable[[Case], Verdict]


def all_ranks() -> Communicator | None:
    """Return the communicator of all ranks if there are several, which then run each module together."""
    from spmd.runtime.world import ranks, under_mpi

    world = ranks() if under_mpi() else None
    return world if world is not None and world.size > 1 else None


def outcomes_of_ranks(world: Communicator, outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
    """Yield verdicts of which one passes only if it passes on every rank."""
    for name, verdict in outcomes:
        problems = {
            rank: other
            for rank, other in enumerate(world.exchange_results(verdict.problem, f"the verdict on {name}"))
            if other is not None
        }
        first = next(iter(problems.items()), None)
        yield name, verdict if first is None else Verdict(f"on rank {first[0]}: {first[1]}")


def outcomes_of(cases: list[Case], jobs: int, judged: Judge) -> Iterator[Outcome]:
    """Yield each module's name and verdict, in order."""
    files = [list(group) for _, group in groupby(cases, lambda case: case.path)]
    if jobs <= 1 or len(files) <= 1:
        for group in files:
            yield from _check(judged, group)
        return
    # Not forked: a fork would share the threads of libraries that this process has loaded.
    with ProcessPoolExecutor(min(jobs, len(files)), mp_context=get_context("forkserver")) as pool:
        check = partial(_check, judged)
        for outcomes in pool.map(check, files, chunksize=max(1, len(files) // (8 * jobs))):
            yield from outcomes


def _check(judged: Judge, cases: Iterable[Case]) -> list[Outcome]:
    return [(case.name, _verdict(judged, case)) for case in cases]


def _verdict(judged: Judge, case: Case) -> Verdict:
    try:
        return judged(case)
    except Exception as error:  # a defect of spmd fails this module, not the run
        return Verdict(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
