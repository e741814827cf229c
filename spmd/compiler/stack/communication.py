"""Transfers between two processes, streams, tokens and looks at values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collectives.errors import GroupError
from collectives.grid import permute_pairs
from spmd.analysis.process_groups import channel_id
from spmd.compiler.stack.core import StackedValue, Stacker, Tree, refuse, rule
from spmd.compiler.stack.placing import take_rows
from spmd.errors import CollectiveError, Diagnostic
from spmd.ir import Op
from spmd.types import TOKEN, TensorType


@rule("stablehlo.send", always=True)
def send(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """What is sent waits for the recv of its channel."""
    _alone(stacker, op)
    *values, token = (stacker.leaf(value) for value in op.operands)
    stacker.channels.setdefault(channel_id(op), []).append((op, values))
    return [token]


@rule("stablehlo.recv", always=True)
def recv(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """Who is no target gets zeros."""
    _alone(stacker, op)
    queue = stacker.channels.get(channel_id(op))
    if not queue:
        raise CollectiveError(Diagnostic(op.location, f"nothing was sent on channel {channel_id(op)}", op.name))
    sender, values = queue.pop(0)
    types = [value.type for value in op.results if isinstance(value.type, TensorType)]
    if [value.type for value in sender.operands[:-1]] != types:
        have, want = (", ".join(map(str, found)) for found in ([v.type for v in sender.operands[:-1]], types))
        text = f"({want}) is received where {sender.location} sends ({have})"
        raise CollectiveError(Diagnostic(op.location, text, op.name))
    ends = [_pairs(stacker, end) for end in (sender, op)]
    if set(ends[0]) != set(ends[1]):
        text = f"the pairs {sorted(ends[1])} are not those of the send at {sender.location}, {sorted(ends[0])}"
        raise CollectiveError(Diagnostic(op.location, text, op.name))
    order = np.full(stacker.size, -1, np.int64)
    for source, target in ends[0]:
        order[target] = source
    return [*(_arrived(stacker, leaf, order) for leaf in values), stacker.trees[op.operands[0]]]


def _arrived(stacker: Stacker, leaf: StackedValue, order: np.ndarray) -> StackedValue:
    if not leaf.stacked and (order >= 0).all():
        return leaf
    return StackedValue(take_rows(stacker, stacker.stack(leaf), order), True)


def _alone(stacker: Stacker, op: Op) -> None:
    if stacker.mask is not None:
        raise refuse(op, "not all processes come here")


def _pairs(stacker: Stacker, op: Op) -> Sequence[tuple[int, int]]:
    """The ends of a transfer; without pairs, whoever runs the program sends to itself."""
    pairs = op.attributes.get("source_target_pairs")
    if pairs is None or not pairs.size:
        return [(rank, rank) for rank in range(stacker.size)]
    try:
        return permute_pairs(stacker.grid, pairs, 1 if stacker.grid.num_partitions > 1 else 0)
    except GroupError as error:
        raise CollectiveError(Diagnostic(op.location, f"on a {stacker.grid} process grid: {error}", op.name)) from None


@rule("stablehlo.infeed", always=True)
def infeed(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """One entry of every process's stream."""
    _alone(stacker, op)
    types = [stacker.type_of(type) for type in op.result_types]
    attributes = {name: value for name, value in op.attributes.items() if name != "layout"}
    made = op.clone([stacker.leaf(op.operands[0]).value], types, attributes=attributes)
    stacker.ops.append(made)
    return [StackedValue(value, isinstance(value.type, TensorType)) for value in made.results]


@rule("stablehlo.outfeed", always=True)
def outfeed(stacker: Stacker, op: Op) -> Sequence[Tree]:
    _alone(stacker, op)
    made = op.clone([stacker.stack(stacker.leaf(value)) for value in op.operands], [TOKEN])
    stacker.ops.append(made)
    return [StackedValue(made.result)]


@rule("stablehlo.after_all", always=True)
def after_all(stacker: Stacker, op: Op) -> Sequence[Tree]:
    return stacker.copied(op)


@rule("interpreter.probe", "interpreter.print")
def probe(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """The values of all processes at once."""
    return stacker.lifted(op, [stacker.leaf(op.operands[0]).value])


@rule("interpreter.run_parallel", always=True)
def run_parallel(stacker: Stacker, op: Op) -> Sequence[Tree]:
    raise refuse(op, "it runs a grid of processes of its own")


@rule("check.expect_eq", "check.expect_almost_eq", "check.expect_close")
def expect(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """The results of all processes beside what each expects; those that are not here agree with anything."""
    actual, expected = (StackedValue(stacker.stack(stacker.leaf(value)), True) for value in op.operands)
    if stacker.mask is not None:
        actual = stacker.chosen(stacker.mask, actual, expected)
    return stacker.lifted(op, [actual.value, expected.value])
