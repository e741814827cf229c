"""Point-to-point transfers and tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collectives.errors import GroupError
from collectives.grid import permute_pairs
from spmd.analysis.process_groups import channel_id
from spmd.compiler.stack.core import Sent, StackedValue, Stacker, Tree, refuse, rule
from spmd.compiler.stack.placing import take_rows
from spmd.errors import CollectiveError, Diagnostic
from spmd.ir import Op
from spmd.ir.attributes import DenseAttr, DictAttr, IntegerAttr, StringAttr
from spmd.types import I1, I64, TensorType

#: The call that checks that both ends of a transfer are active.
TRANSFER = "spmd.expect_transfer"


@rule("stablehlo.send", always=True)
def send(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """Queue the sent values for the recv of the channel."""
    _check_order(stacker, op)
    *values, token = (stacker.leaf(value) for value in op.operands)
    stacker.channels.setdefault(channel_id(op), []).append(Sent(op, tuple(values), stacker.mask))
    return [token]


@rule("stablehlo.recv", always=True)
def recv(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """Return the received values; zeros for processes that are no target."""
    _check_order(stacker, op)
    queue = stacker.channels.get(channel_id(op))
    if not queue:
        raise CollectiveError(Diagnostic(op.location, f"nothing was sent on channel {channel_id(op)}", op.name))
    sent = queue.pop(0)
    types = [value.type for value in op.results if isinstance(value.type, TensorType)]
    sent_types = [value.type for value in sent.op.operands[:-1]]
    if sent_types != types:
        received, sent_text = (", ".join(map(str, each)) for each in (types, sent_types))
        text = f"({received}) is received where {sent.op.location} sends ({sent_text})"
        raise CollectiveError(Diagnostic(op.location, text, op.name))
    ends = [_pairs(stacker, end) for end in (sent.op, op)]
    if set(ends[0]) != set(ends[1]):
        text = f"the pairs {sorted(ends[1])} are not those of the send at {sent.op.location}, {sorted(ends[0])}"
        raise CollectiveError(Diagnostic(op.location, text, op.name))
    _expect_both(stacker, op, sent, ends[0])
    order = np.full(stacker.size, -1, np.int64)
    for source, target in ends[0]:
        order[target] = source
    return [*(_arrived(stacker, leaf, order) for leaf in sent.values), stacker.trees[op.operands[0]]]


def _expect_both(stacker: Stacker, op: Op, sent: Sent, pairs: Sequence[tuple[int, int]]) -> None:
    """Emit a check that of each pair both ends are active or neither, if there are masks."""
    if (sent.mask is None and stacker.mask is None) or not pairs:
        return
    row_ranks = stacker.splat(True, TensorType((stacker.size,), I1))
    table = np.array(pairs, np.int64)
    entries = {
        "pairs": DenseAttr(table, TensorType(table.shape, I64)),
        "channel": IntegerAttr(channel_id(op), I64),
        "sent_at": StringAttr(str(sent.op.location).encode()),
    }
    attributes = {
        "call_target_name": TRANSFER,
        "has_side_effect": True,
        "backend_config": DictAttr(entries),
        "api_version": 4,
    }
    masks = [row_ranks if mask is None else mask for mask in (sent.mask, stacker.mask)]
    stacker.op("stablehlo.custom_call", masks, (), attributes)


def _check_order(stacker: Stacker, op: Op) -> None:
    """Raise CompileError if predicates, or iterations of a loop, decide which of several sends a recv matches."""
    key = channel_id(op), op.name
    seen = stacker.transfers.get(key, {})
    seen = stacker.transfers[key] = {**seen, op: stacker.mask is not None or seen.get(op, False)}
    if not any(seen.values()):
        return
    once = not stacker.loop_masks or (len(stacker.loop_masks) == 1 and stacker.loop_masks[0] is stacker.mask)
    if len(seen) > 1 or not once:
        raise refuse(op, f"predicates that differ decide what is sent and received first on channel {channel_id(op)}")


def _arrived(stacker: Stacker, leaf: StackedValue, order: np.ndarray) -> StackedValue:
    if not leaf.stacked and (order >= 0).all():
        return leaf
    return StackedValue(take_rows(stacker, stacker.stack(leaf), order), True)


def _pairs(stacker: Stacker, op: Op) -> Sequence[tuple[int, int]]:
    """Return the (source, target) pairs of a transfer; by default each process sends to itself."""
    pairs = op.attributes.get("source_target_pairs")
    if pairs is None or not pairs.size:
        return [(rank, rank) for rank in range(stacker.size)]
    try:
        return permute_pairs(stacker.grid, pairs, 1 if stacker.grid.num_partitions > 1 else 0)
    except GroupError as error:
        raise CollectiveError(Diagnostic(op.location, f"on a {stacker.grid} process grid: {error}", op.name)) from None


@rule("stablehlo.after_all", always=True)
def after_all(stacker: Stacker, op: Op) -> Sequence[Tree]:
    return stacker.copied(op)


@rule("interpreter.run_parallel", always=True)
def run_parallel(stacker: Stacker, op: Op) -> Sequence[Tree]:
    raise refuse(op, "it runs a grid of processes of its own")
