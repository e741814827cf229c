"""Compilation of a module to an Executable."""

from __future__ import annotations

import copyreg
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

from collectives.grid import ProcessGrid
from collectives.record.recorder import RECORDER
from spmd.analysis.shardings import is_sharded
from spmd.backends.kernels import Program
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.options import CompileOptions, Options, chosen_options
from spmd.compiler.pipeline.prepare import Prepared, declared_grid, find_function, prepare
from spmd.compiler.pipeline.refine import refine
from spmd.compiler.pipeline.verify import verify
from spmd.compiler.plan.native_program import native_program
from spmd.compiler.plan.steps import Plan, shared_results
from spmd.errors import CompileError
from spmd.ir import Function, Module
from spmd.runtime.executable import Executable
from spmd.runtime.symbolic import SymbolicExecutable, is_symbolic
from spmd.support.collecting import no_collection
from spmd.support.recursion_guard import within_stack
from spmd.support.usage import check_module
from spmd.types import Type

if TYPE_CHECKING:
    from partitioner.sharding import ShardedType


def compile(
    module: Module,
    grid: ProcessGrid | None = None,
    function: str = "main",
    *,
    partition: bool = True,
    **options: Unpack[CompileOptions],
) -> Executable:
    """Compile `function` of `module` for each process of `grid`.

    `grid` defaults to the module's own (`mhlo.num_replicas` by `mhlo.num_partitions`); for a program with shardings, to
    one process per device of its mesh. Such a program is partitioned first, unless `partition` is False. `options` are
    those of spmd.compiler.pipeline.options.CompileOptions. Raises CompileError for a missing function, a grid that does
    not fit, or an op without a kernel; UsageError for an invalid argument.
    """
    check_module(module, "spmd.compile")
    entry = (
        next((candidate for candidate in module.functions if candidate.symbol == function), None) if partition else None
    )
    if entry is not None and not entry.is_declaration and is_symbolic(entry) and is_sharded(module):
        return _symbolic(module, entry, grid, options)
    return executable_of(prepare(module, grid, function, partition=partition, **options))


def _symbolic(
    module: Module, function: Function, grid: ProcessGrid | None, options: CompileOptions
) -> SymbolicExecutable:
    """Return an executable that partitions and compiles the program once the shapes of its arguments are known."""
    grid = declared_grid(module, function.symbol) if grid is None else grid
    chosen = chosen_options(grid, options)

    def specialize(types: Sequence[Type]) -> Executable:
        evaluate = ModuleLowering(module, chosen).pass_context.evaluate
        refined = refine(module, function, types, evaluate)
        verify(refined)
        return compile(refined, grid, function.symbol, **options)

    return SymbolicExecutable(module, function, chosen, specialize, options)


def executable_of(prepared: Prepared) -> Executable:
    """Compile the program that `prepare` returned."""
    with within_stack(CompileError, prepared.function.location, f"@{prepared.function.symbol}"):
        return _build(prepared)


def _build(prepared: Prepared) -> Executable:
    def compiled() -> tuple[Program, Plan]:
        with RECORDER.note("compilation", f"@{prepared.function.symbol}"), no_collection():
            return ModuleLowering(prepared.module, prepared.options).entry(prepared.function)

    program, plan = compiled()
    return Executable(
        prepared.module,
        prepared.function,
        program,
        prepared.options,
        shared_results(plan),
        prepared.in_shardings,
        prepared.out_shardings,
        all_native=all(step.kernel.is_native for step in plan.steps),
        recompile=lambda: compiled()[0],
        native=native_program(plan),
    )


def _pickled(executable: Executable) -> tuple[Any, ...]:
    """Pickle an executable as its program, which is compiled again when it is loaded."""
    shardings = executable.in_shardings, executable.out_shardings
    return _unpickled, (executable.module, executable.function, executable.options, *shardings)


def _unpickled(
    module: Module,
    name: str,
    options: Options,
    inputs: Sequence[ShardedType] | None,
    outputs: Sequence[ShardedType] | None,
) -> Executable:
    return _build(Prepared(module, find_function(module, name), options, inputs, outputs))


def _pickled_symbolic(executable: SymbolicExecutable) -> tuple[Any, ...]:
    return _unpickled_symbolic, (executable.module, executable.grid, executable.function, executable.requested)


def _unpickled_symbolic(module: Module, grid: ProcessGrid, name: str, options: CompileOptions) -> Executable:
    return compile(module, grid, name, **options)


copyreg.pickle(Executable, _pickled)
copyreg.pickle(SymbolicExecutable, _pickled_symbolic)
