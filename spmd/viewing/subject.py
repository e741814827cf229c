"""The subject of a page: a program, partitioned, scheduled and priced once for all panels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from collectives.grid import ProcessGrid
from collectives.network import Network
from partitioner.record import PartitionRecord
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.options import CompileOptions
from spmd.compiler.pipeline.prepare import Prepared, prepare
from spmd.errors import SpmdError
from spmd.ir import Function, Module
from spmd.predict.events import PricedSchedule, price_schedule
from spmd.predict.machine import Machine
from spmd.predict.prediction import Prediction, predicted
from spmd.runtime.executable import Executable

T = TypeVar("T")


@dataclass(eq=False)
class Subject:
    """A program to show. Parts that cannot be computed are None, and `notes` gives the reason."""

    module: Module
    prepared: Prepared
    machine: Machine
    network: Network | None
    title: str
    record: PartitionRecord | None = None
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        module: Module,
        grid: ProcessGrid | None,
        function: str,
        machine: Machine,
        network: Network | None,
        title: str,
        options: CompileOptions,
        *,
        partition: bool = True,
    ) -> Subject:
        """Return the subject of `function` of `module`; a program that cannot be partitioned is shown as written."""
        record = PartitionRecord()
        notes: list[str] = []
        try:
            prepared = prepare(module, grid, function, partition=partition, record=record, **options)
        except SpmdError as error:
            if not partition:
                raise
            notes.append(f"not partitioned: {_first_line(error)}")
            prepared = prepare(module, grid, function, partition=False, **options)
        notes += [f"not partitioned: {note}" for note in prepared.notes]
        return cls(module, prepared, machine, network, title, record if record.program else None, notes)

    @classmethod
    def of_executable(cls, executable: Executable, machine: Machine, network: Network | None, title: str) -> Subject:
        """Return the subject of a compiled program: the program of one process."""
        module = executable.module
        shardings = executable.in_shardings, executable.out_shardings
        prepared = Prepared(module, module.function(executable.function), executable.options, *shardings)
        return cls(module, prepared, machine, network, title)

    @property
    def grid(self) -> ProcessGrid:
        """The process grid."""
        return self.prepared.options.grid

    @cached_property
    def lowering(self) -> ModuleLowering:
        """The lowering of the program of one process."""
        return ModuleLowering(self.prepared.module, self.prepared.options)

    @cached_property
    def priced(self) -> PricedSchedule | None:
        """The schedule with predicted times."""
        return self.tried("no schedule", lambda: price_schedule(self.lowering, self.prepared.function, self.machine))

    @cached_property
    def flat(self) -> Function | None:
        """The function as scheduled: calls inlined, collectives combined."""
        if self.priced is not None:
            return self.priced.function
        return self.tried("not simplified", lambda: self.lowering.flatten(self.prepared.function))

    @cached_property
    def prediction(self) -> Prediction | None:
        """The predicted step."""
        priced = self.priced
        if priced is None:
            return None
        # The notes of partitioning are included already.
        prepared = replace(self.prepared, notes=())
        return self.tried("no prediction", lambda: predicted(prepared, priced, self.machine, self.network))

    def tried(self, what: str, make: Callable[[], T]) -> T | None:
        """Return the result of `make`; if it raises, add a note that begins with `what` and return None."""
        try:
            return make()
        except (SpmdError, ValueError, TypeError, AssertionError) as error:
            self.notes.append(f"{what}: {_first_line(error)}")
            return None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
