"""Profiles of scripts: every program that runs, on all ranks, in one trace.

While a profile is taken, executables run programs that are compiled again with a clock in each unit, at their next
call; when it ends, they run their own again. Nothing of this is on the path of a call without a profile.
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
from spmd.runtime.trace import TraceEvent, groups_of, with_waits, write_trace
from spmd.runtime.watch import Profile
from spmd.support.arrays import Array, Results
from spmd.support.step_range import steps_from

VARIABLE, STEPS_VARIABLE = "SPMD_PROFILE", "SPMD_PROFILE_STEPS"
#: Events that a rank keeps; programs run as they do without a profile from then on.
MOST_EVENTS = 1_000_000


class Profiled(Protocol):
    """An executable, as far as a profile sees it."""

    @property
    def module(self) -> Module: ...

    @property
    def function(self) -> str: ...

    @property
    def options(self) -> Options: ...

    def finished(self, results: Sequence[Results]) -> tuple[Array, ...]:
        """What the caller gets of the program's results."""

    def run_as(self, program: Program | None) -> Program:
        """From the next call on runs `program`, or (None) its own, which it returns."""


_executables: WeakSet[Profiled] = WeakSet()
_session: _Session | None = None


@contextmanager
def profile(path: str | os.PathLike[str], *, steps: range | None = None) -> Iterator[None]:
    """A context whose executables, simulations and functions of spmd.jax are timed, unit by unit, into a trace.

    Under MPI, all ranks enter it and leave it together; one file has them all, a track a rank, with the waits inside
    collectives. Processes that are threads or computed as one stacked program have tracks, too. The file is one that
    Perfetto (ui.perfetto.dev), Chrome and `spmd diagnose` read.

    :param steps: the steps to keep, such as range(2, 10); without it all. A step is one call of a program, counted from
        0 in each process, those of programs of the same name and types together. Steps before, in which programs are
        compiled once more and caches are cold, are run and left out.
    :raises UsageError: within another profile, and for steps that are none.
    :raises OSError: where the file cannot be written.
    """
    session = _begin(path, _checked(steps))
    if world.under_mpi():
        session.meet(world.ranks("spmd.profile"))
    try:
        yield
    except BaseException:
        session.stop()  # others may not come to the end
        raise
    session.finish()


def add(executable: Profiled) -> None:
    """An executable is there from now on."""
    _executables.add(executable)
    if _session is not None:
        _session.watch(executable)


def active() -> Profile | None:
    """The profile that is being taken."""
    return None if _session is None else _session.profile


def begin_as_environment_says() -> None:
    """Takes a profile of all that this process runs, where $SPMD_PROFILE names the file for it."""
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
    """A profile while it is taken."""

    def __init__(self, path: Path, steps: range | None) -> None:
        self.path = path
        self.profile = Profile(steps=steps)
        self._groups: dict[str, Groups] = {}
        self._grids: set[ProcessGrid] = set()
        self._communicator: Communicator | None = None

    def meet(self, communicator: Communicator) -> None:
        """Has one clock with the other ranks."""
        self._communicator = communicator
        communicator.barrier("the start of the profile")
        self.profile.began = time.perf_counter()

    def meet_for_good(self, communicator: Communicator) -> None:
        """The same, until the end of the program, before the ranks take leave of each other."""
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
        """Nothing is timed any more."""
        global _session
        _session = None
        for executable in tuple(_executables):
            executable.run_as(None)

    def finish(self) -> None:
        """Writes the trace, of all ranks. Collective."""
        self.stop()
        communicator = self._communicator
        events = self.profile.trace_events(0 if communicator is None else communicator.rank)
        self.profile.events.clear()
        of_ranks: Sequence[list[TraceEvent]] = [events]
        if communicator is not None:
            of_ranks = communicator.exchange_results(events, "the end of the profile")
            if communicator.rank:
                return
        if not any(of_ranks) and VARIABLE in os.environ:
            return  # of those that the environment speaks of, nobody has run anything here: a launcher, for one
        grid = self._grids.pop() if len(self._grids) == 1 else None
        together = with_waits([event for own in of_ranks for event in own], self._groups, grid)
        try:
            write_trace(self.path, together)
        except OSError as error:
            if VARIABLE not in os.environ:
                raise
            print(f"{self.path}: the profile could not be written: {error.strerror}", file=sys.stderr)
