"""Run-time checks of stacked programs: processes of a group, and both ends of a transfer, must agree.

Separate ranks would deadlock instead.
"""

from __future__ import annotations

import numpy as np

from spmd.analysis.custom_calls import call_attributes
from spmd.backends.custom_calls import target
from spmd.backends.kernels import Context, Kernel
from spmd.errors import CollectiveError, Diagnostic
from spmd.ir import Op
from spmd.support.arrays import Array


@target("spmd.expect_agreement")
def expect_agreement(op: Op, context: Context) -> Kernel:
    """Check one value per process, given the mask of active ones; CollectiveError names two processes of a group that
    differ.
    """
    config = call_attributes(op)["backend_config"]
    groups, name = np.asarray(config["groups"]), str(config["op"])
    what = str(config["what"])
    present = groups >= 0
    sizes = present.sum(axis=1)

    def call(values: Array, here: Array) -> tuple[()]:
        of_groups = values[groups]
        differ = (of_groups != of_groups[:, :1]) & present
        if what == "root":
            arrived = here[groups[:, 0]]
            differ &= arrived[:, None]
            outside = ((of_groups[:, 0] < 0) | (of_groups[:, 0] >= sizes)) & arrived
            if outside.any():
                number = int(np.flatnonzero(outside)[0])
                text = f"root {of_groups[number, 0]} is outside the process group of {sizes[number]} processes"
                raise CollectiveError(Diagnostic(op.location, text, name))
        if differ.any():
            number, place = (int(first_difference[0]) for first_difference in np.nonzero(differ))
            raise CollectiveError(
                Diagnostic(op.location, _described(groups[number], place, of_groups[number], what), name)
            )
        return ()

    return Kernel(call)


@target("spmd.expect_transfer")
def expect_transfer(op: Op, context: Context) -> Kernel:
    """Check the masks at send and recv; CollectiveError names a process whose peer is missing."""
    config = call_attributes(op)["backend_config"]
    sending, receiving = np.asarray(config["pairs"]).T
    channel, sent_at = config["channel"], str(config["sent_at"])

    def call(sends: Array, receives: Array) -> tuple[()]:
        differ = np.flatnonzero(sends[sending] != receives[receiving])
        if len(differ):
            sender, receiver = int(sending[differ[0]]), int(receiving[differ[0]])
            if receives[receiver]:
                text = f"process {receiver} waits here for process {sender}, which sends nothing on channel {channel}"
            else:
                text = f"process {sender} sends at {sent_at} to process {receiver}, which does not receive it"
            raise CollectiveError(Diagnostic(op.location, text, "stablehlo.recv"))
        return ()

    return Kernel(call)


def _described(group: Array, place: int, values: Array, what: str) -> str:
    first, other = int(group[0]), int(group[place])
    members = [int(rank) for rank in group if rank >= 0]
    if what == "root":
        return f"process {first} has root {values[0]}, process {other} of its group {members} root {values[place]}"
    present, absent = (first, other) if values[0] else (other, first)
    return f"process {present} comes here, process {absent} of its group {members} does not"
