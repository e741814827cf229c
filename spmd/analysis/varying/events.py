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


def trace(events: Sequence[Event], group: tuple[int, ...]) -> tuple[Hashable, ...]:
    """What of `events` concerns the processes of `group`, as something to compare."""
    found: list[Hashable] = []
    for event in events:
        if isinstance(event, Meeting):
            if group in event.groups.tuples:
                found.append((group, event.signature))
        elif isinstance(event, Choice):
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
        elif isinstance(event, Choice):
            for region in event.regions:
                found = first_meeting(region, group)
                if found is not None:
                    return found
    return None


def meetings(events: Sequence[Event]) -> Iterator[Meeting]:
    """All collectives among `events`."""
    return (event for event in _leaves(events) if isinstance(event, Meeting))


def transfers(events: Sequence[Event]) -> Iterator[Transfer]:
    """All sends and receives among `events`."""
    return (event for event in _leaves(events) if isinstance(event, Transfer))


def _leaves(events: Sequence[Event]) -> Iterator[Meeting | Transfer]:
    """What stands among `events` and in the regions of control flow, in order."""
    for event in events:
        if isinstance(event, Choice):
            for region in event.regions:
                yield from _leaves(region)
        else:
            yield event
