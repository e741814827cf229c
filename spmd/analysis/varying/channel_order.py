"""Finds sends, or receives, on one channel whose order is undefined.

Source: specification, "Execution order": only tokens order side effects, not the program's text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spmd.analysis.varying.analysis import Analysis
from spmd.analysis.varying.events import TransferEvent, transfer_events
from spmd.analysis.varying.findings import FindingKind
from spmd.ir import Block, Function, Op, captured_values

_TRANSFERS = ("stablehlo.send", "stablehlo.recv")


def check_channel_order(analysis: Analysis, functions: Sequence[Function]) -> None:
    """Report each transfer that does not depend on the previous one on its channel in the same block.

    Transfers between different processes may share a channel without order.
    """
    known = {each.op: each for each in transfer_events(analysis.collected)}
    for function in functions if known else ():
        for block in _blocks(function.body):
            last: dict[tuple[int, bool], TransferEvent] = {}
            for op in block.ops:
                transfer = known.get(op)
                if transfer is None:
                    continue
                before = last.get((transfer.channel, transfer.sends))
                if before is not None and _may_overlap(before, transfer) and not _depends(op, before.op):
                    _report(analysis, transfer, before)
                last[transfer.channel, transfer.sends] = transfer


def _report(analysis: Analysis, transfer: TransferEvent, before: TransferEvent) -> None:
    what = "sends" if transfer.sends else "receives"
    text = (
        f"this op is not ordered after {before.op.name} at {before.op.location}, which also {what} on channel "
        f"{transfer.channel}: it does not depend on its token, so either message may come first"
    )
    analysis.report(FindingKind.CHANNEL, transfer.op, text, certain=False)


def _blocks(block: Block) -> Iterator[Block]:
    """Yield the blocks with transfers in `block`, including itself."""
    if any(op.name in _TRANSFERS for op in block.ops):
        yield block
    for op in block.ops:
        for region in op.regions:
            for inner in region.blocks:
                yield from _blocks(inner)


def _may_overlap(first: TransferEvent, second: TransferEvent) -> bool:
    """Return whether both transfers may carry a message between the same two processes."""
    if first.ends is None or second.ends is None:
        return True
    return any(second.ends.get(process) == other for process, other in first.ends.items())


def _depends(op: Op, other: Op) -> bool:
    """Return whether `op` depends on `other`, directly or indirectly."""
    seen: set[Op] = set()
    left = [op]
    while left:
        each = left.pop()
        captured = captured_values(each) if each.regions else ()
        for value in (*each.operands, *captured):
            defining = value.defining_op
            if defining is other:
                return True
            if defining is not None and defining not in seen:
                seen.add(defining)
                left.append(defining)
    return False
