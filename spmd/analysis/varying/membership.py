"""Finds processes that execute a collective without being in its groups, and results of wrong shape."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd.analysis.collectives import left_out, shape_fault, takes_all_processes
from spmd.analysis.varying.analysis import Analysis
from spmd.analysis.varying.events import CollectiveEvent, ControlFlowEvent, Event
from spmd.analysis.varying.findings import FindingKind
from spmd.analysis.varying.partitions import Labels

_LOOP = "stablehlo.while"


def check_membership(analysis: Analysis, events: Sequence[Event], there: Labels, *, certain: bool = True) -> None:
    """Report collectives among `events` that the processes `there` cannot execute.

    Findings in control flow whose path is unknown are suspected only.
    """
    for event in events:
        if isinstance(event, CollectiveEvent):
            _check(analysis, event, there, certain)
        elif isinstance(event, ControlFlowEvent):
            for index, region in enumerate(event.regions):
                if event.paths is None:
                    check_membership(analysis, region, there, certain=False)
                else:
                    paths = np.broadcast_to(event.paths, there.shape)
                    enter = paths > 0 if event.op.name == _LOOP else paths == index
                    check_membership(analysis, region, there * enter, certain=certain)


def _check(analysis: Analysis, collective: CollectiveEvent, there: Labels, certain: bool) -> None:
    op, groups = collective.op, collective.groups
    if not there.any():
        return
    if takes_all_processes(op):
        outside = there.astype(bool)
        outside[groups.members[groups.members >= 0]] = False
        if outside.any():
            fault = left_out(op, f"process {int(outside.argmax())}", str(list(map(list, groups.tuples[:8]))))
            message, label = fault.diagnostics[0].message, fault.diagnostics[0].label
            analysis.report(FindingKind.GROUPS, op, message, certain, label=label)
            return
    shape = shape_fault(op, {len(group) for group in groups.tuples})
    if shape is not None:
        analysis.report(FindingKind.GROUPS, op, shape.message, certain, label=shape.label)
