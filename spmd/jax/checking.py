"""Static check of a traced function's communication; errors are reported at the user's line."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Sequence

from collectives.grid import ProcessGrid
from spmd.analysis.varying.check import check_processes
from spmd.analysis.varying.findings import Finding, FindingKind
from spmd.errors import CollectiveError, UsageError
from spmd.jax.leaves import AbstractLeaf
from spmd.jax.tracing import Lowered
from spmd.support.arrays import Tree

#: Marks the names that JAX gives to ops of a derivative, where `psum` intends sums of equal values.
_TRANSPOSED = "transpose("


class CommunicationWarning(UserWarning):
    """A suspected error in a program's communication. A comment `spmd: ignore` in its line silences it."""


def check(lowered: Lowered, replicated: Sequence[int], results: Collection[int], names: Sequence[str]) -> None:
    """Raise CollectiveError for certain errors, warn with CommunicationWarning of suspected ones.

    `replicated` are leaves of the arguments that are equal on all processes, `results` such leaves of the results;
    `names` are the arguments' names in messages.
    """
    if lowered.processes == 1:
        return
    arguments = [lowered.tokens + lowered.kept.index(leaf) for leaf in replicated if leaf in lowered.kept]
    findings = [
        finding
        for finding in check_processes(
            lowered.module,
            ProcessGrid(1, lowered.processes),
            replicated_arguments=arguments,
            replicated_results=[lowered.tokens + leaf for leaf in results],
            names=[*[""] * lowered.tokens, *(names[leaf] for leaf in lowered.kept)],
        )
        if not _is_of_derivative(finding)
    ]
    certain = [finding.diagnostic for finding in findings if finding.certain]
    if certain:
        raise CollectiveError(certain)
    for finding in findings:
        _warn(finding)


def _warn(finding: Finding) -> None:
    """Warn at the finding's own line, with the user's module for warning filters."""
    at = finding.diagnostic.location
    modules = [name for name, each in [*sys.modules.items()] if getattr(each, "__file__", "") == at.file]
    module = modules[0] if modules else at.file
    warnings.warn_explicit(str(finding), CommunicationWarning, at.file, at.line, module)


def carried(lowered: Lowered, forms: Sequence[AbstractLeaf], leaves: Collection[int]) -> set[int]:
    """Return the results that are the next step's values of `leaves`: donated arguments that are equal everywhere.

    They are paired by shape and type, as JAX pairs donated arguments, if that is unambiguous.
    """
    of_type = [(leaf.shape, leaf.dtype) for leaf in lowered.results]
    given = [(forms[leaf].shape, forms[leaf].dtype) for leaf in leaves]
    return {at for at, type in enumerate(of_type) if type in given and of_type.count(type) == given.count(type)}


def result_leaves(which: bool | int | Sequence[int], tree: Tree) -> list[int]:
    """Return the leaves of the results that `which` selects: all, or those of numbered results; `tree` is of all."""
    if isinstance(which, bool):
        return list(range(tree.num_leaves)) if which else []
    numbers = (which,) if isinstance(which, int) else tuple(which)
    children = tree.children() if tree.node_data() is not None and tree.node_data()[0] is tuple else [tree]
    starts = [0]
    for child in children:
        starts.append(starts[-1] + child.num_leaves)
    for number in numbers:
        if not isinstance(number, int) or not 0 <= number < len(children):
            raise UsageError(f"replicated_results has {number!r}, but the function returns {len(children)} results")
    return [leaf for number in numbers for leaf in range(starts[number], starts[number + 1])]


def _is_of_derivative(finding: Finding) -> bool:
    return finding.kind is FindingKind.REPEATED_SUM and _TRANSPOSED in (finding.op.debug_location or "")
