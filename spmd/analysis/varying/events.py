"""The communication of a block in its order: collectives, and control flow that has some inside."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from spmd.analysis.varying.groups import Groups
from spmd.analysis.varying.partitions import Partition
from spmd.ir import Op
from spmd.support.arrays import Array


@dataclass(frozen=True)
class Meeting:
    """A collective that the program comes to; `given` says which processes hold the same operands."""

    op: Op
    groups: Groups
    signature: Hashable
    given: tuple[Partition, ...] = ()


@dataclass(frozen=True)
class Transfer:
    """A send or recv: `ends` has the other end of each process that is at one; None where the channel finds it."""

    op: Op
    channel: int
    ends: Mapping[int, int] | None

    @property
    def sends(self) -> bool:
        return self.op.name == "stablehlo.send"


@dataclass(frozen=True)
class Choice:
    """Control flow with communication inside: the events of each branch, or of a loop's condition and body.

    `ways` is, for each process (or in one number for all), the branch that it takes, or how often it goes through the
    loop; None where the program computes it of what is not known.
    """

    op: Op
    regions: tuple[Sequence[Event], ...]
    ways: Array | None = None


Event = Meeting | Transfer | Choice
#: Meetings up to which a loop's are compared one by one.
_MOST_UNROLLED = 64


def trace(events: Sequence[Event], groups: frozenset[tuple[int, ...]]) -> tuple[Hashable, ...]:
    """What of `events` concerns `groups`, to be compared; only the way of all of them where that is known."""
    found: list[Hashable] = []
    for event in events:
        if isinstance(event, Meeting):
            concerned = tuple(group for group in event.groups.tuples if group in groups)
            if concerned:
                found.append((concerned, event.signature))
        elif isinstance(event, Choice):
            inside = tuple(trace(region, groups) for region in event.regions)
            if any(inside):
                found += _one_way(event, inside, groups)
    return tuple(found)


def _one_way(
    event: Choice, inside: Sequence[tuple[Hashable, ...]], groups: frozenset[tuple[int, ...]]
) -> Sequence[Hashable]:
    """Return the trace of control flow of which `inside` has each region's."""
    is_loop = event.op.name == "stablehlo.while"
    if event.ways is not None:
        members = [0] if len(event.ways) == 1 else [rank for group in groups for rank in group]
        ways = set(event.ways[members].tolist())
        if len(ways) == 1:
            way = int(ways.pop())
            if not is_loop:
                return list(inside[way])
            return list(inside[0]) * way if way * len(inside[0]) <= _MOST_UNROLLED else [(way, inside)]
    return [(event.op.name, inside)]


def first_meeting(events: Sequence[Event], group: tuple[int, ...]) -> Op | None:
    """Return the first collective of `group` among `events`."""
    for event in events:
        if isinstance(event, Meeting):
            if group in event.groups.tuples:
                return event.op
        elif isinstance(event, Choice):
            for region in event.regions:
                found = first_meeting(region, group)
                if found is not None:
                    return found
    return None


def meetings(events: Sequence[Event]) -> Iterator[Meeting]:
    """Yield all collectives among `events`."""
    return (event for event in _leaves(events) if isinstance(event, Meeting))


def transfers(events: Sequence[Event]) -> Iterator[Transfer]:
    """Yield all sends and receives among `events`."""
    return (event for event in _leaves(events) if isinstance(event, Transfer))


def _leaves(events: Sequence[Event]) -> Iterator[Meeting | Transfer]:
    """What stands among `events` and in the regions of control flow, in order."""
    for event in events:
        if isinstance(event, Choice):
            for region in event.regions:
                yield from _leaves(region)
        else:
            yield event
