"""Simulation of a grid whose processes run different programs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from typing import Any

import numpy as np

from collectives.grid import ProcessGrid
from collectives.threads import single_process
from spmd.compiler.stack import stack_several
from spmd.runtime import profiling
from spmd.runtime.compile import compile
from spmd.runtime.executable import Executable
from spmd.runtime.process import Process
from spmd.runtime.simulation import of_process, repeated, stacked_columns
from spmd.runtime.streams import InfeedSource, OutfeedTarget, open_streams
from spmd.runtime.watch import Profile
from spmd.support.arrays import Argument, Array, map_parts


class ProgramsSimulation:
    """The stacked program of processes that run different programs, one executable per process in rank order.

    Raises CompileError if they cannot be stacked, CollectiveError if their communication does not match.
    """

    def __init__(self, executables: Sequence[Executable]) -> None:
        self._programs = list({id(executable): executable for executable in executables}.values())
        places = {id(executable): place for place, executable in enumerate(self._programs)}
        options = executables[0].options
        self._profile = profiling.active()
        if self._profile is not None:
            options = replace(options, watch=self._profile)
        program_of = [places[id(executable)] for executable in executables]
        self._stacked = stack_several([(each.module, each.function) for each in self._programs], program_of, options)
        chosen: Any = {entry.name: getattr(options, entry.name) for entry in fields(options) if entry.name != "grid"}
        chosen["donate"] = ()  # an argument may be shared by several processes
        symbol = self._stacked.function.symbol
        self._executable = compile(self._stacked.module, ProcessGrid(1, 1), symbol, partition=False, **chosen)
        self.grid = options.grid
        self.serial = tuple([f"{op.location}: {op.name}" for op in self._stacked.serial])

    def __call__(
        self,
        inputs: Sequence[Sequence[Argument]],
        infeed: Sequence[InfeedSource | None] | None = None,
        outfeed: Sequence[OutfeedTarget | None] | None = None,
    ) -> list[tuple[Array, ...]]:
        """Return the results of each process; `inputs`, `infeed` and `outfeed` have one entry per process, in rank
        order.
        """
        arrays = []
        for program, ranks in zip(self._programs, self._stacked.ranks, strict=True):
            inputs_of_program = [inputs[rank] for rank in ranks]
            columns = stacked_columns(program.function, program.in_types, inputs_of_program, ranks)
            arrays += [repeated(column, len(ranks)) for column in columns]
        with open_streams(self.grid, infeed, outfeed) as streams:
            process = Process(ProcessGrid(1, 1), single_process(), streams=streams)
            with nullcontext() if self._profile is None else self._step(self._profile):
                values = iter(self._executable.run(process, arrays))
        of_ranks: list[tuple[Array, ...]] = [()] * self.grid.size
        for ranks, stacked in zip(self._stacked.ranks, self._stacked.results, strict=True):
            results = [next(values) for _ in stacked]
            for row, rank in enumerate(ranks):
                pairs = zip(results, stacked, strict=True)
                of_ranks[rank] = tuple([_result(value, row, up) for value, up in pairs])
        return of_ranks

    def _step(self, profile: Profile) -> AbstractContextManager[None]:
        function = self._stacked.function
        return profile.program(function.symbol, function.signature, stacked=range(self.grid.size))


def _result(value: Any, row: int, stacked: bool) -> Any:
    """Return a process's result as a separate array."""
    return of_process(value, row) if stacked else map_parts(np.array, value)
