"""A compiled program and what a user does with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from operator import call
from threading import get_ident
from typing import TYPE_CHECKING

import numpy as np

from collectives.errors import CommunicationError as TransportError
from collectives.grid import ProcessGrid
from collectives.memory import keep_freed_memory
from collectives.one_thread import OneThread
from collectives.recorder import RECORDER
from spmd.analysis.collectives import COMMUNICATING
from spmd.analysis.memory import too_large
from spmd.backends.kernels import Program
from spmd.compiler.pipeline.options import Options
from spmd.compiler.plan.donation import donated_arguments, owned_arrays
from spmd.compiler.plan.emit import locate
from spmd.compiler.plan.native_program import NativeProgram
from spmd.errors import CollectiveError, CompileError, Diagnostic, ExecutionError, SpmdError
from spmd.ir import Function, Module
from spmd.runtime import profiling, world
from spmd.runtime.arguments import Check, argument_check, argument_names
from spmd.runtime.fingerprint import Fingerprint
from spmd.runtime.process import Process
from spmd.runtime.streams import InfeedSource, OutfeedTarget, infeed_from, outfeed_to
from spmd.runtime.world import process_of
from spmd.support.arrays import Argument, Array, Results, Source
from spmd.support.pictures import picture_of
from spmd.support.processor import Processor
from spmd.support.signal_handlers import raised_in_handler
from spmd.types import TokenType, TupleType, Type

if TYPE_CHECKING:
    from partitioner.sharding import ShardedType


class Executable:
    """One function of a module, compiled for a process grid.

    Call it with this process's arrays; it returns a tuple of arrays, one a result. Under mpirun this process is the
    rank; alone it is the only process of the grid. `in_types` and `out_types` are the types of the process's own
    arguments and results, `module` the program of one process.
    """

    def __init__(
        self,
        module: Module,
        function: Function,
        program: Program,
        options: Options,
        copied: frozenset[int],
        in_shardings: Sequence[ShardedType] | None = None,
        out_shardings: Sequence[ShardedType] | None = None,
        *,
        all_native: bool = False,
        recompile: Callable[[], Program],
        native: NativeProgram | None = None,
    ) -> None:
        """`copied` are results that others hold, too; `all_native`: NumPy computes nothing of the program; `recompile`
        gives the program anew, for what the ranks have agreed on meanwhile; `native`: the program without Python."""
        keep_freed_memory()
        if (fault := too_large(function.type.results)) is not None:
            raise CompileError(Diagnostic(function.location, fault, f"the result of @{function.symbol}"))
        self.module = module
        self.grid: ProcessGrid = options.grid
        self.options = options
        self.function = function.symbol
        self.in_types: tuple[Type, ...] = function.type.inputs
        self.out_types: tuple[Type, ...] = function.type.results
        self.in_shardings = in_shardings
        self.out_shardings = out_shardings
        self._step = f"@{function.symbol}"
        self._signature = function.signature
        self._location = function.location
        self._all_native = all_native
        self._own_program = self._program = self._quiet(program)
        self._recompile = recompile
        self._native = native
        #: Called with whether `native` may be run in place of this executable, once that changes.
        self.when_replaced: Callable[[bool], None] | None = None
        self._processor = self._chosen_processor()
        self._checks = [
            argument_check(type, f"argument {index}{f' ({name})' if name else ''} of @{self.function}")
            for index, (type, name) in enumerate(zip(self.in_types, argument_names(function), strict=True))
        ]
        self._finish = [_finisher(type, index in copied) for index, type in enumerate(self.out_types)]
        #: Whether results are the caller's own arrays as the program gives them.
        self._is_finished = all_native and not copied
        self._donated = sorted(donated_arguments(function, options.donate))
        self._process: Process | None = None
        self._fingerprint = Fingerprint(module, function, options)
        #: The generation of ranks whose programs have been found to be this one; None before the first call.
        self._agreed: int | None = None
        profiling.add(self)

    def _quiet(self, program: Program) -> Program:
        """`program` without NumPy's warnings. As a decorator it is quicker at each call than a with statement."""
        return program if self._all_native else np.errstate(all="ignore")(program)

    def _chosen_processor(self) -> Processor | None:
        backend = self.options.native
        return None if backend is None else backend.processor(self.options.processor)

    @property
    def process(self) -> Process:
        """The process of this grid that this Python process is; CompileError when the grid does not fit the ranks."""
        if self._process is None:
            self._process = process_of(self.grid, self._fingerprint.what)
            self._process.communicator.set_timeout(self.options.collective_timeout, self.options.collective_abort)
        return self._process

    def __call__(
        self, *arrays: Argument, infeed: InfeedSource | None = None, outfeed: OutfeedTarget | None = None
    ) -> tuple[Array, ...]:
        """Runs the program on this process's arrays.

        `arrays` are one an argument, of the argument's shape and dtype (Python scalars for rank 0 are converted).
        `infeed` and `outfeed` are the process's streams from this call on (see spmd.runtime.streams).
        ExecutionError names the argument, or the op and its source line, that something is wrong with.
        """
        process = self._process or self.process
        if infeed is not None:
            process.infeed = infeed_from(infeed)
        if outfeed is not None:
            process.outfeed = outfeed_to(outfeed)
        return self.run_on(process, arrays)

    def run_on(self, process: Process, arrays: Sequence[Argument]) -> tuple[Array, ...]:
        """Runs the program as `process`, as the only thread that does where it communicates with other ranks."""
        threads = process.threads
        if threads is None or not self.communicates or threads.owner == get_ident():
            return self.run(process, arrays)
        return self._run_alone(process, threads, arrays)

    def _run_alone(self, process: Process, threads: OneThread, arrays: Sequence[Argument]) -> tuple[Array, ...]:
        """Runs the program; CollectiveError when two Python threads would at the same time."""
        try:
            if not threads.enter(False):
                raise threads.crowded(f"@{self.function}")
            threads.owner = get_ident()
            try:
                step = RECORDER.begin("step", self._step)
                results = self.run(process, arrays)
                step.end()
                return results
            finally:
                threads.owner = 0
                threads.leave()
        except SpmdError:
            raise
        except TransportError as error:
            raise CollectiveError(str(error)) from None

    @cached_property
    def communicates(self) -> bool:
        """Whether the program has ops that take part in communication between processes."""
        return any(op.name in COMMUNICATING for function in self.module.functions for op in function.walk())

    def run(self, process: Process, arrays: Sequence[Argument]) -> tuple[Array, ...]:
        """Runs the program as `process`; how in-process ranks share one executable."""
        values = self.checked(arrays)
        if self._donated:
            values = owned_arrays(values, self._donated)
        if self._agreed != world.generation:
            self._agree(process)
        try:
            results = self._program(process, *values)
        except SpmdError:
            raise
        except Exception as error:
            if raised_in_handler(error):
                raise
            raise _explained(error) from error
        return results if self._is_finished else self.finished(results)

    def finished(self, results: Sequence[Results]) -> tuple[Array, ...]:
        """The caller's own arrays of what the program gives."""
        return tuple([finish(result) for finish, result in zip(self._finish, results, strict=True)])

    def run_as(self, program: Program | None) -> Program:
        """From the next call on runs `program`, or (None) its own, which it returns."""
        self._program = self._own_program if program is None else program
        if self.when_replaced is not None:
            self.when_replaced(program is None)
        return self._own_program

    @property
    def native(self) -> NativeProgram | None:
        """The program as one native function, which is run in place of this executable by who has no arrays.

        None where it is none, before the ranks have agreed on what runs, and where another program runs in its place.
        """
        return self._native if self._agreed is not None and self._program is self._own_program else None

    def _agree(self, process: Process) -> None:
        """Makes sure that all ranks run this program, where they meet in it, and on what all of them can run.

        CollectiveError where they do not.
        """
        processor = self._chosen_processor()
        if processor != self._processor:
            is_own = self._program is self._own_program
            self._own_program, self._processor, self._native = self._quiet(self._recompile()), processor, None
            self._program = self._own_program if is_own else self._program
        if self.communicates and not self.options.mpmd:
            try:
                process.communicator.agree(self._fingerprint.agreement())
            except TransportError as error:
                raise CollectiveError(str(error)) from None
        self._agreed = world.generation

    def with_copies(self, arrays: Sequence[Argument]) -> Sequence[Argument]:
        """`arrays` with a copy of each that the program may write over: what several processes are given."""
        return [np.array(array) if index in self._donated else array for index, array in enumerate(arrays)]

    def checked(self, arrays: Sequence[Argument]) -> list[Array]:
        """`arrays` as the program takes them; ExecutionError names the argument that something is wrong with."""
        if len(arrays) != len(self._checks):
            raise ExecutionError(
                f"@{self.function} takes {len(self._checks)} arguments, got {len(arrays)}", self._location
            )
        return list(map(call, self._checks, arrays))  # in a third of the time that a loop over both takes

    def shard(self, *arrays: Source) -> tuple[Array, ...]:
        """This process's part of each global argument, by the program's shardings.

        An argument may be a whole array, or a callable that makes a block: `callback(index) -> array` with one slice
        a dimension. Arguments of a program without shardings are returned as they are.
        """
        if self.in_shardings is None:
            return arrays  # type: ignore[return-value]  # the caller's own, not looked at
        from partitioner import shard_array  # loaded late: most programs have no shardings

        if len(arrays) != len(self.in_shardings):
            raise ExecutionError(f"@{self.function} takes {len(self.in_shardings)} arguments, got {len(arrays)}")
        rank = self.process.rank
        return tuple(
            shard_array(array, sharding, rank) for array, sharding in zip(arrays, self.in_shardings, strict=True)
        )

    def unshard(self, *results: Array) -> tuple[Array, ...]:
        """The global results, whole, on every process: a collective call. Without shardings: as they are."""
        if self.out_shardings is None:
            return results
        from partitioner import unshard_array  # loaded late, as above

        process = self.process
        return tuple(
            unshard_array(result, sharding, process.communicator)
            for result, sharding in zip(results, self.out_shardings, strict=True)
        )

    def for_globals(self, arrays: Sequence[Argument]) -> Executable:
        """Return what runs the program on these global arguments: itself, where it is compiled for their sizes."""
        return self

    @property
    def devices(self) -> int:
        """How many processes hold one copy of the global arrays: those of the mesh, one without shardings."""
        layouts = (*(self.in_shardings or ()), *(self.out_shardings or ()))
        meshes = (layout.sharding.mesh for layout in layouts if layout.sharding is not None)
        return next((mesh.size for mesh in meshes), 1)

    def _repr_html_(self) -> str:
        return picture_of(self)

    def __repr__(self) -> str:
        name = f" of module @{self.module.symbol}" if self.module.symbol else ""
        return f"<executable {self._signature}{name} on a {self.grid} grid>"


def _finisher(type: Type, copied: bool) -> Check:
    """What a result needs before the caller owns it: rank 0 becomes an array, memory of another a copy.

    So does a view that repeats elements, which cannot be written to.
    """
    if isinstance(type, TokenType):
        return lambda value: None
    if isinstance(type, TupleType):
        parts = [_finisher(part, copied) for part in type.types]
        return lambda value: tuple(part(entry) for part, entry in zip(parts, value, strict=True))
    if copied:
        return np.array
    return _writeable


def _writeable(value: Array) -> Array:
    array = np.asarray(value)
    return array if array.flags.writeable else np.array(array)


def _explained(error: Exception) -> SpmdError:
    """`error` with the place of the op that was running."""
    kind: type[SpmdError] = ExecutionError
    if isinstance(error, TransportError):
        kind = CollectiveError
    op = locate(error.__traceback__)
    text = f"{error}" if isinstance(error, TransportError) else f"{type(error).__name__}: {error}"
    if op is None:
        return kind(text)
    return kind(Diagnostic(op.location, text, op.name))
