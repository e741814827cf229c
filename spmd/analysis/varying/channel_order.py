"""Sends, and receives, on one channel that nothing orders: which message is which is left open.

Source: specification, "Execution order": tokens alone order side effects; the program's text does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spmd.analysis.varying.analysis import Analysis
from spmd.analysis.varying.events import Transfer, transfers
from spmd.analysis.varying.findings import Kind
from spmd.ir import Block, Function, Op, captured_values

_TRANSFERS = ("stablehlo.send", "stablehlo.recv")


def check_channel_order(analysis: Analysis, functions: Sequence[Function]) -> None:
    """Report each transfer that does not depend on the one before it on its channel, in the same block.

    Transfers between different processes may share a channel in any order.
    """
    known = {each.op: each for each in transfers(analysis.collected)}
    for function in functions if known else ():
        for block in _blocks(function.body):
            last: dict[tuple[int, bool], Transfer] = {}
            for op in block.ops:
                transfer = known.get(op)
                if transfer is None:
                    continue
                before = last.get((transfer.channel, transfer.sends))
                if before is not None and _share(before, transfer) and not _depends(op, before.op):
                    _report(analysis, transfer, before)
                last[transfer.channel, transfer.sends] = transfer


def _report(analysis: Analysis, transfer: Transfer, before: Transfer) -> None:
    what = "sends" if transfer.sends else "receives"
    text = (
        f"nothing orders this and the {before.op.name} at {before.op.location}, which {what} on channel "
        f"{transfer.channel}, too: it takes no token of it, and which message comes first is left open"
    )
    analysis.report(Kind.CHANNEL, transfer.op, text, certain=False)


def _blocks(block: Block) -> Iterator[Block]:
    """Yield the blocks with transfers in `block`, itself included."""
    if any(op.name in _TRANSFERS for op in block.ops):
        yield block
    for op in block.ops:
        for region in op.regions:
            for inner in region.blocks:
                yield from _blocks(inner)


def _share(first: Transfer, second: Transfer) -> bool:
    """Return whether there are two processes between which both may carry a message."""
    if first.ends is None or second.ends is None:
        return True
    return any(second.ends.get(process) == other for process, other in first.ends.items())


def _depends(op: Op, other: Op) -> bool:
    """Return whether `op` takes what `other` gives, in however many steps."""
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
