"""A compiled program."""

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
from collectives.record.recorder import RECORDER
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
from spmd.runtime.arguments import Check, argument_check, argument_names, check_count
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

    Call it with this process's arrays; it returns a tuple with one array per result. Under mpirun this process is the
    rank; without MPI it is the only process of the grid. `in_types` and `out_types` are the types of the process's
    arguments and results, `module` is the program of one process.
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
        """Wrap a compiled program.

        `copied` are results that alias other arrays; `all_native` is set if no op runs in NumPy; `recompile` returns
        the program compiled for what the ranks have agreed on; `native` is the program without Python.
        """
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
        #: Called, when that changes, with whether `native` may be run instead of this executable.
        self.when_replaced: Callable[[bool], None] | None = None
        self._processor = self._chosen_processor()
        self._checks = [
            argument_check(type, f"argument {index}{f' ({name})' if name else ''} of @{self.function}")
            for index, (type, name) in enumerate(zip(self.in_types, argument_names(function), strict=True))
        ]
        self._finish = [_finisher(type, index in copied) for index, type in enumerate(self.out_types)]
        #: Whether results need no conversion before they are returned.
        self._is_finished = all_native and not copied
        self._donated = sorted(donated_arguments(function, options.donate))
        self._process: Process | None = None
        self._fingerprint = Fingerprint(module, function, options)
        #: The generation of ranks that agreed on this program; None before the first call.
        self._agreed: int | None = None
        profiling.add(self)

    def _quiet(self, program: Program) -> Program:
        """Return `program` without NumPy's warnings; a decorator is faster per call than a with statement."""
        return program if self._all_native else np.errstate(all="ignore")(program)

    def _chosen_processor(self) -> Processor | None:
        backend = self.options.native
        return None if backend is None else backend.processor(self.options.processor)

    @property
    def process(self) -> Process:
        """The process of the grid that this Python process is; CompileError if the grid does not fit the ranks."""
        if self._process is None:
            self._process = process_of(self.grid, self._fingerprint.what)
            self._process.communicator.set_timeout(self.options.collective_timeout, self.options.collective_abort)
        return self._process

    def __call__(
        self, *arrays: Argument, infeed: InfeedSource | None = None, outfeed: OutfeedTarget | None = None
    ) -> tuple[Array, ...]:
        """Run the program on this process's arrays, and return a tuple with one new array per result.

        `arrays` has one entry per argument, of its shape and dtype (Python scalars of rank 0 are converted). `infeed`
        and `outfeed` set the process's streams from this call on (see spmd.runtime.streams). Raises ExecutionError,
        which names the argument or the op and its source line, and CollectiveError for failed communication.
        """
        process = self._process or self.process
        if infeed is not None:
            process.infeed = infeed_from(infeed)
        if outfeed is not None:
            process.outfeed = outfeed_to(outfeed)
        return self.run_on(process, arrays)

    def run_on(self, process: Process, arrays: Sequence[Argument]) -> tuple[Array, ...]:
        """Run the program as `process`, in at most one thread if it communicates with other ranks."""
        threads = process.threads
        if threads is None or not self.communicates or threads.owner == get_ident():
            return self.run(process, arrays)
        return self._run_alone(process, threads, arrays)

    def _run_alone(self, process: Process, threads: OneThread, arrays: Sequence[Argument]) -> tuple[Array, ...]:
        """Run the program after those that are queued; CollectiveError if two Python threads do at the same time."""
        world.drain_queues()
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
        """Whether the program has ops that communicate between processes."""
        return any(op.name in COMMUNICATING for function in self.module.functions for op in function.walk())

    def run(self, process: Process, arrays: Sequence[Argument]) -> tuple[Array, ...]:
        """Run the program as `process`, which is how in-process ranks share one executable."""
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
        """Return the program's results as arrays that the caller owns."""
        return tuple([finish(result) for finish, result in zip(self._finish, results, strict=True)])

    def run_as(self, program: Program | None) -> Program:
        """Run `program` from the next call on, or the executable's own if None; return the latter."""
        self._program = self._own_program if program is None else program
        if self.when_replaced is not None:
            self.when_replaced(program is None)
        return self._own_program

    @property
    def native(self) -> NativeProgram | None:
        """The program as one native function that can be run instead of this executable, without arrays.

        None if there is none, before the ranks have agreed on the program, and while another program is run instead.
        """
        return self._native if self._agreed is not None and self._program is self._own_program else None

    def _agree(self, process: Process) -> None:
        """Check that all ranks run this program, and recompile it for a processor that all of them support. Collective.

        Raises CollectiveError if they run different programs.
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
        """Return `arrays` with copies of those that are donated, for arrays that several processes share."""
        return [np.array(array) if index in self._donated else array for index, array in enumerate(arrays)]

    def checked(self, arrays: Sequence[Argument]) -> list[Array]:
        """Return `arrays` converted to the program's types; ExecutionError names an invalid argument."""
        if len(arrays) != len(self._checks):  # saves a function call per run
            check_count(self.function, arrays, self._checks, self._location)
        return list(map(call, self._checks, arrays))  # a third of the time of a loop over both

    def shard(self, *arrays: Source) -> tuple[Array, ...]:
        """Return this process's block of each global argument, by the program's shardings.

        An argument is a whole array, or a callable that makes a block: `callback(index) -> array` with one slice per
        dimension. Arguments of a program without shardings are returned unchanged.
        """
        if self.in_shardings is None:
            return arrays  # type: ignore[return-value]  # unchanged, without conversion
        from partitioner import shard_array  # loaded late: most programs have no shardings

        check_count(self.function, arrays, self.in_shardings)
        rank = self.process.rank
        return tuple(
            shard_array(array, sharding, rank) for array, sharding in zip(arrays, self.in_shardings, strict=True)
        )

    def unshard(self, *results: Array) -> tuple[Array, ...]:
        """Return the global results, whole, on every process; unchanged without shardings. Collective."""
        if self.out_shardings is None:
            return results
        from partitioner import unshard_array  # loaded late, as above

        process = self.process
        world.drain_queues()
        return tuple(
            unshard_array(result, sharding, process.communicator)
            for result, sharding in zip(results, self.out_shardings, strict=True)
        )

    def for_globals(self, arrays: Sequence[Argument]) -> Executable:
        """Return the executable for the sizes of these global arguments: this one, unless it has symbolic sizes."""
        return self

    @property
    def devices(self) -> int:
        """The number of processes that hold one copy of the global arrays: the size of the mesh, 1
        without shardings.
        """
        layouts = (*(self.in_shardings or ()), *(self.out_shardings or ()))
        meshes = (layout.sharding.mesh for layout in layouts if layout.sharding is not None)
        return next((mesh.size for mesh in meshes), 1)

    def _repr_html_(self) -> str:
        return picture_of(self)

    def __repr__(self) -> str:
        name = f" of module @{self.module.symbol}" if self.module.symbol else ""
        return f"<executable {self._signature}{name} on a {self.grid} grid>"


def _finisher(type: Type, copied: bool) -> Check:
    """Return a function that makes a result the caller's own: rank 0 becomes an array, shared memory is copied.

    Views that repeat elements are copied as well, since they are not writable.
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
    """Return `error` with the location of the op that was running."""
    kind: type[SpmdError] = ExecutionError
    if isinstance(error, TransportError):
        kind = CollectiveError
    op = locate(error.__traceback__)
    text = f"{error}" if isinstance(error, TransportError) else f"{type(error).__name__}: {error}"
    if op is None:
        return kind(text)
    return kind(Diagnostic(op.location, text, op.name))
