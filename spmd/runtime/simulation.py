"""Simulation of a process grid as one stacked program: thousands of processes on one machine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from typing import Any, Unpack

import numpy as np

from collectives.grid import ProcessGrid
from collectives.threads import single_process
from spmd.analysis.memory import free_memory
from spmd.compiler.pipeline.options import CompileOptions
from spmd.compiler.pipeline.prepare import Prepared, prepare
from spmd.compiler.stack import stack
from spmd.errors import ExecutionError
from spmd.ir import Module
from spmd.runtime import profiling
from spmd.runtime.arguments import Check, argument_check, check_count
from spmd.runtime.compile import compile
from spmd.runtime.executable import Executable
from spmd.runtime.process import Process
from spmd.runtime.streams import InfeedSource, OutfeedTarget, open_streams
from spmd.runtime.watch import Profile
from spmd.support.arrays import Argument, Array, Results, Source, map_parts
from spmd.support.usage import check_function, check_grid, check_memory, check_module, kind_of
from spmd.types import TensorType, TupleType, Type


class Simulation:
    """One function of a module, compiled once for all processes of a grid as one stacked program.

    Call it with arrays that have a leading axis of all processes in rank order, or of size 1 if equal on every process.
    It returns a tuple of arrays stacked alike. `in_types` and `out_types` are those of one process, `in_shardings` and
    `out_shardings` those of the program, if it has any.
    """

    def __init__(
        self,
        prepared: Prepared,
        options: CompileOptions,
        memory: int | None = None,
        stacked: tuple[bool, ...] | None = None,
    ) -> None:
        """Compile for one choice of arguments that differ between processes, `stacked`; by default all do."""
        self._prepared = prepared
        self._options = options
        self._memory = free_memory() // 2 if memory is None else memory
        self.grid: ProcessGrid = self._prepared.options.grid
        self.function = prepared.function.symbol
        self.in_types: tuple[Type, ...] = self._prepared.function.type.inputs
        self.out_types: tuple[Type, ...] = self._prepared.function.type.results
        self.in_shardings = prepared.in_shardings
        self.out_shardings = prepared.out_shardings
        self._by_flags: dict[tuple[bool, ...], _Compiled] = {}
        #: The same during a profile.
        self._profile: Profile | None = None
        self._profiled: dict[tuple[bool, ...], _Compiled] = {}
        self._compiled((True,) * len(self.in_types) if stacked is None else stacked)

    @property
    def module(self) -> Module:
        """The stacked program for arguments that all differ between processes."""
        return self._compiled((True,) * len(self.in_types)).executable.module

    @property
    def serial(self) -> tuple[str, ...]:
        """The ops that are run process by process, with their source locations."""
        return self._compiled((True,) * len(self.in_types)).serial

    def __call__(
        self,
        *arrays: Argument,
        collapse: bool = False,
        infeed: Sequence[InfeedSource | None] | None = None,
        outfeed: Sequence[OutfeedTarget | None] | None = None,
    ) -> tuple[Array, ...]:
        """Run all processes, and return a tuple with one stacked array per result.

        `arrays` has one entry per argument, of its dtype, with its shape after the leading axis. A result that is known
        to be equal on all processes is stored once: it is a read-only broadcast view, or, with `collapse`, has a
        leading axis of size 1. `infeed` and `outfeed` have one entry per process (see spmd.runtime.streams). Raises
        ExecutionError, which names the argument, or the op and its source line.
        """
        check_count(self.function, arrays, self.in_types)
        pairs = enumerate(zip(arrays, self.in_types, strict=True))
        stacked_arguments = [_argument(array, type, self.grid, f"argument {index}") for index, (array, type) in pairs]
        flags = tuple([stacked for _, stacked in stacked_arguments])
        compiled = self._compiled(flags)
        with open_streams(self.grid, infeed, outfeed) as streams:
            process = Process(ProcessGrid(1, 1), single_process(), streams=streams)
            results = self._run(compiled, process, [value for value, _ in stacked_arguments])
        return tuple([self._result(value, up, collapse) for value, up in zip(results, compiled.stacked, strict=True)])

    def _run(self, compiled: _Compiled, process: Process, arrays: Sequence[Array]) -> tuple[Array, ...]:
        profile = profiling.active()
        try:
            with nullcontext() if profile is None else self._step(profile):
                return compiled.executable.run(process, arrays)
        except ExecutionError as error:
            error.add_note(
                f"in the stacked program of a {self.grid} grid: leading axes of {self.grid.size} are processes"
            )
            raise

    def _step(self, profile: Profile) -> AbstractContextManager[None]:
        return profile.program(self.function, self._prepared.function.signature, stacked=range(self.grid.size))

    def shard(self, *arrays: Source) -> tuple[Array, ...]:
        """Return the blocks of global arguments that the processes hold, stacked, by the program's shardings.

        An argument is a whole array, or a callable that makes a block: `callback(index) -> array`. Arguments of a
        program without shardings are equal on every process.
        """
        check_count(self.function, arrays, self.in_types)
        if self.in_shardings is None:
            return tuple([map_parts(lambda part: part[None], _array(source)) for source in arrays])
        from partitioner import shard_stacked  # loaded late: most programs have no shardings

        pairs = zip(arrays, self.in_shardings, strict=True)
        return tuple([shard_stacked(array, sharding, self.grid.size) for array, sharding in pairs])

    def unshard(self, *results: Array) -> tuple[Array, ...]:
        """Return the global results, whole, from stacked ones; without shardings, those of the first process."""
        if self.out_shardings is None:
            return tuple([map_parts(lambda part: part[0, ...], _array(result)) for result in results])
        from partitioner import unshard_stacked  # loaded late, as above

        return tuple(map(unshard_stacked, results, self.out_shardings))

    def _compiled(self, flags: tuple[bool, ...]) -> _Compiled:
        """Return the program for arguments that differ between processes (True) or not."""
        profile = profiling.active()
        if profile is not self._profile:
            self._profile, self._profiled = profile, {}
        known = self._by_flags if profile is None else self._profiled
        compiled = known.get(flags)
        if compiled is None:
            prepared, options = self._prepared, self._options
            if profile is not None:
                prepared = replace(prepared, options=replace(prepared.options, watch=profile))
                options = CompileOptions(**{**options, "watch": profile})
            compiled = known[flags] = _compile(prepared, flags, options, self._memory)
        return compiled

    def _result(self, value: Any, stacked: bool, collapse: bool) -> Any:
        if isinstance(value, tuple):
            return tuple([self._result(part, stacked, collapse) for part in value])
        if stacked or value is None:
            return value
        return value[None] if collapse else np.broadcast_to(value, (self.grid.size, *value.shape))

    def __repr__(self) -> str:
        return f"<simulation of @{self.function} on a {self.grid} grid>"


class _Compiled:
    """The program for one choice of stacked arguments."""

    def __init__(self, executable: Executable, stacked: tuple[bool, ...], serial: tuple[str, ...]) -> None:
        self.executable, self.stacked, self.serial = executable, stacked, serial


def simulate(
    module: Module,
    grid: ProcessGrid | None = None,
    function: str = "main",
    *,
    memory: int | None = None,
    **options: Unpack[CompileOptions],
) -> Simulation:
    """Compile `function` of `module` for all processes of `grid` at once.

    `grid` defaults as in spmd.compile. A program with shardings is partitioned first. `options` are those of
    spmd.compile. If the stacked arrays need more than `memory` bytes (by default half of the free memory), processes
    are run in chunks between communications. Raises CompileError for what cannot be stacked, CollectiveError for
    communication that does not match.
    """
    check_module(module, "spmd.simulate")
    check_grid(grid, "spmd.simulate")
    check_function(function, "spmd.simulate")
    check_memory(memory, "spmd.simulate")
    return Simulation(prepare(module, grid, function, **options), options, memory)


def simulation_of(executable: Executable, memory: int | None = None) -> Simulation:
    """Return the simulation of the program that `executable` runs as one process."""
    function = executable.module.function(executable.function)
    shardings = executable.in_shardings, executable.out_shardings
    chosen = executable.options
    options: Any = {entry.name: getattr(chosen, entry.name) for entry in fields(chosen) if entry.name != "grid"}
    options["donate"] = ()  # an argument may be shared by several processes
    return Simulation(Prepared(executable.module, function, chosen, *shardings), options, memory)


def _compile(prepared: Prepared, flags: tuple[bool, ...], options: CompileOptions, memory: int) -> _Compiled:
    symbol = prepared.function.symbol
    stacked = stack(prepared.module, prepared.options, symbol, flags, memory)
    executable = compile(stacked.module, ProcessGrid(1, 1), symbol, partition=False, **options)
    return _Compiled(executable, stacked.results, tuple([f"{op.location}: {op.name}" for op in stacked.serial]))


def stacked_columns(
    function: str, types: Sequence[Type], inputs: Sequence[Sequence[Argument]], ranks: Sequence[int]
) -> list[Array]:
    """Return the arguments of the processes `ranks`, given in this order, stacked: one array per argument.

    Raises ExecutionError, which names the process and the argument.
    """
    for rank, arrays in zip(ranks, inputs, strict=True):
        check_count(function, arrays, types, process=rank)
    checks = [argument_check(type, f"argument {index}") for index, type in enumerate(types)]
    return [_column(check, [arrays[index] for arrays in inputs], ranks) for index, check in enumerate(checks)]


def _column(check: Check, values: Sequence[Argument], ranks: Sequence[int]) -> Any:
    """Return one argument of all processes, stacked; with a leading axis of 1 if it is one object."""
    if all(value is values[0] for value in values):
        return map_parts(lambda part: part[None], check(values[0]))
    arrays = []
    for rank, value in zip(ranks, values, strict=True):
        try:
            arrays.append(check(value))
        except ExecutionError as error:
            error.add_note(f"in process {rank}")
            raise
    return _stacked(arrays)


def _stacked(values: Sequence[Any]) -> Any:
    """Return the values of all processes along a leading axis; of tuples by part, of tokens one."""
    if isinstance(values[0], tuple):
        return tuple(map(_stacked, zip(*values, strict=True)))
    return values[0] if values[0] is None else np.stack(values)


def repeated(column: Any, count: int) -> Any:
    """Return an argument with a row for each of `count` processes; a token is unchanged."""
    return map_parts(lambda part: np.broadcast_to(part, (count, *part.shape[1:])), column)


def _array(value: Any) -> Any:
    return value if isinstance(value, tuple) else np.asarray(value)


def of_process(value: Results, row: int) -> Any:
    """Return a stacked result's row as a separate array."""
    return map_parts(lambda part: np.array(part[row]), value)


def _argument(value: object, type: Type, grid: ProcessGrid, place: str) -> tuple[Any, bool]:
    """Return an argument as the program takes it, and whether it differs between processes; tuples always do."""
    if isinstance(type, TupleType):
        if not isinstance(value, tuple) or len(value) != len(type.types):
            raise ExecutionError(f"{place}: {type} is needed, each part stacked, got {kind_of(value)}")
        pairs = enumerate(zip(value, type.types, strict=True))
        parts = [_argument(part, inner, grid, f"part {index} of {place}") for index, (part, inner) in pairs]
        return tuple([part if stacked else repeated(part[None], grid.size) for part, stacked in parts]), True
    if not isinstance(type, TensorType):
        return value, True
    array = np.asarray(value)
    if array.dtype != type.dtype or array.ndim != type.rank + 1 or array.shape[0] not in (1, grid.size):
        text = f"{place}: {type} behind a leading axis of {grid.size} processes (or 1) is needed"
        raise ExecutionError(f"{text}, got {array.dtype} of shape {array.shape}")
    stacked = array.shape[0] == grid.size
    return (array, True) if stacked else (array[0, ...], False)
