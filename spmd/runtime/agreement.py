"""A static check that different programs execute matching collectives.

Each program yields the sequence of collectives that it executes for all inputs: those outside of control flow, up to
the first control flow that contains any. The check simulates the sequences against each other; if every unfinished
process waits for one that is in another collective, the programs disagree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collectives.operations import CollectivePermute, describe
from collectives.states import mismatch_text, short_list
from spmd.analysis.collectives import COMMUNICATING, DESCRIPTIONS, Collective
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.dialects.calls import CALLS
from spmd.errors import CollectiveError
from spmd.ir import Function, Op
from spmd.runtime.executable import Executable

#: Maximum number of events of a process that are examined.
_MOST_EVENTS = 100_000


@dataclass(frozen=True)
class ExpectedCollective:
    """A collective that a process executes, with its source location.

    All `members` must execute it together. A collective_permute has none: there a process waits for its `source`.
    """

    what: str
    where: str
    members: tuple[int, ...] = ()
    source: int | None = None

    def __str__(self) -> str:
        group = f" among {short_list(self.members)}" if self.members else ""
        return f"{self.what}{group} at {self.where}"


@dataclass(frozen=True)
class ProcessTrace:
    """The events of one process; `known` is False if more may follow that depend on control flow."""

    events: tuple[ExpectedCollective, ...]
    known: bool = True


def trace(executable: Executable, rank: int) -> ProcessTrace:
    """Return the collectives that rank `rank` executes when it runs `executable`."""
    lowering = ModuleLowering(executable.module, executable.options)
    return _Tracer(lowering, rank).trace(executable.module.function(executable.function))


def check_agreement(traces: Sequence[ProcessTrace]) -> None:
    """Raise CollectiveError if the collectives of the processes, one of `traces` each, cannot match."""
    fault = disagreement(traces)
    if fault is not None:
        raise CollectiveError(fault)


class _Tracer:
    """Reads each function once, including those that are still called after inlining."""

    def __init__(self, lowering: ModuleLowering, rank: int) -> None:
        self._lowering = lowering
        self._rank = rank
        self._called: dict[str, ProcessTrace] = {}

    def trace(self, function: Function) -> ProcessTrace:
        events: list[ExpectedCollective] = []
        for op in self._lowering.flatten(function).body.ops:
            if op.name in DESCRIPTIONS and not op.attributes.get("has_dynamic_root"):
                events += _events(DESCRIPTIONS[op.name](op, self._lowering), self._rank)
            elif op.name in CALLS:
                called = self._callee(op)
                if not called.known or len(events) + len(called.events) > _MOST_EVENTS:
                    return ProcessTrace(tuple(events), known=False)
                events += called.events
            elif any(map(self._communicates, op.walk())):
                return ProcessTrace(tuple(events), known=False)
        return ProcessTrace(tuple(events))

    def _communicates(self, op: Op) -> bool:
        if op.name in CALLS:
            called = self._callee(op)
            return not called.known or bool(called.events)
        return op.name in COMMUNICATING

    def _callee(self, call: Op) -> ProcessTrace:
        symbol = call[CALLS[call.name]]
        if symbol not in self._called:
            self._called[symbol] = self.trace(self._lowering.lookup(symbol, call))
        return self._called[symbol]


def _events(collective: Collective, rank: int) -> Iterator[ExpectedCollective]:
    group = None if collective.groups is None else collective.groups.find(rank)
    for operation in collective.messages:
        if isinstance(operation, CollectivePermute):
            if rank in (end for pair in operation.pairs for end in pair):
                what = describe(operation.linked(rank))
                yield ExpectedCollective(what, collective.where, source=operation.source(rank))
        elif group is not None:
            yield ExpectedCollective(describe(operation), collective.where, group)


def disagreement(traces: Sequence[ProcessTrace]) -> str | None:
    """Return the collective that each process is blocked in, as text; None if all finish, or it is undecidable."""
    play = _Play(traces)
    while any(play.advance(rank) for rank in range(len(traces))):
        pass
    waiting = {rank: event for rank in range(len(traces)) if (event := play.next(rank)) is not None}
    if not waiting or any(not traces[rank].known for rank in range(len(traces)) if rank not in waiting):
        return None
    return mismatch_text({rank: str(waiting.get(rank, "has ended")) for rank in range(len(traces))})


class _Play:
    def __init__(self, traces: Sequence[ProcessTrace]) -> None:
        self._traces = traces
        self._at = [0] * len(traces)
        self._posted = [-1] * len(traces)
        self._sent: Counter[tuple[int, str]] = Counter()
        self._received: Counter[tuple[int, str]] = Counter()

    def next(self, rank: int) -> ExpectedCollective | None:
        """Return the process's current event; None if it has finished."""
        events = self._traces[rank].events
        return events[self._at[rank]] if self._at[rank] < len(events) else None

    def advance(self, rank: int) -> bool:
        """Advance the process and the others in its collective past it, if all have reached it; return whether they
        have.
        """
        event = self.next(rank)
        if event is None:
            return False
        if not event.members:
            return self._permute(rank, event)
        others = [self.next(member) for member in event.members]
        if any(other is None or (other.what, other.members) != (event.what, event.members) for other in others):
            return False
        for member in event.members:
            self._at[member] += 1
        return True

    def _permute(self, rank: int, event: ExpectedCollective) -> bool:
        """Advance past a permute: a process sends on arrival, and continues once its source has sent."""
        if self._posted[rank] != self._at[rank]:
            self._posted[rank] = self._at[rank]
            self._sent[rank, event.what] += 1
        if event.source is not None and event.source != rank:
            if self._sent[event.source, event.what] <= self._received[rank, event.what]:
                return False
            self._received[rank, event.what] += 1
        self._at[rank] += 1
        return True
