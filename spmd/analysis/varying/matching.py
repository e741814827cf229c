"""Simulates the communication of all processes, each in program order, to find mismatches and deadlocks.

Sends never block; a receive waits for its message, and members of a group wait for each other. The outcome does not
depend on the interleaving, so that simulating one suffices.

All processes are assumed to take the same path where it is unknown: a few branches and trip counts are tried in turn.
Findings are certain only if no process involved has passed such control flow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from collectives.channels import Channels
from collectives.errors import CommunicationError
from spmd.analysis.varying.events import CollectiveEvent, ControlFlowEvent, Event, TransferEvent, transfer_events
from spmd.analysis.varying.findings import Finding, FindingKind, is_ignored
from spmd.analysis.varying.groups import members_text
from spmd.errors import Diagnostic
from spmd.ir import Op

#: Branches and trip counts that are tried where they are unknown.
_SCENARIOS = (1, 2, 0)
#: Ops that show how a process got to where it waits, and processes of a chain of waits, in a message.
_MOST_STEPS, _MOST_WAITING = 3, 8
#: Steps up to which the remaining communication of a process is examined.
_MOST_LEFT = 10_000

Group = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Join:
    """A process takes part in a collective of its group."""

    op: Op
    group: Group
    signature: Hashable


@dataclass(frozen=True, slots=True)
class _Message:
    """A process sends to process `other`, or receives from it; `kind` is the types of the data."""

    op: Op
    other: int
    channel: int
    kind: Hashable
    sends: bool


_Step = _Join | _Message
#: The channel of permutations; those of sends and receives are not negative.
_PERMUTATION = -1


@dataclass
class _Process:
    """A simulated process: `at` is the step that it waits at, `left` the steps after that.

    `decided` tells whether it has passed control flow whose path is unknown.
    """

    rank: int
    program: str
    steps: Iterator[_Step]
    at: _Step | None = None
    decided: bool = False
    history: deque[Op] = field(default_factory=lambda: deque(maxlen=_MOST_STEPS))
    left: list[_Step] = field(default_factory=list)


def match(programs: Sequence[Sequence[Event]], program_of: Sequence[int], names: Sequence[str]) -> list[Finding]:
    """Return communication that does not match when process `rank` runs `programs[program_of[rank]]`.

    `names` are the programs' display names.
    """
    found: dict[tuple[Op, FindingKind], Finding] = {}
    for scenario in _SCENARIOS:
        run = _Run(programs, program_of, names, scenario)
        run.go()
        for finding in run.findings:
            key = finding.op, finding.kind
            known = found.get(key)
            if not is_ignored(finding.kind, finding.op.location) and (known is None or finding.certain > known.certain):
                found[key] = finding
        if not any(process.decided for process in run.processes):
            break
    return list(found.values())


def _channels(programs: Sequence[Sequence[Event]], program_of: Sequence[int]) -> Channels | None:
    """Return the ends of channels without pairs; None for a single program, whose channels lead to the host."""
    if len(programs) == 1:
        return None
    ends = []
    for events in programs:
        own = [transfer for transfer in transfer_events(events) if transfer.ends is None]
        sides = {each.channel for each in own if each.sends}, {each.channel for each in own if not each.sends}
        ends.append(sides)
    return Channels([ends[number][0] for number in program_of], [ends[number][1] for number in program_of])


class _Run:
    """A simulation of all processes until each has ended or is blocked."""

    def __init__(
        self, programs: Sequence[Sequence[Event]], program_of: Sequence[int], names: Sequence[str], scenario: int
    ) -> None:
        self.findings: list[Finding] = []
        self._channels = _channels(programs, program_of)
        self._scenario = scenario
        self._messages: dict[tuple[int, int, int], deque[_Message]] = {}
        self._arrived: dict[Group, list[_Process]] = {}
        self.processes: list[_Process] = []
        for rank, number in enumerate(program_of):
            process = _Process(rank, names[number], iter(()))
            process.steps = self._steps(programs[number], process)
            self.processes.append(process)

    # --- steps of a process ------------------------------------------------------------------------------------------

    def _steps(self, events: Sequence[Event], process: _Process) -> Iterator[_Step]:
        for event in events:
            if isinstance(event, ControlFlowEvent):
                yield from self._chosen(event, process)
            elif isinstance(event, TransferEvent):
                other = self._other_end(event, process)
                if other is not None:
                    yield _Message(event.op, other, event.channel, _sent_types(event.op), event.sends)
            elif event.op.name == "stablehlo.collective_permute":
                yield from _permutation(event, process.rank)
            else:
                group = event.groups.of_rank.get(process.rank, ())
                if len(group) > 1:
                    yield _Join(event.op, group, event.signature)

    def _chosen(self, event: ControlFlowEvent, process: _Process) -> Iterator[_Step]:
        is_loop = event.op.name == "stablehlo.while"
        if event.paths is None:
            process.decided = True
            path = self._scenario if is_loop else self._scenario % len(event.regions)
        else:
            path = int(event.paths[process.rank % len(event.paths)])
        for _ in range(path if is_loop else 1):
            yield from self._steps(event.regions[0 if is_loop else path], process)

    def _other_end(self, transfer: TransferEvent, process: _Process) -> int | None:
        if transfer.ends is not None:
            return transfer.ends.get(process.rank)
        if self._channels is None:
            return None
        try:
            find = self._channels.target if transfer.sends else self._channels.source
            return find(transfer.channel, process.rank)
        except CommunicationError as error:
            self._file(FindingKind.CHANNEL, transfer.op, str(error), True)
            return None

    # --- simulation --------------------------------------------------------------------------------------------------

    def go(self) -> None:
        """Run all processes and record findings."""
        ready = deque(self.processes)
        waiting: dict[tuple[int, int, int], _Process] = {}
        while ready:
            process = ready.popleft()
            process.at = None
            for step in process.steps:
                process.at = step
                if isinstance(step, _Join):
                    exchanged = self._join(process, step)
                    if exchanged is None:
                        break
                    ready.extend(exchanged)
                elif step.sends:
                    key = (process.rank, step.other, step.channel)
                    self._messages.setdefault(key, deque()).append(step)
                    receiver = waiting.pop(key, None)
                    if receiver is not None and self._receive(receiver):
                        ready.append(receiver)
                elif not self._receive(process):
                    waiting[step.other, process.rank, step.channel] = process
                    break
                process.history.append(step.op)
                process.at = None
        self._report_waiting()
        self._report_unreceived()

    def _join(self, process: _Process, step: _Join) -> list[_Process] | None:
        """Return the group's other members if `process` is the last to arrive; None if it must wait."""
        arrived = self._arrived.setdefault(step.group, [])
        arrived.append(process)
        if len(arrived) < len(step.group):
            return None
        del self._arrived[step.group]
        for other in arrived:
            assert isinstance(other.at, _Join)
            if other.at.signature != step.signature:
                self._report_mismatch(other, process)
                return None
        others = arrived[:-1]
        for other in others:
            assert other.at is not None
            other.history.append(other.at.op)
        return others

    def _receive(self, process: _Process) -> bool:
        """Take the message that `process` waits for; return whether it has been sent."""
        step = process.at
        assert isinstance(step, _Message)
        queue = self._messages.get((step.other, process.rank, step.channel))
        if not queue:
            return False
        sent = queue.popleft()
        if sent.kind != step.kind:
            text = f"process {process.rank} receives {step.kind} from process {step.other}, which sends {sent.kind}"
            self._file(FindingKind.CHANNEL, step.op, text, not process.decided, [f"  sent at {sent.op.location}"])
        return True

    # --- reports -----------------------------------------------------------------------------------------------------

    def _file(self, kind: FindingKind, op: Op, text: str, certain: bool, notes: Sequence[str] = ()) -> None:
        diagnostic = Diagnostic(op.location, text, op.name, notes=tuple(notes))
        self.findings.append(Finding(kind, certain, diagnostic, op))

    def _report_mismatch(self, first: _Process, second: _Process) -> None:
        assert isinstance(first.at, _Join) and isinstance(second.at, _Join)
        text = (
            f"process {first.rank} executes this op while process {second.rank} of its group "
            f"executes {second.at.op.name} at {second.at.op.location}: "
            f"{_difference(first.at.signature, second.at.signature)}"
        )
        notes = [_history(process) for process in (first, second)]
        certain = not (first.decided or second.decided)
        self._file(FindingKind.DIVERGENT_COLLECTIVE, first.at.op, text, certain, notes)

    def _report_waiting(self) -> None:
        """Report a shortest cycle of processes that wait for each other, or a chain to one that has ended."""
        waiting = [process for process in self.processes if process.at is not None]
        if not waiting or any(finding.kind is FindingKind.DIVERGENT_COLLECTIVE for finding in self.findings):
            return
        chain = min((self._chain(process) for process in waiting[:_MOST_STARTS]), key=len)
        at = next((at for at, process in enumerate(chain) if self._never_comes(process)), 0)
        chain = chain[at:] + chain[:at] if self._awaited(chain[-1]) is chain[0] else chain
        first = chain[0]
        assert first.at is not None
        text = f"process {first.rank} waits here for process {self._awaited(first).rank}, in vain"
        notes = [self._waits(process) for process in chain[:_MOST_WAITING]]
        ended = self._awaited(chain[-1])
        if ended.at is None:
            notes.append(f"  process {ended.rank} ({ended.program}) has ended{_after(ended)}")
        kind = FindingKind.DIVERGENT_COLLECTIVE if isinstance(first.at, _Join) else FindingKind.CHANNEL
        certain = not any(process.decided for process in (*chain, ended))
        self._file(kind, first.at.op, text, certain, notes)

    def _chain(self, process: _Process) -> list[_Process]:
        """Follow waits from `process`: return the cycle, or the chain up to the last process that waits."""
        chain = [process]
        while True:
            process = self._awaited(process)
            if process.at is None:
                return chain
            if process in chain:
                return chain[chain.index(process) :]
            chain.append(process)

    def _never_comes(self, process: _Process) -> bool:
        """Return whether the awaited process never executes the counterpart: a missing op, not just a wrong order."""
        step, awaited = process.at, self._awaited(process)
        awaited.left = awaited.left or list(islice(awaited.steps, _MOST_LEFT))
        if len(awaited.left) == _MOST_LEFT:
            return False
        if isinstance(step, _Join):
            return not any(isinstance(each, _Join) and each.group == step.group for each in awaited.left)
        assert step is not None
        sought = process.rank, step.channel, True
        return sought not in [(each.other, each.channel, each.sends) for each in awaited.left if type(each) is _Message]

    def _awaited(self, process: _Process) -> _Process:
        """Return a process that `process` waits for."""
        step = process.at
        if isinstance(step, _Message):
            return self.processes[step.other]
        assert step is not None
        there = {other.rank for other in self._arrived.get(step.group, ())}
        return self.processes[next(rank for rank in step.group if rank not in there)]

    def _waits(self, process: _Process) -> str:
        step = process.at
        assert step is not None
        awaited = self._awaited(process)
        of = f" of {members_text(step.group)}" if isinstance(step, _Join) else ""
        where = f"{step.op.name} at {step.op.location} for process {awaited.rank}{of}"
        return f"  process {process.rank} ({process.program}) waits at {where}{_after(process)}"

    def _report_unreceived(self) -> None:
        if any(process.at is not None for process in self.processes):
            return
        for (source, target, _), queue in self._messages.items():
            for message in queue:
                ends = self.processes[source], self.processes[target]
                text = f"process {source} sends to process {target}, which does not receive it{_after(ends[1])}"
                self._file(FindingKind.CHANNEL, message.op, text, not any(end.decided for end in ends))
                break


#: The number of processes from which the shortest chain of waits is searched.
_MOST_STARTS = 64


def _permutation(collective: CollectiveEvent, rank: int) -> Iterator[_Message]:
    """Yield the steps of a process in a permutation: the send to its target, then the receive from its source."""
    for source, target in collective.groups.pairs_of.get(rank, ()):
        if source == rank != target:
            yield _Message(collective.op, target, _PERMUTATION, collective.signature, True)
    for source, target in collective.groups.pairs_of.get(rank, ()):
        if target == rank != source:
            yield _Message(collective.op, source, _PERMUTATION, collective.signature, False)


def _sent_types(op: Op) -> Hashable:
    """Return the types that an op sends or receives, without tokens."""
    types = op.operand_types[:-1] if op.name == "stablehlo.send" else op.result_types[:-1]
    return ", ".join(map(str, types))


def _difference(first: Hashable, second: Hashable) -> str:
    """Return a description of how two signatures differ."""
    assert isinstance(first, tuple) and isinstance(second, tuple)
    for name, one, other in zip(("ops", "operands", "attributes", "reductions"), first, second, strict=True):
        if one != other:
            return f"their {name} are {_shown(one)} and {_shown(other)}"
    return "they differ"


def _shown(value: Hashable) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _after(process: _Process) -> str:
    """Return a description of the last op that a process executed."""
    return f", after {process.history[-1].name} at {process.history[-1].location}" if process.history else ""


def _history(process: _Process) -> str:
    steps = [f"{op.name} at {op.location}" for op in process.history]
    return f"  process {process.rank} ({process.program}) executed {', '.join(steps) if steps else 'nothing'} before"
