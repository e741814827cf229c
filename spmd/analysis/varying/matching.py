"""The communication of all processes, each followed in its order: whether all of it meets, or who waits for whom.

A send never waits for its receiver; a receiver waits for its message, and the members of a group for each other. What a
process does is then settled whatever the order in which processes go on, so that one order shows all.

Where a program decides by what is not known, all processes are taken to decide alike: branches and numbers of
iterations are tried one after another. What is found so is certain only where no process has come to such a decision.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from collectives.channels import Channels
from collectives.errors import CommunicationError
from spmd.analysis.varying.events import Choice, Event, Meeting, Transfer, transfers
from spmd.analysis.varying.findings import Finding, Kind, is_ignored
from spmd.analysis.varying.groups import members_text
from spmd.errors import Diagnostic
from spmd.ir import Op

#: Branches, and numbers of iterations, that are tried where the program decides by what is not known.
_SCENARIOS = (1, 2, 0)
#: Ops that a process's way to where it waits is shown by, and processes of a chain of waiting.
_MOST_STEPS, _MOST_WAITING = 3, 8
#: Steps after which it is left open what a process would come to.
_MOST_LEFT = 10_000

Group = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Join:
    """A process comes to a collective of its group."""

    op: Op
    group: Group
    signature: Hashable


@dataclass(frozen=True, slots=True)
class _Message:
    """A process sends to process `other`, or receives from it; `kind` is what is sent."""

    op: Op
    other: int
    channel: int
    kind: Hashable
    sends: bool


_Step = _Join | _Message
#: The channel of permutations' messages, whose own numbers are not negative.
_PERMUTATION = -1


@dataclass
class _Process:
    """A process on its way: `at` is where it waits, `left` what would come after that.

    `decided` says whether it took a way that nobody can foresee.
    """

    rank: int
    program: str
    steps: Iterator[_Step]
    at: _Step | None = None
    decided: bool = False
    done: deque[Op] = field(default_factory=lambda: deque(maxlen=_MOST_STEPS))
    left: list[_Step] = field(default_factory=list)


def match(programs: Sequence[Sequence[Event]], program_of: Sequence[int], names: Sequence[str]) -> list[Finding]:
    """What does not meet when process `rank` runs `programs[program_of[rank]]`.

    `names` are the programs' names, for messages.
    """
    found: dict[tuple[Op, Kind], Finding] = {}
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
    """Return the ends of channels without pairs; None in one program run by all, where the host is at the other end."""
    if len(programs) == 1:
        return None
    ends = []
    for events in programs:
        own = [transfer for transfer in transfers(events) if transfer.ends is None]
        sides = {each.channel for each in own if each.sends}, {each.channel for each in own if not each.sends}
        ends.append(sides)
    return Channels([ends[number][0] for number in program_of], [ends[number][1] for number in program_of])


class _Run:
    """All processes going on until each has ended or waits in vain."""

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

    # --- what a process does -----------------------------------------------------------------------------------------

    def _steps(self, events: Sequence[Event], process: _Process) -> Iterator[_Step]:
        for event in events:
            if isinstance(event, Choice):
                yield from self._chosen(event, process)
            elif isinstance(event, Transfer):
                other = self._other_end(event, process)
                if other is not None:
                    yield _Message(event.op, other, event.channel, _sent_types(event.op), event.sends)
            elif event.op.name == "stablehlo.collective_permute":
                yield from _permutation(event, process.rank)
            else:
                group = event.groups.of_rank.get(process.rank, ())
                if len(group) > 1:
                    yield _Join(event.op, group, event.signature)

    def _chosen(self, event: Choice, process: _Process) -> Iterator[_Step]:
        is_loop = event.op.name == "stablehlo.while"
        if event.ways is None:
            process.decided = True
            way = self._scenario if is_loop else self._scenario % len(event.regions)
        else:
            way = int(event.ways[process.rank % len(event.ways)])
        for _ in range(way if is_loop else 1):
            yield from self._steps(event.regions[0 if is_loop else way], process)

    def _other_end(self, transfer: Transfer, process: _Process) -> int | None:
        if transfer.ends is not None:
            return transfer.ends.get(process.rank)
        if self._channels is None:
            return None
        try:
            find = self._channels.target if transfer.sends else self._channels.source
            return find(transfer.channel, process.rank)
        except CommunicationError as error:
            self._file(Kind.CHANNEL, transfer.op, str(error), True)
            return None

    # --- going on ----------------------------------------------------------------------------------------------------

    def go(self) -> None:
        """Let all processes go on, and files what is found."""
        ready = deque(self.processes)
        waiting: dict[tuple[int, int, int], _Process] = {}
        while ready:
            process = ready.popleft()
            process.at = None
            for step in process.steps:
                process.at = step
                if isinstance(step, _Join):
                    met = self._join(process, step)
                    if met is None:
                        break
                    ready.extend(met)
                elif step.sends:
                    key = (process.rank, step.other, step.channel)
                    self._messages.setdefault(key, deque()).append(step)
                    receiver = waiting.pop(key, None)
                    if receiver is not None and self._receive(receiver):
                        ready.append(receiver)
                elif not self._receive(process):
                    waiting[step.other, process.rank, step.channel] = process
                    break
                process.done.append(step.op)
                process.at = None
        self._report_waiting()
        self._report_unreceived()

    def _join(self, process: _Process, step: _Join) -> list[_Process] | None:
        """Return the others of the group, who go on now that `process` has come; None where it must wait."""
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
            other.done.append(other.at.op)
        return others

    def _receive(self, process: _Process) -> bool:
        """Return whether the message that `process` waits for is there; it is taken."""
        step = process.at
        assert isinstance(step, _Message)
        queue = self._messages.get((step.other, process.rank, step.channel))
        if not queue:
            return False
        sent = queue.popleft()
        if sent.kind != step.kind:
            text = f"process {process.rank} receives {step.kind} from process {step.other}, which sends {sent.kind}"
            self._file(Kind.CHANNEL, step.op, text, not process.decided, [f"  sent at {sent.op.location}"])
        return True

    # --- reports -----------------------------------------------------------------------------------------------------

    def _file(self, kind: Kind, op: Op, text: str, certain: bool, notes: Sequence[str] = ()) -> None:
        diagnostic = Diagnostic(op.location, text, op.name, notes=tuple(notes))
        self.findings.append(Finding(kind, certain, diagnostic, op))

    def _report_mismatch(self, first: _Process, second: _Process) -> None:
        assert isinstance(first.at, _Join) and isinstance(second.at, _Join)
        text = (
            f"process {first.rank} comes to this op where process {second.rank} of its group "
            f"comes to {second.at.op.name} at {second.at.op.location}: "
            f"{_difference(first.at.signature, second.at.signature)}"
        )
        notes = [_way(process) for process in (first, second)]
        certain = not (first.decided or second.decided)
        self._file(Kind.DIVERGENT_COLLECTIVE, first.at.op, text, certain, notes)

    def _report_waiting(self) -> None:
        """Reports a shortest circle of processes that wait for each other, or a chain to one that has ended."""
        waiting = [process for process in self.processes if process.at is not None]
        if not waiting or any(finding.kind is Kind.DIVERGENT_COLLECTIVE for finding in self.findings):
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
        kind = Kind.DIVERGENT_COLLECTIVE if isinstance(first.at, _Join) else Kind.CHANNEL
        certain = not any(process.decided for process in (*chain, ended))
        self._file(kind, first.at.op, text, certain, notes)

    def _chain(self, process: _Process) -> list[_Process]:
        """From `process` to whom it waits for, and on: a circle alone, or all up to the last that still waits."""
        chain = [process]
        while True:
            process = self._awaited(process)
            if process.at is None:
                return chain
            if process in chain:
                return chain[chain.index(process) :]
            chain.append(process)

    def _never_comes(self, process: _Process) -> bool:
        """Return whether what `process` waits for is nowhere on the way of whom it waits for: a mistake, and no mere
        order."""
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
        """One that `process` waits for."""
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
                self._file(Kind.CHANNEL, message.op, text, not any(end.decided for end in ends))
                break


#: Processes from which the shortest chain of waiting is looked for.
_MOST_STARTS = 64


def _permutation(meeting: Meeting, rank: int) -> Iterator[_Message]:
    """What a process does in a permutation: sends to its target, then receives from its source."""
    for source, target in meeting.groups.pairs_of.get(rank, ()):
        if source == rank != target:
            yield _Message(meeting.op, target, _PERMUTATION, meeting.signature, True)
    for source, target in meeting.groups.pairs_of.get(rank, ()):
        if target == rank != source:
            yield _Message(meeting.op, source, _PERMUTATION, meeting.signature, False)


def _sent_types(op: Op) -> Hashable:
    """Return the types of what an op sends or receives, without tokens."""
    types = op.operand_types[:-1] if op.name == "stablehlo.send" else op.result_types[:-1]
    return ", ".join(map(str, types))


def _difference(first: Hashable, second: Hashable) -> str:
    """How two signatures differ, in words."""
    assert isinstance(first, tuple) and isinstance(second, tuple)
    for name, one, other in zip(("ops", "operands", "attributes", "reductions"), first, second, strict=True):
        if one != other:
            return f"their {name} are {_shown(one)} and {_shown(other)}"
    return "they differ"


def _shown(value: Hashable) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _after(process: _Process) -> str:
    """Where a process has been last, in words."""
    return f", after {process.done[-1].name} at {process.done[-1].location}" if process.done else ""


def _way(process: _Process) -> str:
    steps = [f"{op.name} at {op.location}" for op in process.done]
    return f"  process {process.rank} ({process.program}) came by {', '.join(steps) if steps else 'no communication'}"
