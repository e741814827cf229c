"""The communication of a block in program order: collectives, messages, and control flow that contains some."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from spmd.analysis.varying.groups import GroupArray
from spmd.analysis.varying.partitions import Partition
from spmd.ir import Op
from spmd.support.arrays import Array


@dataclass(frozen=True)
class CollectiveEvent:
    """A collective; `operand_partitions` holds, for each operand, the partition of processes by equal values."""

    op: Op
    groups: GroupArray
    signature: Hashable
    operand_partitions: tuple[Partition, ...] = ()


@dataclass(frozen=True)
class TransferEvent:
    """A send or recv; `ends` maps each process that executes it to its peer, None if the channel determines it."""

    op: Op
    channel: int
    ends: Mapping[int, int] | None

    @property
    def sends(self) -> bool:
        """Whether the op is a send."""
        return self.op.name == "stablehlo.send"


@dataclass(frozen=True)
class ControlFlowEvent:
    """Control flow with communication inside: the events of each branch, or of a loop's condition and body.

    `ways` is the branch, or the trip count, of each process (or one for all); None if unknown.
    """

    op: Op
    regions: tuple[Sequence[Event], ...]
    paths: Array | None = None


Event = CollectiveEvent | TransferEvent | ControlFlowEvent
#: The largest number of collectives in a loop for which iterations are compared one by one.
_MOST_UNROLLED = 64


def trace(events: Sequence[Event], groups: frozenset[tuple[int, ...]]) -> tuple[Hashable, ...]:
    """Return the events that concern `groups`, for comparison, unfolding control flow whose path is known."""
    found: list[Hashable] = []
    for event in events:
        if isinstance(event, CollectiveEvent):
            concerned = tuple(group for group in event.groups.tuples if group in groups)
            if concerned:
                found.append((concerned, event.signature))
        elif isinstance(event, ControlFlowEvent):
            inside = tuple(trace(region, groups) for region in event.regions)
            if any(inside):
                found += _taken_path(event, inside, groups)
    return tuple(found)


def _taken_path(
    event: ControlFlowEvent, inside: Sequence[tuple[Hashable, ...]], groups: frozenset[tuple[int, ...]]
) -> Sequence[Hashable]:
    """Return the trace of control flow, operand_partitions the trace `inside` each region."""
    is_loop = event.op.name == "stablehlo.while"
    if event.paths is not None:
        members = [0] if len(event.paths) == 1 else [rank for group in groups for rank in group]
        paths = set(event.paths[members].tolist())
        if len(paths) == 1:
            path = int(paths.pop())
            if not is_loop:
                return list(inside[path])
            return list(inside[0]) * path if path * len(inside[0]) <= _MOST_UNROLLED else [(path, inside)]
    return [(event.op.name, inside)]


def first_collective(events: Sequence[Event], group: tuple[int, ...]) -> Op | None:
    """Return the first collective of `group` among `events`."""
    for event in events:
        if isinstance(event, CollectiveEvent):
            if group in event.groups.tuples:
                return event.op
        elif isinstance(event, ControlFlowEvent):
            for region in event.regions:
                found = first_collective(region, group)
                if found is not None:
                    return found
    return None


def collective_events(events: Sequence[Event]) -> Iterator[CollectiveEvent]:
    """Yield all collectives among `events`."""
    return (event for event in _leaves(events) if isinstance(event, CollectiveEvent))


def transfer_events(events: Sequence[Event]) -> Iterator[TransferEvent]:
    """Yield all sends and receives among `events`."""
    return (event for event in _leaves(events) if isinstance(event, TransferEvent))


def _leaves(events: Sequence[Event]) -> Iterator[CollectiveEvent | TransferEvent]:
    """Yield `events` with control flow replaced by the events of its regions, in order."""
    for event in events:
        if isinstance(event, ControlFlowEvent):
            for region in event.regions:
                yield from _leaves(region)
        else:
            yield event
