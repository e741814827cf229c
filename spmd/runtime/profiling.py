"""Profiles of scripts: every program that runs, on all ranks, in one trace.

During a profile, executables run programs that are compiled again, at their next call, with a timer in each unit;
afterwards they run their own again. Calls without a profile have no overhead.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

import numpy as np

from collectives.communicator import Communicator
from collectives.grid import Groups, ProcessGrid
from spmd.backends.kernels import Program
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.options import Options
from spmd.errors import UsageError
from spmd.ir import Module
from spmd.runtime import world
from spmd.runtime.process import Process
from spmd.runtime.trace import TraceRecord, groups_of, with_waits, write_trace
from spmd.runtime.watch import Profile
from spmd.support.arrays import Array, Results
from spmd.support.step_range import steps_from

VARIABLE, STEPS_VARIABLE = "SPMD_PROFILE", "SPMD_PROFILE_STEPS"
#: Maximum number of events per rank; programs run without timers from then on.
MOST_EVENTS = 1_000_000


class Profiled(Protocol):
    """The interface of an executable that a profile uses."""

    @property
    def module(self) -> Module: ...

    @property
    def function(self) -> str: ...

    @property
    def options(self) -> Options: ...

    def finished(self, results: Sequence[Results]) -> tuple[Array, ...]:
        """Return the caller's results from the program's."""

    def run_as(self, program: Program | None) -> Program:
        """Run `program` from the next call on, or the executable's own if None; return the latter."""


_executables: WeakSet[Profiled] = WeakSet()
_session: _Session | None = None


@contextmanager
def profile(path: str | os.PathLike[str], *, steps: range | None = None) -> Iterator[None]:
    """Time all executables, simulations and functions of spmd.jax within the context, unit by unit, into a trace.

    Collective under MPI; the file has one track per rank, with the waits inside collectives. Processes that are threads
    or part of a stacked program have tracks as well. Perfetto (ui.perfetto.dev), Chrome and `spmd diagnose` read it.

    :param steps: the steps to record, such as range(2, 10); by default all. A step is one call of a program, counted
        from 0 per process, over programs of the same name and types together. The steps before, which compile again and
        have cold caches, are run but not recorded.
    :raises UsageError: within another profile, and for invalid steps.
    :raises OSError: if the file cannot be written.
    """
    world.drain_queues()
    session = _begin(path, _checked(steps))
    if world.under_mpi():
        session.meet(world.ranks("spmd.profile"))
    try:
        yield
    except BaseException:
        session.stop()  # other ranks may not reach the end
        raise
    world.drain_queues()
    session.finish()


def add(executable: Profiled) -> None:
    """Register an executable with the current and future profiles."""
    _executables.add(executable)
    if _session is not None:
        _session.watch(executable)


def active() -> Profile | None:
    """Return the profile in progress, or None."""
    return None if _session is None else _session.profile


def begin_as_environment_says() -> None:
    """Start a profile of everything that this process runs if $SPMD_PROFILE names its file."""
    if path := os.environ.get(VARIABLE):
        session = _begin(path, _steps_of_environment())
        world.when_ranks_meet(session.meet_for_good)
        if not world.under_mpi():
            atexit.register(session.finish)


def _steps_of_environment() -> range | None:
    text = os.environ.get(STEPS_VARIABLE)
    try:
        return steps_from(text) if text else None
    except ValueError as error:
        raise UsageError(f"{STEPS_VARIABLE}={text}: {error}") from None


def _checked(steps: object) -> range | None:
    if steps is None or (isinstance(steps, range) and steps and steps.step == 1 and steps.start >= 0):
        return steps
    raise UsageError(f"steps must be a range of numbers from 0 on, such as range(2, 10), got {steps!r}")


def _begin(path: str | os.PathLike[str], steps: range | None) -> _Session:
    global _session
    if _session is not None:
        raise UsageError(f"{path}: a profile is being taken already, for {_session.path}")
    _session = _Session(Path(path).absolute(), steps)
    for executable in tuple(_executables):
        _session.watch(executable)
    return _session


class _Session:
    """A profile in progress."""

    def __init__(self, path: Path, steps: range | None) -> None:
        self.path = path
        self.profile = Profile(steps=steps)
        self._groups: dict[str, Groups] = {}
        self._grids: set[ProcessGrid] = set()
        self._communicator: Communicator | None = None

    def meet(self, communicator: Communicator) -> None:
        """Synchronize clocks with the other ranks. Collective."""
        self._communicator = communicator
        communicator.barrier("the start of the profile")
        self.profile.began = time.perf_counter()

    def meet_for_good(self, communicator: Communicator) -> None:
        """Synchronize, and finish at exit, before the ranks disconnect. Collective."""
        self.meet(communicator)
        atexit.register(self.finish)

    def watch(self, executable: Profiled) -> None:
        if executable.options.watch is None:
            executable.run_as(self._program(executable))

    def _program(self, executable: Profiled) -> Program:
        watched: Program | None = None
        own = executable.run_as(None)
        signature = executable.module.function(executable.function).signature

        def run(process: Process, *values: Array) -> tuple[Array, ...]:
            nonlocal watched
            if len(self.profile.events) > MOST_EVENTS:
                return own(process, *values)
            if watched is None:
                watched = self._compile(executable)
            with self.profile.program(executable.function, signature, process.rank):
                results = watched(process, *values)
            return executable.finished(results)

        return run

    def _compile(self, executable: Profiled) -> Program:
        module = executable.module
        self._groups.update(groups_of(module, executable.options.grid))
        self._grids.add(executable.options.grid)
        lowering = ModuleLowering(module, replace(executable.options, watch=self.profile))
        program, _ = lowering.entry(module.function(executable.function))
        return np.errstate(all="ignore")(program)

    def stop(self) -> None:
        """Stop timing."""
        global _session
        _session = None
        for executable in tuple(_executables):
            executable.run_as(None)

    def finish(self) -> None:
        """Write the trace of all ranks. Collective."""
        self.stop()
        communicator = self._communicator
        events = self.profile.trace_events(0 if communicator is None else communicator.rank)
        self.profile.events.clear()
        of_ranks: Sequence[list[TraceRecord]] = [events]
        if communicator is not None:
            of_ranks = communicator.exchange_results(events, "the end of the profile")
            if communicator.rank:
                return
        if not any(of_ranks) and VARIABLE in os.environ:
            return  # nothing ran in this process of a profiled job, such as a launcher
        grid = self._grids.pop() if len(self._grids) == 1 else None
        together = with_waits([event for own in of_ranks for event in own], self._groups, grid)
        try:
            write_trace(self.path, together)
        except OSError as error:
            if VARIABLE not in os.environ:
                raise
            print(f"{self.path}: the profile could not be written: {error.strerror}", file=sys.stderr)
