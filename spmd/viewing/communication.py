"""The communication of a program: each collective with its groups, bytes, algorithm and predicted time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from collectives.algorithms import least_rounds, wire_bytes
from collectives.explain import cost
from collectives.grid import Groups
from collectives.operations import CollectivePermute, Operation, describe
from spmd.analysis.collectives import DESCRIPTIONS, Collective
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.dialects.calls import CALLS
from spmd.ir import Block, Op
from spmd.predict.timeline import Timeline
from spmd.viewing.program import Origins, ProgramTables
from spmd.viewing.tables import Json, JsonTable

#: Communicating ops that are no collectives.
STREAMS = ("stablehlo.send", "stablehlo.recv", "stablehlo.infeed", "stablehlo.outfeed")
#: The largest number of members of process groups that are listed for a collective.
_MOST_MEMBERS = 1 << 15
_LOOP = "stablehlo.while"


@dataclass(frozen=True)
class Found:
    """A collective, or an op of a stream (`collective` is None); `repeated`: it runs in a loop."""

    op: Op
    collective: Collective | None
    repeated: bool


def find_collectives(
    lowering: ModuleLowering, block: Block, *, repeated: bool = False, seen: set[str] | None = None
) -> Iterator[Found]:
    """Yield the communication of a block and of its regions, in program order.

    Functions that are called too often to be inlined count as loops; `seen` holds those visited.
    """
    met: set[str] = set() if seen is None else seen
    for op in block.ops:
        if op.name in CALLS and (symbol := op[CALLS[op.name]]) not in met:
            met.add(symbol)
            called = lowering.flatten(lowering.lookup(symbol, op)).body
            yield from find_collectives(lowering, called, repeated=True, seen=met)
        if op.name in DESCRIPTIONS:
            yield Found(op, DESCRIPTIONS[op.name](op, lowering), repeated)
            continue
        if op.name in STREAMS:
            yield Found(op, None, repeated)
        for region in op.regions:
            for inner in region.blocks:
                yield from find_collectives(lowering, inner, repeated=repeated or op.name == _LOOP, seen=met)


@dataclass
class CommunicationTable:
    """Collectives in program order, and the tables of process groups and messages that they refer to."""

    size: int
    program: ProgramTables
    origins: Origins
    groups: JsonTable = field(default_factory=JsonTable)
    entries: list[Json] = field(default_factory=list)

    def add(self, found: Iterable[Found], timeline: Timeline | None) -> None:
        """Add the result of `find_collectives`, with the predicted times in `timeline`."""
        took = _seconds(timeline)
        for each in found:
            entry = self._entry(each)
            entry["seconds"], entry["turns"] = took.get(each.op, (None, 1))
            self.entries.append(entry)

    def _entry(self, found: Found) -> dict[str, Json]:
        op, collective = found.op, found.collective
        entry: dict[str, Json] = {
            "kind": op.name.removeprefix("stablehlo."),
            "op": self.origins(op),
            "place": self.program.places.number(op),
            "repeated": found.repeated,
            "messages": [],
            "groups": -1,
            "size": 0,
        }
        if collective is None:
            return entry
        size = self.size if collective.groups is None else collective.groups.largest
        entry["size"] = size
        entry["groups"] = self._groups(collective.groups)
        entry["messages"] = [self._message(operation, size) for operation in collective.messages]
        entry["operands"] = len(collective.operations)
        return entry

    def _groups(self, groups: Groups | None) -> int:
        if groups is None:
            return -1
        most = max(1, _MOST_MEMBERS // max(1, groups.largest))
        rows = tuple(tuple(map(int, group)) for group in groups[:most])
        return self.groups.add((rows, len(groups)), {"count": len(groups), "rows": [list(row) for row in rows]})

    def _message(self, operation: Operation, size: int) -> dict[str, Json]:
        price = cost(operation, size)
        message: dict[str, Json] = {
            "text": self.program.texts.of(describe(operation)),
            "algorithm": self.program.texts.of(price.algorithm),
            "sent": price.sent,
            "received": price.received,
        }
        if isinstance(operation, CollectivePermute):
            most = operation.pairs[:_MOST_MEMBERS]
            message["pairs"] = [[int(source), int(target)] for source, target in most]
            message["bytes"] = wire_bytes(operation)
        else:
            rounds = least_rounds(operation, size)
            message["rounds"] = [[each.times, each.distance, each.nbytes, each.stride] for each in rounds]
        return message


def _seconds(timeline: Timeline | None) -> dict[Op, tuple[float, int]]:
    """Return the predicted seconds of one execution of each collective, and its number of executions."""
    found = {}
    for moment in timeline.moments if timeline is not None else ():
        event = moment.event
        if event.collective is not None and event.ops:
            longest = float(np.max(moment.ends - moment.begins))
            found[event.collective.op] = longest / max(1, event.turns), event.turns
    return found
