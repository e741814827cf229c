"""Module -> Executable."""

from __future__ import annotations

import copyreg
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from collectives.grid import ProcessGrid
from spmd.collecting import no_collection
from spmd.compiler.lower import ModuleLowering
from spmd.compiler.options import CompileOptions, Options, chosen_options
from spmd.depth import within_stack
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Function, Module
from spmd.runtime.executable import Executable, borrowed, grid_of
from spmd.types import MOST_PARTS
from spmd.usage import check_function, check_grid, check_module


@dataclass(frozen=True)
class Prepared:
    """The program of one process, before its kernels are made. `notes`: ops that partitioning could not split."""

    module: Module
    function: Function
    options: Options
    in_shardings: Sequence[Any] | None = None
    out_shardings: Sequence[Any] | None = None
    notes: Sequence[str] = ()


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
    prepared = prepare(module, grid, function, partition=partition, **options)
    with within_stack(CompileError, prepared.function.location, f"@{function}"):
        return _build(prepared)


def _build(prepared: Prepared) -> Executable:
    with no_collection():
        program, plan = ModuleLowering(prepared.module, prepared.options).entry(prepared.function)
    lent = {*plan.parameters, *plan.constants}
    lent |= {value for step in plan.steps if not step.kernel.owned for value in step.outputs}
    copied = borrowed(plan.results, plan.roots, lent)
    return Executable(
        prepared.module,
        prepared.function,
        program,
        prepared.options,
        copied,
        prepared.in_shardings,
        prepared.out_shardings,
    )


def _pickled(executable: Executable) -> tuple[Any, ...]:
    """An executable travels as its program, and is compiled again where it arrives."""
    shardings = executable.in_shardings, executable.out_shardings
    return _unpickled, (executable.module, executable.function, executable.options, *shardings)


def _unpickled(module: Module, name: str, options: Options, inputs: Any, outputs: Any) -> Executable:
    return _build(Prepared(module, _find(module, name), options, inputs, outputs))


copyreg.pickle(Executable, _pickled)


def prepare(
    module: Module,
    grid: ProcessGrid | None = None,
    function: str = "main",
    *,
    partition: bool = True,
    **options: Unpack[CompileOptions],
) -> Prepared:
    """What `compile` begins with: the program of one process of `grid`, partitioned where it has shardings."""
    check_module(module, "spmd.compile")
    check_grid(grid, "spmd.compile")
    check_function(function, "spmd.compile")
    chosen = chosen_options(grid_of(module) if grid is None else grid, options)
    found = _find(module, function)
    if partition:
        import partitioner

        if partitioner.is_sharded(module) and partitioner.starts_processes(module, function):
            module = partitioner.with_parts(module, function)
            found = _find(module, function)
        elif partitioner.is_sharded(module):
            with within_stack(CompileError, found.location, f"@{function}"):
                split = partitioner.partition(module, chosen.grid, function)
            found = _find(split.module, function)
            return Prepared(split.module, found, chosen, split.in_shardings, split.out_shardings, split.notes)
    return Prepared(module, found, chosen)


def _check_types(function: Function) -> None:
    """CompileError for arguments or results of more parts than anybody hands over."""
    for kind, types in (("argument", function.type.inputs), ("result", function.type.results)):
        for index, type in enumerate(types):
            if type.parts > MOST_PARTS:
                text = f"{kind} {index} of @{function.symbol} is {type}; at most {MOST_PARTS:,} are supported"
                raise CompileError(Diagnostic(function.location, text, function.name))


def _find(module: Module, name: str) -> Function:
    for function in module.functions:
        if function.symbol == name and not function.is_declaration:
            _check_types(function)
            return function
    known = ", ".join("@" + function.symbol for function in module.functions) or "none"
    raise CompileError(Diagnostic(module.location, f"no function @{name} to compile; functions here: {known}"))
