"""Rules of branches, loops, calls and asynchronous ops, where processes may diverge.

Collectives inside are sound if all processes of a group take the same path, or all paths communicate alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from spmd.analysis.constants import constant_array
from spmd.analysis.loops import counted_loop
from spmd.analysis.varying.analysis import Analysis, rule
from spmd.analysis.varying.events import (
    ControlFlowEvent,
    Event,
    TransferEvent,
    collective_events,
    first_collective,
    trace,
    transfer_events,
)
from spmd.analysis.varying.facts import Fact
from spmd.analysis.varying.findings import FindingKind
from spmd.analysis.varying.groups import members_text
from spmd.analysis.varying.matching import match
from spmd.analysis.varying.partitions import Labels, Partition
from spmd.analysis.varying.reasons import reasons
from spmd.analysis.varying.sources import draws_random_bits
from spmd.ir import Op, Value
from spmd.support.arrays import Array

_LOOP = "stablehlo.while"


@rule("func.call", "stablehlo.composite")
def _call(analysis: Analysis, op: Op) -> None:
    name = op["callee"] if op.name == "func.call" else op["decomposition"]
    analysis.calls.append(op)
    called = analysis.call(str(name), op.operands)
    analysis.calls.pop()
    if called is None:
        _joined(analysis, op)
        return
    facts, function = called
    returned = function.body.terminator.operands
    draws = draws_random_bits(str(name))
    for result, fact, value in zip(op.results, facts, returned, strict=True):
        analysis.set(result, replace(fact, random=op) if draws else fact, (value,))


def _joined(analysis: Analysis, op: Op) -> None:
    fact = analysis.join([analysis.fact(operand) for operand in op.operands])
    for result in op.results:
        analysis.set(result, fact, op.operands)


@rule("stablehlo.async_start")
def _async_start(analysis: Analysis, op: Op) -> None:
    block = op.regions[0].block
    for argument, operand in zip(block.arguments, op.operands, strict=True):
        analysis.set(argument, analysis.fact(operand), (operand,))
    analysis.block(block)
    returned = block.terminator.operands
    fact = analysis.join([analysis.fact(value) for value in returned])
    for result in op.results:
        analysis.set(result, fact, returned)


@rule("stablehlo.optimization_barrier")
def _barrier(analysis: Analysis, op: Op) -> None:
    for operand, result in zip(op.operands, op.results, strict=True):
        analysis.set(result, analysis.fact(operand), (operand,))


@rule("stablehlo.if", "stablehlo.case")
def _branches(analysis: Analysis, op: Op) -> None:
    chosen = analysis.fact(op.operands[0])
    masks = _masks(op, chosen.known)
    facts: list[list[Fact]] = []
    events: list[Sequence[Event]] = []
    for index, region in enumerate(op.regions):
        mask = None if masks is None else masks[index]
        if mask is not None and not mask.any():
            facts.append([])
            events.append(())
            continue
        with (
            analysis.collecting() as collected,
            analysis.restricted_to(None if mask is None or len(mask) == 1 else mask),
        ):
            analysis.block(region.block)
        facts.append([analysis.fact(value) for value in region.block.terminator.operands])
        events.append(collected)
    for at, result in enumerate(op.results):
        taken = [(branch[at], index) for index, branch in enumerate(facts) if branch]
        returned = [op.regions[index].block.terminator.operands[at] for _, index in taken]
        if len(set(returned)) == 1:  # every branch returns the same value
            analysis.set(result, taken[0][0], returned)
            continue
        fact = _merged(
            analysis, chosen, [fact for fact, _ in taken], None if masks is None else [masks[i] for _, i in taken]
        )
        analysis.set(result, fact, (*returned, op.operands[0]))
    if any(events):
        event = ControlFlowEvent(op, tuple(events), _paths(masks))
        analysis.collected.append(event)
        _check_branches(analysis, event, chosen, masks)
        _check_transfers(analysis, event, chosen, op.operands[0])


def _masks(op: Op, known: Array | None) -> list[Labels] | None:
    """Return a mask per branch: 1 for each process that takes it; None if unknown."""
    if known is None:
        return None
    values = known.reshape(-1).astype(np.int64)
    if op.name == "stablehlo.if":
        values = 1 - values
    last = len(op.regions) - 1
    values = np.where((values < 0) | (values > last), last, values)
    return [(values == index).astype(np.int64) for index in range(last + 1)]


def _paths(masks: list[Labels] | None) -> Array | None:
    """Return the index of the branch that each process takes."""
    return None if masks is None else np.argmax(np.stack(masks), axis=0)


def _iterations(analysis: Analysis, op: Op) -> Array | None:
    """Return the trip count of a counted loop on each process; None if its start or bound is unknown."""
    loop = counted_loop(op)
    if loop is None:
        return None
    start, bound = (_numbers(analysis, value) for value in (loop.start, loop.bound))
    if start is None or bound is None:
        return None
    counts = [loop.iterations(int(first), int(last)) for first, last in np.broadcast(start, bound)]
    return None if None in counts else np.array(counts, np.int64)


def _numbers(analysis: Analysis, value: Value) -> Array | None:
    """Return the scalar that each process holds, or one for all; None if unknown."""
    known = analysis.fact(value).known
    if known is not None:
        return known.reshape(-1)
    constant = constant_array(value.defining_op)
    return None if constant is None else constant.reshape(-1)


def _merged(analysis: Analysis, chosen: Fact, facts: list[Fact], masks: list[Labels] | None) -> Fact:
    """Return the join over the branches, of which each process takes one."""
    partitions = analysis.partitions
    if masks is None or any(len(mask) == 1 for mask in masks):
        if len(facts) == 1:
            return facts[0]
        joined = analysis.join([chosen, *facts])
        return Fact(joined.may, joined.sure)
    taken = [np.broadcast_to(mask, partitions.size).astype(bool) for mask in masks]
    may = partitions.selected(taken, [fact.may for fact in facts])
    sure = partitions.selected(taken, [fact.sure for fact in facts])
    known = _selected(taken, [fact.known for fact in facts], partitions.size)
    return Fact(may, sure) if known is None else analysis.known_fact(known)


def _selected(masks: Sequence[Array], known: Sequence[Array | None], size: int) -> Array | None:
    arrays = [array for array in known if array is not None]
    if len(arrays) < len(known):
        return None
    result = np.broadcast_to(arrays[0], (size, *arrays[0].shape[1:])).copy()
    for mask, array in zip(masks, arrays, strict=True):
        result[mask] = np.broadcast_to(array, result.shape)[mask]
    return result


def _check_branches(analysis: Analysis, event: ControlFlowEvent, chosen: Fact, masks: list[Labels] | None) -> None:
    """Report groups whose processes may take branches with different communication."""
    divided: list[tuple[int, ...]] = []
    for collective, group in _divided(analysis, event, chosen.may):
        divided.append(group)
        branches = [
            at
            for at in range(len(event.regions))
            if masks is None or (masks[at] if len(masks[at]) == 1 else masks[at][list(group)]).any()
        ]
        traces = [trace(event.regions[at], frozenset([group])) for at in branches]
        if all(each == traces[0] for each in traces):
            continue
        pair = chosen.may.disagreeing(group)
        assert pair is not None
        certain = chosen.sure.disagreeing(group) is not None
        _report(analysis, event, group, pair, certain, masks, collective)
        return
    _check_order(analysis, event, frozenset(divided), chosen, masks)


def _check_transfers(analysis: Analysis, event: ControlFlowEvent, chosen: Fact, predicate: Value) -> None:
    """Report messages whose ends may take different paths; known paths are left to `matching`."""
    if event.paths is not None:
        return
    is_loop = event.op.name == _LOOP
    labels = chosen.may.labels
    for transfer in sorted(transfer_events([*chain(*event.regions)]), key=_sends):
        for rank, other in (transfer.ends or {}).items():
            sides = (
                [] if is_loop else [[_between(each, rank, other) for each in transfer_events(r)] for r in event.regions]
            )
            if labels[rank] == labels[other] or (sides and all(side == sides[0] for side in sides)):
                continue
            does = "leave the loop earlier" if is_loop else "take another branch"
            text = f"the other end of process {rank}, process {other}, may {does}"
            notes = [f"  {event.op.name} at {event.op.location} depends on", *reasons(analysis, predicate)]
            certain = chosen.sure.labels[rank] != chosen.sure.labels[other]
            analysis.report(FindingKind.CHANNEL, transfer.op, text, bool(certain), notes)
            return


def _sends(transfer: TransferEvent) -> bool:
    return transfer.sends


def _between(transfer: TransferEvent, rank: int, other: int) -> tuple[int, bool, bool] | None:
    """Return what two processes see of a transfer: channel, direction, and whether `rank` takes part."""
    ends = transfer.ends or {}
    if ends.get(rank) != other and ends.get(other) != rank:
        return None
    return transfer.channel, transfer.sends, rank in ends


def _check_order(
    analysis: Analysis,
    event: ControlFlowEvent,
    groups: frozenset[tuple[int, ...]],
    chosen: Fact,
    masks: list[Labels] | None,
) -> None:
    """Report branches that have the same communication for each group, but order that of several groups differently."""
    traces = [trace(region, groups) for region in event.regions]
    if len(groups) < 2 or all(each == traces[0] for each in traces):
        return
    if masks is not None and analysis.active is None:
        found = match([[event]], [0] * analysis.partitions.size, ["the program"])
        for finding in found:
            analysis.report(
                finding.kind, finding.op, finding.diagnostic.message, finding.certain, finding.diagnostic.notes
            )
        return
    text = "branches order the collectives of several groups differently: processes in different branches may deadlock"
    where = next(op for group in groups for op in [first_collective(event.regions[0], group)] if op is not None)
    notes = [f"  {event.op.name} at {event.op.location} depends on", *reasons(analysis, event.op.operands[0])]
    analysis.report(FindingKind.DIVERGENT_COLLECTIVE, where, text, False, notes)


def _report(
    analysis: Analysis,
    event: ControlFlowEvent,
    group: tuple[int, ...],
    pair: tuple[int, int],
    certain: bool,
    masks: list[Labels] | None,
    collective: Op,
) -> None:
    predicate = event.op.operands[0]
    where, other = (collective, None)
    if masks is not None:
        taken = [next(at for at, mask in enumerate(masks) if mask[rank]) for rank in pair]
        found = [first_collective(event.regions[at], group) for at in taken]
        where, other = (found[0] or found[1] or collective), found[1] if found[0] else None
        waits, goes = pair if found[0] else pair[::-1]
        does = (
            f"executes {other.name} at {other.location}"
            if other is not None and other is not where
            else "does not execute it"
        )
        text = f"process {waits} waits here for process {goes}, which takes another branch and {does}"
    else:
        text = (
            f"{members_text(group)} execute this collective, but may take different branches: "
            f"the {'predicate' if event.op.name == 'stablehlo.if' else 'index'} of {event.op.name} differs between them"
        )
    notes = [f"  {event.op.name} at {event.op.location} depends on", *reasons(analysis, predicate)]
    analysis.report(FindingKind.DIVERGENT_COLLECTIVE, where, text, certain, notes)


def _divided(analysis: Analysis, event: ControlFlowEvent, partition: Partition) -> Iterator[tuple[Op, tuple[int, ...]]]:
    """Yield, once, each group that communicates within `event` and differs in `partition`, and a collective of it."""
    seen: set[int] = set()
    checked: set[tuple[int, ...]] = set()
    active = None if analysis.is_mpmd and event.paths is None else analysis.active
    for region in event.regions:
        for collective in collective_events(region):
            if id(collective.groups) in seen:
                continue
            seen.add(id(collective.groups))
            for index in collective.groups.divided(partition, active):
                group = collective.groups.tuples[index]
                if group not in checked:
                    checked.add(group)
                    yield collective.op, group


@rule(_LOOP)
def _loop(analysis: Analysis, op: Op) -> None:
    condition, body = (region.block for region in op.regions)
    carried = [
        analysis.with_constant(operand, analysis.fact(operand)) if back is argument else analysis.fact(operand)
        for operand, argument, back in zip(op.operands, body.arguments, body.terminator.operands, strict=True)
    ]
    causes: list[Sequence[Value]] = [(operand,) for operand in op.operands]
    while True:
        before = analysis.mark()
        with analysis.collecting() as events:
            _bind(analysis, condition.arguments, carried, causes)
            analysis.block(condition)
            chosen = _loop_fact(analysis, op)
            _bind(analysis, body.arguments, carried, causes)
            analysis.block(body)
        returned = [analysis.fact(value) for value in body.terminator.operands]
        after = [
            fact if value is argument else _loop_join(analysis, fact, back, chosen)
            for value, argument, fact, back in zip(
                body.terminator.operands, body.arguments, carried, returned, strict=True
            )
        ]
        if all(_same(fact, other) for fact, other in zip(after, carried, strict=True)):
            break
        analysis.return_to(before)
        for at, value in enumerate(body.terminator.operands):
            causes[at] = (*causes[at][:1], value, condition.terminator.operands[0])
        carried = after
    for result, fact, argument in zip(op.results, carried, body.arguments, strict=True):
        analysis.set(result, fact, (argument, condition.terminator.operands[0]))
    if events:
        event = ControlFlowEvent(op, (events,), _iterations(analysis, op))
        analysis.collected.append(event)
        _check_loop(analysis, event, chosen, condition.terminator.operands[0])
        _check_transfers(analysis, event, chosen, condition.terminator.operands[0])


def _bind(
    analysis: Analysis, arguments: Sequence[Value], facts: Sequence[Fact], causes: Sequence[Sequence[Value]]
) -> None:
    for argument, fact, values in zip(arguments, facts, causes, strict=True):
        analysis.set(argument, fact, values)


def _loop_fact(analysis: Analysis, op: Op) -> Fact:
    """Return the fact of the loop's predicate, or of its trip count if known: equal where processes loop alike."""
    counts = _iterations(analysis, op)
    if counts is None:
        return analysis.fact(op.regions[0].block.terminator.operands[0])
    partition = analysis.partitions.of(np.broadcast_to(counts, analysis.partitions.size))
    return Fact(partition, partition)


def _loop_join(analysis: Analysis, fact: Fact, back: Fact, chosen: Fact) -> Fact:
    """Return the join of a carried value over all iterations."""
    if fact.known is not None and _same(fact, back):
        return fact
    joined = analysis.join([fact, back, chosen])
    return Fact(joined.may, joined.sure)


def _same(fact: Fact, other: Fact) -> bool:
    if fact.may is not other.may or fact.sure is not other.sure or (fact.known is None) is not (other.known is None):
        return False
    return fact.known is None or np.array_equal(fact.known, np.asarray(other.known))


def _check_loop(analysis: Analysis, event: ControlFlowEvent, chosen: Fact, predicate: Value) -> None:
    """Report groups whose processes may leave the loop after different numbers of iterations."""
    for collective, group in _divided(analysis, event, chosen.may):
        pair = chosen.may.disagreeing(group)
        assert pair is not None
        certain = chosen.sure.disagreeing(group) is not None
        text = (
            f"{members_text(group)} execute this collective in a loop whose trip count differs between "
            f"processes {pair[0]} and {pair[1]}"
        )
        notes = [f"  stablehlo.while at {event.op.location} depends on", *reasons(analysis, predicate)]
        analysis.report(FindingKind.DIVERGENT_COLLECTIVE, collective, text, certain, notes)
        return
