"""Whether different programs agree on their collectives, as far as their texts show it.

Each program is read as the sequence of collectives that it comes to whatever its inputs are: those outside of control
flow, up to the first control flow that holds any. The sequences are played against each other; when every process that
is not through waits for one that is at something else, they disagree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collectives.operations import CollectivePermute, describe, short_list
from collectives.states import mismatch_text
from spmd.analysis.collectives import DESCRIPTIONS, Collective
from spmd.compiler.lower import Lowering
from spmd.ir import Function, Op


@dataclass(frozen=True)
class Meeting:
    """A collective that a process comes to: what it is, and where.

    All `members` have to come to it together. A collective_permute has none: there a process waits for its `source`.
    """

    what: str
    where: str
    members: tuple[int, ...] = ()
    source: int | None = None

    def __str__(self) -> str:
        group = f" among {short_list(self.members)}" if self.members else ""
        return f"{self.what}{group} at {self.where}"


@dataclass(frozen=True)
class Course:
    """The meetings of one process; `known` is False when more may follow than its text tells."""

    meetings: tuple[Meeting, ...]
    known: bool = True


def course(lowering: Lowering, function: Function, rank: int) -> Course:
    """What the process of rank `rank` comes to when it runs `function`."""
    meetings: list[Meeting] = []
    for op in lowering.flatten(function).body.ops:
        if op.name in DESCRIPTIONS and not op.attributes.get("has_dynamic_root"):
            meetings += _meetings(DESCRIPTIONS[op.name](op, lowering), rank)
        elif any(_communicates(inner) for inner in op.walk()):
            return Course(tuple(meetings), known=False)
    return Course(tuple(meetings))


def _communicates(op: Op) -> bool:
    return op.name in DESCRIPTIONS or op.name in ("stablehlo.send", "stablehlo.recv", "stablehlo.async_start")


def _meetings(collective: Collective, rank: int) -> Iterator[Meeting]:
    group = None if collective.groups is None else collective.groups.find(rank)
    for operation in collective.messages:
        if isinstance(operation, CollectivePermute):
            if rank in (end for pair in operation.pairs for end in pair):
                yield Meeting(describe(operation), collective.where, source=operation.source(rank))
        elif group is not None:
            yield Meeting(describe(operation), collective.where, group)


def disagreement(courses: Sequence[Course]) -> str | None:
    """What each process is at when none can go on; None when all come through, or when their texts do not tell."""
    play = _Play(courses)
    while any(play.advance(rank) for rank in range(len(courses))):
        pass
    waiting = {rank: meeting for rank in range(len(courses)) if (meeting := play.next(rank)) is not None}
    if not waiting or any(not courses[rank].known for rank in range(len(courses)) if rank not in waiting):
        return None
    return mismatch_text({rank: str(waiting.get(rank, "has ended")) for rank in range(len(courses))})


class _Play:
    def __init__(self, courses: Sequence[Course]) -> None:
        self._courses = courses
        self._at = [0] * len(courses)
        self._posted = [-1] * len(courses)
        self._sent: Counter[tuple[int, str]] = Counter()
        self._received: Counter[tuple[int, str]] = Counter()

    def next(self, rank: int) -> Meeting | None:
        """What the process is at; None when it is through."""
        meetings = self._courses[rank].meetings
        return meetings[self._at[rank]] if self._at[rank] < len(meetings) else None

    def advance(self, rank: int) -> bool:
        """Takes the process, and those it meets, to what follows, if they are all there."""
        meeting = self.next(rank)
        if meeting is None:
            return False
        if not meeting.members:
            return self._permute(rank, meeting)
        others = [self.next(member) for member in meeting.members]
        if any(other is None or (other.what, other.members) != (meeting.what, meeting.members) for other in others):
            return False
        for member in meeting.members:
            self._at[member] += 1
        return True

    def _permute(self, rank: int, meeting: Meeting) -> bool:
        """A process sends as soon as it comes, and goes on when what it waits for has been sent."""
        if self._posted[rank] != self._at[rank]:
            self._posted[rank] = self._at[rank]
            self._sent[rank, meeting.what] += 1
        if meeting.source is not None and meeting.source != rank:
            if self._sent[meeting.source, meeting.what] <= self._received[rank, meeting.what]:
                return False
            self._received[rank, meeting.what] += 1
        self._at[rank] += 1
        return True
