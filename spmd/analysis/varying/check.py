"""What is wrong with the communication of a program, found without running it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from collectives.grid import ProcessGrid
from spmd.analysis.collectives import COMMUNICATING
from spmd.analysis.grid import grid_of
from spmd.analysis.shardings import speaks_of_shardings
from spmd.analysis.varying import control_flow, manual, sources
from spmd.analysis.varying.analysis import Analysis
from spmd.analysis.varying.channel_order import check_channel_order
from spmd.analysis.varying.events import transfers
from spmd.analysis.varying.facts import Fact
from spmd.analysis.varying.findings import Finding, Kind
from spmd.analysis.varying.matching import match
from spmd.analysis.varying.membership import check_membership
from spmd.analysis.varying.results import check_result
from spmd.analysis.varying.sums import check_sums
from spmd.errors import CompileError, Diagnostic, UsageError
from spmd.ir import Function, Module
from spmd.ir.attributes import IntegerAttr

#: Modules that file rules of ops in analysis.RULES.
RULE_FILES = (control_flow, sources)
#: Ops without which nothing is wrong, where no result is held for the same.
_OF_INTEREST = COMMUNICATING | {"stablehlo.rng", "stablehlo.rng_bit_generator", manual.NAME}
#: What is wrong with one program of several, whatever the others are.
_MEETING = (Kind.GROUPS, Kind.DIVERGENT_COLLECTIVE, Kind.CHANNEL)


def check_processes(
    module: Module,
    grid: ProcessGrid | None = None,
    function: str = "main",
    *,
    replicated_arguments: Collection[int] = (),
    replicated_results: Collection[int] = (),
    names: Sequence[str] = (),
) -> list[Finding]:
    """What is wrong, or suspected, when the processes of `grid` (the module's own by default) run `function`.

    replicated_arguments   indices of arguments that are the same on all processes; any other may differ
    replicated_results     indices of results that callers hold for the same on all processes
    names                  what the arguments are called in messages; their names in the text by default

    A result that is written over a replicated argument (`tf.aliasing_output`) is held for the same, too: it is the
    next step's argument. In a program with shardings, the bodies of manual computations are checked, on their mesh.
    CompileError where there is no such function, UsageError for an index that it does not have.
    """
    entry = _entry(module, function)
    grid = grid_of(module) if grid is None else grid
    ops = [*module.walk()]
    there = {op.name for op in ops}
    if not (replicated_arguments or replicated_results or _is_of_interest(module, there)):
        return []
    if any(speaks_of_shardings(op) for op in ops):
        return [
            finding
            for op, mesh in manual.manual_computations(ops)
            for finding in _finished(manual.analyse(module, op, mesh))
        ]
    if grid.size == 1:
        return []
    analysis = Analysis(module, grid)
    partitions = analysis.partitions
    analysis.names.update(zip(entry.arguments, names, strict=False))
    _check_indices("argument", replicated_arguments, len(entry.arguments), function)
    _check_indices("result", replicated_results, len(entry.type.results), function)
    for index, argument in enumerate(entry.arguments):
        if index not in replicated_arguments:
            analysis.set(argument, Fact(partitions.distinct, partitions.uniform))
    analysis.block(entry.body)
    check_membership(analysis, analysis.collected, np.ones(partitions.size, np.int64))
    if any(transfers(analysis.collected)):
        check_channel_order(analysis, module.functions)
        analysis.findings += match([analysis.collected], [0] * partitions.size, [f"@{function}"])
    for index in sorted({*replicated_results, *_carried(entry, replicated_arguments)}):
        check_result(analysis, entry, index)
    return _finished(analysis)


def check_programs(
    programs: Sequence[tuple[str, Module]],
    counts: Sequence[int],
    grid: ProcessGrid | None = None,
    function: str = "main",
    *,
    replicated_arguments: Collection[int] = (),
) -> list[Finding]:
    """What does not meet when the first `counts[0]` processes run the first of `programs`, (name, module), and so on.

    `replicated_arguments` are indices of arguments that are the same on all processes, of each program that has them.
    The grid is by default that of `grid_of_programs`. UsageError where it has not as many processes as there are.
    """
    size = sum(counts)
    grid = grid_of_programs([module for _, module in programs], size) if grid is None else grid
    if grid.size != size:
        raise UsageError(f"{size} processes on a {grid} process grid")
    findings: list[Finding] = []
    events = []
    program_of = [number for number, count in enumerate(counts) for _ in range(count)]
    for number, (_, module) in enumerate(programs):
        analysis = Analysis(module, grid)
        if len(programs) > 1:
            analysis.active, analysis.among_others = (np.array(program_of) == number).astype(np.int64), True
        entry = _entry(module, function)
        for index, argument in enumerate(entry.arguments):
            if index not in replicated_arguments:
                analysis.set(argument, Fact(analysis.partitions.distinct, analysis.partitions.uniform))
        analysis.block(entry.body)
        everybody = np.ones(analysis.partitions.size, np.int64)
        check_membership(analysis, analysis.collected, everybody if analysis.active is None else analysis.active)
        check_channel_order(analysis, module.functions)
        findings += [finding for finding in analysis.findings if finding.kind in _MEETING]
        events.append(analysis.collected)
    return findings + match(events, program_of, [name for name, _ in programs])


def grid_of_programs(modules: Sequence[Module], size: int) -> ProcessGrid:
    """Return the grid of `size` processes that has as many partitions as the modules declare at most."""
    partitions = max(grid_of(module).num_partitions for module in modules)
    return ProcessGrid(max(1, size // partitions), partitions)


def _is_of_interest(module: Module, ops: Collection[str]) -> bool:
    """Return whether a module of these `ops` communicates, or draws random numbers."""
    return not _OF_INTEREST.isdisjoint(ops) or any(
        sources.draws_random_bits(function.symbol) for function in module.functions
    )


def _finished(analysis: Analysis) -> list[Finding]:
    check_sums(analysis, analysis.collected)
    return sorted(analysis.findings, key=lambda finding: (not finding.certain, finding.diagnostic.location.offset))


def _entry(module: Module, name: str) -> Function:
    for function in module.functions:
        if function.symbol == name and not function.is_declaration:
            return function
    raise CompileError(Diagnostic(module.location, f"no function @{name} to check", module.name))


def _check_indices(what: str, indices: Collection[int], count: int, function: str) -> None:
    for index in indices:
        if not 0 <= index < count:
            raise UsageError(f"@{function} has no {what} {index}: it has {count}")


def _carried(entry: Function, replicated: Collection[int]) -> Sequence[int]:
    """Results that are written over replicated arguments."""
    found = []
    for index, attributes in enumerate(entry.argument_attributes):
        alias = attributes.get("tf.aliasing_output")
        if index in replicated and isinstance(alias, IntegerAttr):
            found.append(alias.value)
    return found
