"""Processes that come to a collective and are in none of its groups, and groups whose results are not as declared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd.analysis.collectives import left_out, shape_fault, takes_all_processes
from spmd.analysis.varying.analysis import Analysis
from spmd.analysis.varying.events import Choice, Event, Meeting
from spmd.analysis.varying.findings import Kind
from spmd.analysis.varying.partitions import Labels

_LOOP = "stablehlo.while"


def check_membership(analysis: Analysis, events: Sequence[Event], there: Labels, *, certain: bool = True) -> None:
    """Report what is refused when it runs of the collectives of `events`, to which the processes `there` come.

    What stands in a branch or loop of which it is not known who enters it is suspected alone.
    """
    for event in events:
        if isinstance(event, Meeting):
            _check(analysis, event, there, certain)
        elif isinstance(event, Choice):
            for index, region in enumerate(event.regions):
                if event.ways is None:
                    check_membership(analysis, region, there, certain=False)
                else:
                    ways = np.broadcast_to(event.ways, there.shape)
                    enter = ways > 0 if event.op.name == _LOOP else ways == index
                    check_membership(analysis, region, there * enter, certain=certain)


def _check(analysis: Analysis, meeting: Meeting, there: Labels, certain: bool) -> None:
    op, groups = meeting.op, meeting.groups
    if not there.any():
        return
    if takes_all_processes(op):
        outside = there.astype(bool)
        outside[groups.members[groups.members >= 0]] = False
        if outside.any():
            fault = left_out(op, f"process {int(outside.argmax())}", str(list(map(list, groups.tuples[:8]))))
            message, label = fault.diagnostics[0].message, fault.diagnostics[0].label
            analysis.report(Kind.GROUPS, op, message, certain, label=label)
            return
    shape = shape_fault(op, {len(group) for group in groups.tuples})
    if shape is not None:
        analysis.report(Kind.GROUPS, op, shape.message, certain, label=shape.label)
