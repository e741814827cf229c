"""Rules of ops whose results differ between processes, and checks of random numbers."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from spmd.analysis.process_groups import channel_id, transfer_ends
from spmd.analysis.varying.analysis import MIXING, Analysis, rule
from spmd.analysis.varying.events import TransferEvent
from spmd.analysis.varying.facts import Fact
from spmd.analysis.varying.findings import FindingKind
from spmd.analysis.varying.groups import members_text
from spmd.analysis.varying.partitions import Labels
from spmd.analysis.varying.reasons import reasons
from spmd.errors import CollectiveError
from spmd.ir import Op, Value
from spmd.types import ElementType, TensorType

#: Functions that generate JAX's random bits, by their names in its programs.
_RANDOM_BITS = re.compile(r"random_bits|rng_bit_generator|^_?rng_|threefry2x32")
#: Ops that combine random numbers and data, element by element.
_MIXING = ("stablehlo.multiply", "stablehlo.select", "stablehlo.add", "stablehlo.subtract")
#: Ops that apply a mask.
_MASKING = _MIXING[:2]
_MOST_VISITED = 2000


@rule("stablehlo.partition_id", "stablehlo.replica_id")
def _id(analysis: Analysis, op: Op) -> None:
    ranks = np.arange(analysis.partitions.size, dtype=np.uint32)
    partitions = analysis.grid.num_partitions
    ids = ranks % partitions if op.name == "stablehlo.partition_id" else ranks // partitions
    analysis.set(op.results[0], analysis.known_fact(ids))


@rule("stablehlo.send")
def _send(analysis: Analysis, op: Op) -> None:
    _transfer(analysis, op)


@rule("stablehlo.recv")
def _recv(analysis: Analysis, op: Op) -> None:
    _transfer(analysis, op)
    _received(analysis, op)


def _transfer(analysis: Analysis, op: Op) -> None:
    try:
        ends = transfer_ends(op, analysis.grid)
    except CollectiveError as error:
        analysis.report(FindingKind.GROUPS, op, error.diagnostics[0].message, certain=True)
        return
    analysis.collected.append(TransferEvent(op, channel_id(op), ends))


@rule("stablehlo.infeed")
def _received(analysis: Analysis, op: Op) -> None:
    """Set data that a process receives at run time as varying: they may differ between processes."""
    for result in op.results:
        if isinstance(result.type, TensorType):
            analysis.set(result, Fact(analysis.partitions.distinct, analysis.partitions.uniform))


@rule("stablehlo.rng")
def _rng(analysis: Analysis, op: Op) -> None:
    """Set random numbers as distinct: each process draws its own. Source: specification, rng."""
    fact = Fact(analysis.partitions.distinct, analysis.partitions.distinct, random=op)
    analysis.set(op.results[0], fact)


@rule("stablehlo.rng_bit_generator")
def _rng_bit_generator(analysis: Analysis, op: Op) -> None:
    state = analysis.fact(op.operands[0])
    analysis.set(op.results[0], state, op.operands)
    analysis.set(op.results[1], Fact(state.may, state.sure, random=op), op.operands)


@rule("stablehlo.custom_call")
def _custom_call(analysis: Analysis, op: Op) -> None:
    """Set results of calls with side effects as varying; other calls are functions of their operands."""
    fact = analysis.join([analysis.fact(operand) for operand in op.operands])
    if op["has_side_effect"]:
        fact = replace(fact, may=analysis.partitions.distinct)
    for result in op.results:
        analysis.set(result, fact, op.operands)


def draws_random_bits(symbol: str) -> bool:
    """Return whether a function of this name generates random bits from a key."""
    return _RANDOM_BITS.search(symbol) is not None


def _check_mixing(analysis: Analysis, op: Op) -> None:
    """Report random numbers that are equal for different data, or different for equal data."""
    if not _is_float(op.results[0]):
        return
    facts = [analysis.fact(operand) for operand in op.operands]
    random = next((fact for fact in facts if fact.random is not None), None)
    if random is None:
        return
    source = random.random
    assert source is not None
    data = [
        (value, fact)
        for value, fact in zip(op.operands, facts, strict=True)
        if fact.random is None and value.type == op.results[0].type and not _is_broadcast(value)
    ]
    join = analysis.partitions.join
    varying = next((value for value, fact in data if join([random.may, fact.may]) is not random.may), None)
    all_data = join([fact.may for _, fact in data])
    if random.may is not analysis.partitions.distinct and varying is not None:
        which = "all processes" if random.is_uniform else _sharing_text(random.may.labels)
        text = f"the same random numbers on {which}, for data that differ between them"
        notes = [f"  drawn by {source.name} at {source.location} from a key that is the same; the data:"]
        analysis.report(FindingKind.SAME_RANDOM, op, text, False, [*notes, *reasons(analysis, varying)])
    elif (
        _is_masking(op, random)
        and join([random.may, all_data]) is not all_data
        and any(depends_on_data(value) for value, _ in data)
    ):
        which = "all of them" if all_data.is_uniform else _sharing_text(all_data.labels)
        text = f"random numbers that differ between processes, for data that are the same on {which}"
        drawn = next(value for value, fact in zip(op.operands, facts, strict=True) if fact is random)
        notes = [f"  drawn by {source.name} at {source.location} from a key that differs:"]
        analysis.report(FindingKind.DIFFERENT_RANDOM, op, text, False, [*notes, *reasons(analysis, drawn)])


def _sharing_text(labels: Labels) -> str:
    """Return a description of the processes with the first label that several share."""
    first = int(np.argmax(np.bincount(labels) > 1))
    return members_text(np.flatnonzero(labels == first).tolist())


def _is_broadcast(value: Value) -> bool:
    """Return whether `value` is broadcast along a dimension: a scale rather than data."""
    op = value.defining_op
    if op is None or op.name != "stablehlo.broadcast_in_dim":
        return False
    return op.operands[0].tensor.shape != value.tensor.shape


def _is_masking(op: Op, random: Fact) -> bool:
    return op.name in _MASKING and not random.is_uniform


def depends_on_data(value: Value) -> bool:
    """Return whether `value` depends on arguments or communication, not on constants only."""
    waiting, seen = [value], {value}
    while waiting and len(seen) < _MOST_VISITED:
        op = waiting.pop().defining_op
        if op is None or op.regions:
            return True
        for operand in op.operands:
            if operand not in seen:
                seen.add(operand)
                waiting.append(operand)
    return len(seen) >= _MOST_VISITED


def _is_float(value: Value) -> bool:
    if not isinstance(value.type, TensorType) or not value.type.rank:
        return False
    element = value.type.element_type
    return isinstance(element, ElementType) and element.is_float


MIXING.update(dict.fromkeys(_MIXING, _check_mixing))
