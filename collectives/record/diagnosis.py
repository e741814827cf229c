"""Diagnosis of a job from the records of its ranks: ranks behind, mismatched calls, stragglers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from collectives.record.reading import Record, RecordedCall
from collectives.states import ranges_text

#: Collectives in which every rank waits for the last to arrive.
_MEETINGS = frozenset(
    ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier", "_all_gather_base", "_reduce_scatter_base")
)
#: A transfer's name, as PyTorch writes it: `send 0->1`, `recv 1<-0`.
_TRANSFER = re.compile(r"(send|recv) (0(?:->|<-)1|1(?:->|<-)0)")
_MOST_SHOWN = 10
#: A wait that is shorter, in seconds, is normal in a running job.
_MOMENT = 0.5
#: Total waiting, in seconds, that is worth reporting.
_NOTABLE_SECONDS = 1e-3
#: A straggler causes at least this share of the waiting, and at least this many times that of any other rank.
_STRAGGLER_SHARE, _STRAGGLER_FACTOR = 0.5, 2.0


@dataclass(frozen=True)
class Diagnosis:
    """The result of a diagnosis: sentences for the user, whether there is a ``fault``, and the ``straggler``.

    A fault is a rank that is behind or calls another collective than the rest. The straggler is the rank that the
    others waited for.
    """

    sentences: tuple[str, ...]
    fault: bool
    straggler: int | None = None

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def to_json(self) -> dict[str, object]:
        return {"fault": self.fault, "straggler": self.straggler, "sentences": list(self.sentences)}


def straggler(caused: Mapping[int, float]) -> int | None:
    """Return the rank that causes most of the waiting, given the seconds that others waited for each rank.

    None unless one causes half of it and twice as much as any other.
    """
    ranks = sorted(caused, key=lambda rank: -caused[rank])
    most, next_one = [*(caused[rank] for rank in ranks), 0.0, 0.0][:2]
    is_most = 0 < most >= max(_STRAGGLER_SHARE * sum(caused.values()), _STRAGGLER_FACTOR * next_one)
    return ranks[0] if is_most else None


def diagnose(records: Sequence[Record], moment: float = _MOMENT) -> Diagnosis:
    """Return the diagnosis of a job from `records`, one per rank.

    In a job that was still running, waits shorter than `moment` seconds are ignored.
    """
    found = _Found({record.rank: record for record in records}, moment)
    faults = [*found.mismatches(), *found.hangs(), *found.transfers()]
    sentences = [*found.overview(), *faults]
    if not faults:
        sentences.append("No rank is behind: every collective that was begun has ended on all ranks.")
    sentences += found.waiting()
    return Diagnosis(tuple(text[0].upper() + text[1:] for text in sentences), bool(faults), found.straggler)


class _Group:
    """The calls in one group by sequence number, then by rank."""

    def __init__(self, name: str, members: tuple[int, ...]) -> None:
        self.name, self.members = name, members
        self.calls: dict[int, dict[int, RecordedCall]] = defaultdict(dict)

    def last(self, rank: int) -> RecordedCall | None:
        numbers = [number for number, calls in self.calls.items() if rank in calls]
        return self.calls[max(numbers)][rank] if numbers else None

    def __str__(self) -> str:
        return f"the group of {_ranks(self.members)}"


class _Found:
    def __init__(self, records: Mapping[int, Record], moment: float) -> None:
        self._records, self._moment = records, moment
        members: dict[str, tuple[int, ...]] = {}
        for record in records.values():
            members.update(record.groups)
        self._transfers: dict[str, _Group] = {}
        self._groups: dict[str, _Group] = {}
        for rank, record in records.items():
            for call in record.calls:
                kind = self._transfers if call.is_transfer else self._groups
                group = kind.setdefault(call.group, _Group(call.group, members.get(call.group, ())))
                group.calls[call.number][rank] = call
        for group in self._groups.values():
            # PyTorch does not describe every group.
            group.members = group.members or tuple(sorted({rank for calls in group.calls.values() for rank in calls}))
        self._all = sorted({*records, *(rank for ranks in members.values() for rank in ranks)})
        #: First sequence number at which the ranks of a group call different collectives.
        self._parted: dict[str, int] = {}
        #: The rank that the others waited for, set by `waiting`.
        self.straggler: int | None = None

    def overview(self) -> Iterator[str]:
        yield f"{_ranks(list(self._records))} of {len(self._all)} recorded what they did last."
        reasons: dict[str, list[int]] = defaultdict(list)
        for rank, record in self._records.items():
            if record.reason:
                reasons[record.reason].append(rank)
        for reason, ranks in reasons.items():
            yield f"Written by {_ranks(ranks)} because of: {reason}"
        if missing := sorted(set(self._all) - self._records.keys()):
            yield (
                f"There is no file of {_ranks(missing)}: ended before anything could be written, does not answer, or "
                "its file is on another host."
            )

    # --- mismatched calls ---

    def mismatches(self) -> Iterator[str]:
        for group in self._groups.values():
            for number in sorted(group.calls):
                calls = group.calls[number]
                kinds: dict[tuple[object, ...], list[int]] = defaultdict(list)
                for rank, call in calls.items():
                    kinds[call.signature].append(rank)
                if len(kinds) > 1:
                    self._parted[group.name] = number
                    yield self._mismatch(group, number, sorted(kinds.values(), key=len, reverse=True))
                    break

    def _mismatch(self, group: _Group, number: int, kinds: Sequence[Sequence[int]]) -> str:
        calls = group.calls[number]
        alike, *others = ((ranks, calls[ranks[0]]) for ranks in kinds)
        deviating = ", ".join(
            f"{_ranks(ranks)} {_verb(ranks, 'calls', 'call')} {_call(call)}" for ranks, call in others
        )
        return (
            f"As number {number} of {group}, {deviating}, where {_ranks(alike[0])} "
            f"{_verb(alike[0], 'calls', 'call')} {_call(alike[1])}."
        )

    # --- ranks behind ---

    def hangs(self) -> Iterator[str]:
        culprits: dict[int, str] = {}
        for group in self._groups.values():
            if group.name in self._parted:
                continue
            waiting = {
                rank: call
                for rank in group.members
                if (call := group.last(rank)) and call.state != "completed" and not self._is_passing(rank, call)
            }
            if not waiting:
                continue
            number = max(call.number for call in waiting.values())
            here = sorted(rank for rank, call in waiting.items() if call.number == number)
            absent = sorted(rank for rank in group.members if rank in self._records and rank not in group.calls[number])
            call = waiting[here[0]]
            since = self._since(here[0], call)
            text = f"{_ranks(here)} {_verb(here, 'waits', 'wait')}{since} in {_call(call)}, number {number} of {group}"
            if not absent:
                lost = sorted(set(group.members) - self._records.keys())
                rest = f", and there is no file of {_ranks(lost)}" if lost else ": all of its ranks have reached it"
                yield f"{text}{rest}."
                continue
            yield f"{text}. {_ranks(absent).capitalize()} {_verb(absent, 'has', 'have')} not reached it."
            for rank in absent[:_MOST_SHOWN]:
                culprits.setdefault(rank, self._doing(rank, group))
        yield from culprits.values()

    def _is_passing(self, rank: int, call: RecordedCall) -> bool:
        """Return whether the call may have been about to complete: the job was running, and ranks write at different
        times.
        """
        written = self._records[rank].written
        if written is None or call.started is None or not all(record.goes_on for record in self._records.values()):
            return False
        return written - call.started < self._moment

    def _since(self, rank: int, call: RecordedCall) -> str:
        written = self._records[rank].written
        if call.started is None or written is None:
            return ""
        return f" for {written - call.started:.3g} s"

    def _doing(self, rank: int, group: _Group) -> str:
        """Return the sentences on a rank that the others of `group` wait for."""
        record, last = self._records[rank], group.last(rank)
        before = (
            f"Its last of that group was number {last.number}, {_call(last)}"
            if last is not None
            else "It has called none of that group"
        )
        pending = [call for call in record.calls if call.state != "completed"]
        if pending:
            now = f"now it waits in {_call(pending[-1])}, number {pending[-1].number} of {self._where(pending[-1])}"
        else:
            under_way = [activity.text for activity in record.activities if activity.ended is None]
            doing = f": it is in {' in '.join(reversed(under_way))}" if under_way else ", and computes or has ended"
            now = f"since then it communicates no more{doing}"
        return f"{_ranks([rank])} is behind. {before}; {now}."

    def _where(self, call: RecordedCall) -> str:
        if call.is_transfer:
            return f"transfer {call.group}"
        return str(self._groups[call.group])

    # --- transfers ---

    def transfers(self) -> Iterator[str]:
        for group in self._transfers.values():
            if len(group.members) != 2:
                continue
            ends_of = _ends(group)
            if ends_of is None:
                continue
            source, target = ends_of
            for number in sorted(group.calls):
                sent, received = group.calls[number].get(source), group.calls[number].get(target)
                if sent is not None and received is not None and sent.signature[2] != received.signature[2]:
                    ends = f"from rank {source} to rank {target}"
                    yield f"As number {number} {ends}, {_call(sent)} meets {_call(received)}."
                    break
                waits = received is not None and received.state != "completed" and sent is None
                if waits and received and source in self._records and not self._is_passing(target, received):
                    count = len([1 for calls in group.calls.values() if source in calls])
                    since, name = self._since(target, received), f"number {number} of {group.name}"
                    text = f"Rank {target} waits{since} in {_call(received)}, {name}; rank {source} has sent {count}."
                    yield f"{text} {self._doing_now(source)}"
                    break

    def _doing_now(self, rank: int) -> str:
        pending = [call for call in self._records[rank].calls if call.state != "completed"]
        return f"Rank {rank} waits in {_call(pending[-1])}." if pending else f"Rank {rank} does not wait."

    # --- stragglers ---

    def waiting(self) -> Iterator[str]:
        waited: dict[int, float] = defaultdict(float)
        caused: dict[int, float] = defaultdict(float)
        times_last: dict[int, int] = defaultdict(int)
        count, spent = 0, 0.0
        for group in self._groups.values():
            first_parted = self._parted.get(group.name)
            for number, calls in group.calls.items():
                if (first_parted is not None and number >= first_parted) or len(calls) < len(group.members):
                    continue
                ended = {rank: (c.started, c.completed) for rank, c in calls.items() if c.name in _MEETINGS}
                times = {rank: (a, b) for rank, (a, b) in ended.items() if a is not None and b is not None}
                if len(times) < 2 or len(times) < len(calls):
                    continue
                last = max(times, key=lambda rank: times[rank][0])
                arrival = times[last][0]
                own = {rank: max(0.0, min(arrival, b) - a) for rank, (a, b) in times.items()}
                for rank, seconds in own.items():
                    waited[rank] += seconds
                spent += sum(max(0.0, b - a) for a, b in times.values())
                caused[last] += sum(own.values())
                times_last[last] += 1
                count += 1
        total = sum(waited.values())
        if not count or total < _NOTABLE_SECONDS:
            return
        yield (
            f"Ranks spent {spent:.3g} s in {count} collectives that all of them have ended, {total:.3g} s of it "
            f"({total / spent:.0%}) waiting for the last to come: "
            + ", ".join(f"rank {rank} {waited[rank]:.3g} s" for rank in sorted(waited)[:_MOST_SHOWN])
            + (", ..." if len(waited) > _MOST_SHOWN else "")
            + "."
        )
        slowest = self.straggler = straggler(caused)
        if slowest is not None:
            yield (
                f"Rank {slowest} is the straggler: it came last to {times_last[slowest]} of {count}, and caused "
                f"{caused[slowest] / total:.0%} of the waiting."
            )
        hosts = {record.host for record in self._records.values()}
        if len(hosts) > 1:
            yield "The ranks ran on several hosts: times are as exact as their clocks are equal."


def _ends(group: _Group) -> tuple[int, int] | None:
    """Return the source and target of a group of two; None if the name of the transfer does not give them."""
    name = next(iter(next(iter(group.calls.values())).values())).name
    match = _TRANSFER.match(name)
    if match is None:
        return None
    first, second = sorted(group.members)
    return (first, second) if (match[2][0] == "0") is (match[1] == "send") else (second, first)


def _call(call: RecordedCall) -> str:
    return call.text + (f" at {call.place}" if call.place else "")


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {ranges_text(ranks)}"


def _verb(ranks: Sequence[int], one: str, several: str) -> str:
    return one if len(ranks) == 1 else several
