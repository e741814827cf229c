"""Checks the communication of programs without running them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from collectives.grid import ProcessGrid
from spmd.analysis.collectives import COMMUNICATING
from spmd.analysis.grid import grid_of
from spmd.analysis.shardings import has_sharding
from spmd.analysis.varying import control_flow, manual, sources
from spmd.analysis.varying.analysis import Analysis
from spmd.analysis.varying.channel_order import check_channel_order
from spmd.analysis.varying.events import transfer_events
from spmd.analysis.varying.facts import Fact
from spmd.analysis.varying.findings import Finding, FindingKind
from spmd.analysis.varying.matching import match
from spmd.analysis.varying.membership import check_membership
from spmd.analysis.varying.results import check_result
from spmd.analysis.varying.sums import check_sums
from spmd.errors import CompileError, Diagnostic, UsageError
from spmd.ir import Function, Module
from spmd.ir.attributes import IntegerAttr

#: Modules imported because they register rules in analysis.RULES.
RULE_FILES = (control_flow, sources)
#: Without any of these ops there is nothing to report, unless results must be replicated.
_OF_INTEREST = COMMUNICATING | {"stablehlo.rng", "stablehlo.rng_bit_generator", manual.NAME}
#: Kinds of findings that concern one program of several on its own.
_MEETING = (FindingKind.GROUPS, FindingKind.DIVERGENT_COLLECTIVE, FindingKind.CHANNEL)


def check_processes(
    module: Module,
    grid: ProcessGrid | None = None,
    function: str = "main",
    *,
    replicated_arguments: Collection[int] = (),
    replicated_results: Collection[int] = (),
    names: Sequence[str] = (),
) -> list[Finding]:
    """Return what is wrong, or suspected, when the processes of `grid` run `function`.

    grid                   the process grid; the module's own by default
    replicated_arguments   indices of arguments that are equal on all processes; any other may differ
    replicated_results     indices of results that must be equal on all processes
    names                  display names of the arguments; by default their names in the text

    A result that aliases a replicated argument (`tf.aliasing_output`) must be replicated, too: it is the argument of
    the next step. In a program with shardings, the bodies of manual computations are checked, on their mesh.
    Raises CompileError if there is no such function, UsageError for an index out of range.
    """
    entry = _entry(module, function)
    grid = grid_of(module) if grid is None else grid
    ops = [*module.walk()]
    there = {op.name for op in ops}
    if not (replicated_arguments or replicated_results or _is_of_interest(module, there)):
        return []
    if any(has_sharding(op) for op in ops):
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
    if any(transfer_events(analysis.collected)):
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
    """Return communication that does not match when processes run several programs.

    programs               (name, module) of each program
    counts                 the number of processes of each program, in order of rank
    replicated_arguments   indices of arguments that are equal on all processes, in each program that has them

    The grid is by default that of `grid_of_programs`; raises UsageError if its size is not the number of processes.
    """
    size = sum(counts)
    grid = grid_of_programs([module for _, module in programs], size) if grid is None else grid
    if grid.size != size:
        raise UsageError(f"the process grid must have {size} processes, got {grid}")
    findings: list[Finding] = []
    events = []
    program_of = [number for number, count in enumerate(counts) for _ in range(count)]
    for number, (_, module) in enumerate(programs):
        analysis = Analysis(module, grid)
        if len(programs) > 1:
            analysis.active, analysis.is_mpmd = (np.array(program_of) == number).astype(np.int64), True
        entry = _entry(module, function)
        for index, argument in enumerate(entry.arguments):
            if index not in replicated_arguments:
                analysis.set(argument, Fact(analysis.partitions.distinct, analysis.partitions.uniform))
        analysis.block(entry.body)
        all_processes = np.ones(analysis.partitions.size, np.int64)
        check_membership(analysis, analysis.collected, all_processes if analysis.active is None else analysis.active)
        check_channel_order(analysis, module.functions)
        findings += [finding for finding in analysis.findings if finding.kind in _MEETING]
        events.append(analysis.collected)
    return findings + match(events, program_of, [name for name, _ in programs])


def grid_of_programs(modules: Sequence[Module], size: int) -> ProcessGrid:
    """Return the grid of `size` processes with the largest number of partitions that a module declares."""
    partitions = max(grid_of(module).num_partitions for module in modules)
    return ProcessGrid(max(1, size // partitions), partitions)


def _is_of_interest(module: Module, ops: Collection[str]) -> bool:
    """Return whether a module with these `ops` communicates or draws random numbers."""
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
            raise UsageError(f"{what} index must be less than the {count} of @{function}, got {index}")


def _carried(entry: Function, replicated: Collection[int]) -> Sequence[int]:
    """Return the indices of results that alias replicated arguments."""
    found = []
    for index, attributes in enumerate(entry.argument_attributes):
        alias = attributes.get("tf.aliasing_output")
        if index in replicated and isinstance(alias, IntegerAttr):
            found.append(alias.value)
    return found
