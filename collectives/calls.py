"""What a process of a group calls, for those that watch: the processes that take part, and the words for it."""

from __future__ import annotations

from collections.abc import Sequence

from collectives.activity import Call, Pairs
from collectives.operations import CollectivePermute, Operation, describe
from collectives.places import caller_of
from collectives.states import short_list


def part_of(operation: Operation, rank: int) -> Operation:
    """Return what the process at position ``rank`` takes part in: of a permutation, the pairs that concern it."""
    return operation.linked(rank) if isinstance(operation, CollectivePermute) else operation


def call_of(operation: Operation, members: Sequence[int], rank: int, where: str) -> Call:
    """Return the call of ``operation`` by the process at position ``rank`` of the group ``members``.

    A permutation is that of the processes which its pairs link with this one. ``where`` is the place in the source,
    that of the caller of the package where it is empty.
    """
    pairs: Pairs = ()
    taking, result = tuple(members), operation.result_shape(len(members))
    if isinstance(operation, CollectivePermute):
        operation = operation.linked(rank)
        taking = tuple(members[position] for position in operation.ends)
        pairs = tuple((members[source], members[target]) for source, target in operation.pairs)
    place = where or caller_of(__package__)
    return Call(
        operation.name, describe(operation), operation.shape, result, operation.dtype, taking, place, pairs=pairs
    )


def text_of(call: Call, members: Sequence[int], where: str) -> str:
    """Return the words for ``call`` in a group, whose positions those of pairs are."""
    return f"{call.text} among {short_list(members)}" + (f" at {where}" if where else "")
