"""Module -> Executable."""

from __future__ import annotations

import copyreg
from typing import Any, Unpack

from collectives.grid import ProcessGrid
from spmd.collecting import no_collection
from spmd.compiler.lower import ModuleLowering
from spmd.compiler.options import CompileOptions, Options
from spmd.compiler.prepare import Prepared, find_function, prepare
from spmd.compiler.steps import shared_results
from spmd.depth import within_stack
from spmd.errors import CompileError
from spmd.ir import Module
from spmd.runtime.executable import Executable


def compile(
    module: Module,
    grid: ProcessGrid | None = None,
    function: str = "main",
    *,
    partition: bool = True,
    **options: Unpack[CompileOptions],
) -> Executable:
    """Compiles `function` of `module` for each process of `grid`.

    `grid` defaults to the module's own (`mhlo.num_replicas` by `mhlo.num_partitions`). A program with shardings is
    partitioned first, unless `partition` is False. `options`: see spmd.compiler.options.CompileOptions. Raises
    CompileError for what cannot be compiled: a missing function, a grid that does not fit, an op no kernel runs;
    UsageError for an argument that is none.
    """
    return executable_of(prepare(module, grid, function, partition=partition, **options))


def executable_of(prepared: Prepared) -> Executable:
    """Compiles what `prepare` has begun."""
    with within_stack(CompileError, prepared.function.location, f"@{prepared.function.symbol}"):
        return _build(prepared)


def _build(prepared: Prepared) -> Executable:
    with no_collection():
        program, plan = ModuleLowering(prepared.module, prepared.options).entry(prepared.function)
    return Executable(
        prepared.module,
        prepared.function,
        program,
        prepared.options,
        shared_results(plan),
        prepared.in_shardings,
        prepared.out_shardings,
        all_native=all(step.kernel.is_native for step in plan.steps),
    )


def _pickled(executable: Executable) -> tuple[Any, ...]:
    """An executable travels as its program, and is compiled again where it arrives."""
    shardings = executable.in_shardings, executable.out_shardings
    return _unpickled, (executable.module, executable.function, executable.options, *shardings)


def _unpickled(module: Module, name: str, options: Options, inputs: Any, outputs: Any) -> Executable:
    return _build(Prepared(module, find_function(module, name), options, inputs, outputs))


copyreg.pickle(Executable, _pickled)
