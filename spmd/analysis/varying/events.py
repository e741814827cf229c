"""The communication of a block in its order: collectives, and control flow that has some inside."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from spmd.analysis.varying.groups import Groups
from spmd.analysis.varying.partitions import Partition
from spmd.ir import Op


@dataclass(frozen=True)
class Meeting:
    """A collective that the program comes to; `given` says which processes hold the same operands."""

    op: Op
    groups: Groups
    signature: Hashable
    given: tuple[Partition, ...] = ()


@dataclass(frozen=True)
class Choice:
    """Control flow with communication inside: the events of each branch, or of a loop's condition and body."""

    op: Op
    regions: tuple[Sequence[Event], ...]


Event = Meeting | Choice


def trace(events: Sequence[Event], group: tuple[int, ...]) -> tuple[Hashable, ...]:
    """What of `events` concerns the processes of `group`, as something to compare."""
    found: list[Hashable] = []
    for event in events:
        if isinstance(event, Meeting):
            if group in event.groups.tuples:
                found.append((group, event.signature))
        else:
            inside = tuple(trace(region, group) for region in event.regions)
            if any(inside):
                found.append((event.op.name, inside))
    return tuple(found)


def first_meeting(events: Sequence[Event], group: tuple[int, ...]) -> Op | None:
    """The first collective of `group` among `events`."""
    for event in events:
        if isinstance(event, Meeting):
            if group in event.groups.tuples:
                return event.op
        else:
            for region in event.regions:
                found = first_meeting(region, group)
                if found is not None:
                    return found
    return None


def meetings(events: Sequence[Event]) -> Iterator[Meeting]:
    """All collectives among `events`."""
    for event in events:
        if isinstance(event, Meeting):
            yield event
        else:
            for region in event.regions:
                yield from meetings(region)
