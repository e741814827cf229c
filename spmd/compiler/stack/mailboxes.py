"""Transfers between processes of different programs: sent values are queued for their receiver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from collectives.channels import Channels
from collectives.errors import GroupError
from collectives.grid import permute_pairs
from spmd.analysis.process_groups import channel_id
from spmd.compiler.stack.core import StackedValue, Stacker
from spmd.compiler.stack.placing import take_rows
from spmd.errors import CollectiveError, Diagnostic
from spmd.ir import Function, Op, Value
from spmd.types import TensorType

SEND, RECV = "stablehlo.send", "stablehlo.recv"
Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class PendingSend:
    """Values sent by the processes of one program to those of another, one row per sender."""

    op: Op
    ranks: Sequence[int]
    values: tuple[Value, ...]
    pairs: Pairs


class Mailboxes:
    """Queues between programs, whose processes are `ranks`. CollectiveError for channels with unmatched ends."""

    def __init__(self, functions: Sequence[Function], ranks: Sequence[Sequence[int]]) -> None:
        self._ranks = [frozenset(each) for each in ranks]
        self._queues: dict[tuple[int, int, int], list[PendingSend]] = {}
        size = sum(map(len, ranks))
        ends: list[list[set[int]]] = [[set() for _ in range(size)] for _ in (SEND, RECV)]
        for function, own in zip(functions, ranks, strict=True):
            for op in function.walk():
                if op.name in (SEND, RECV) and not _given_pairs(op):
                    for rank in own:
                        ends[op.name == RECV][rank].add(channel_id(op))
        self._senders = ends[0]
        self._channels = Channels(*ends)
        faults = self._channels.faults()
        if faults:
            raise CollectiveError("\n".join(faults))

    def send(self, stacker: Stacker, program: int, op: Op) -> None:
        """Queue the values that the processes of `program` send."""
        values = tuple(stacker.stack(stacker.leaf(value)) for value in op.operands[:-1])
        pairs = self._pairs(stacker, op)
        for receiver, theirs in enumerate(self._ranks):
            own = _between(pairs, self._ranks[program], theirs)
            if own:
                send = PendingSend(op, stacker.row_ranks, values, own)
                self._queues.setdefault((program, receiver, channel_id(op)), []).append(send)

    def receive(self, stacker: Stacker, program: int, op: Op) -> list[StackedValue] | None:
        """Return what the processes of `program` receive, zeros for those that are no target; None if a send is
        missing.
        """
        pairs = self._pairs(stacker, op)
        awaited = {
            (sender, program, channel_id(op)): own
            for sender, theirs in enumerate(self._ranks)
            if (own := _between(pairs, theirs, self._ranks[program]))
        }
        if not all(self._queues.get(key) for key in awaited):
            return None
        sends = [self._queues[key].pop(0) for key in awaited]
        types = [value.tensor for value in op.results if isinstance(value.type, TensorType)]
        for send, own in zip(sends, awaited.values(), strict=True):
            _check(op, send, types, own)
        return list(_delivered(stacker, sends, types))

    def ends(self, stacker: Stacker, op: Op) -> frozenset[int]:
        """Return the processes that those of `stacker` communicate with in the send or recv `op`."""
        own = frozenset(stacker.row_ranks)
        return frozenset(end for pair in self._pairs(stacker, op) if not own.isdisjoint(pair) for end in pair)

    def waiting(self) -> Iterator[PendingSend]:
        """Return the unmatched sends."""
        return (send for queue in self._queues.values() for send in queue)

    def _pairs(self, stacker: Stacker, op: Op) -> Pairs:
        if not _given_pairs(op):
            senders = [rank for rank, channels in enumerate(self._senders) if channel_id(op) in channels]
            return tuple([(rank, self._channels.target(channel_id(op), rank)) for rank in senders])
        grid = stacker.grid
        try:
            return tuple(permute_pairs(grid, op["source_target_pairs"], 1 if grid.num_partitions > 1 else 0))
        except GroupError as error:
            raise CollectiveError(Diagnostic(op.location, f"on a {grid} process grid: {error}", op.name)) from None


def _given_pairs(op: Op) -> bool:
    pairs = op.attributes.get("source_target_pairs")
    return pairs is not None and bool(pairs.size)


def _between(pairs: Pairs, sources: frozenset[int], targets: frozenset[int]) -> Pairs:
    return tuple([pair for pair in pairs if pair[0] in sources and pair[1] in targets])


def _check(op: Op, send: PendingSend, types: Sequence[TensorType], pairs: Pairs) -> None:
    sent_types = [value.type for value in send.op.operands[:-1]]
    if sent_types != list(types):
        received, sent = (", ".join(map(str, each)) for each in (types, sent_types))
        text = f"({received}) is received where {send.op.location} sends ({sent})"
        raise CollectiveError(Diagnostic(op.location, text, op.name))
    if set(send.pairs) != set(pairs):
        text = f"the pairs {sorted(pairs)} are not those of the send at {send.op.location}, {sorted(send.pairs)}"
        raise CollectiveError(Diagnostic(op.location, text, op.name))


def _delivered(stacker: Stacker, sends: Sequence[PendingSend], types: Sequence[TensorType]) -> Iterator[StackedValue]:
    """Yield the rows of all sends, reordered to their receivers."""
    order, row_of, first = np.full(stacker.size, -1, np.int64), {rank: i for i, rank in enumerate(stacker.row_ranks)}, 0
    for send in sends:
        rows = {rank: first + row for row, rank in enumerate(send.ranks)}
        for source, target in send.pairs:
            order[row_of[target]] = rows[source]
        first += len(send.ranks)
    for index, type in enumerate(types):
        if not sends:
            yield StackedValue(stacker.splat(0, stacker.tensor_of(type)), True)
            continue
        parts = [send.values[index] for send in sends]
        yield StackedValue(take_rows(stacker, stacker.concatenate(parts, 0), order), True)
