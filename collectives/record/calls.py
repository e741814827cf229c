"""Records of a process's collective calls for the watchdog: participating ranks and text."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from collectives.operations import CollectivePermute, Operation, describe
from collectives.record.activity import Call, Pairs
from collectives.states import short_list

_PACKAGE = __name__.partition(".")[0]


def caller_of() -> str:
    """Return the location, ``file:line``, of the innermost caller outside of this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).split(".")[0] == _PACKAGE:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def part_of(operation: Operation, rank: int) -> Operation:
    """Return the operation as the process at position ``rank`` sees it: a permutation with its own pairs only."""
    return operation.linked(rank) if isinstance(operation, CollectivePermute) else operation


def call_of(operation: Operation, members: Sequence[int], rank: int, where: str) -> Call:
    """Return the call of ``operation`` by the process at position ``rank`` of the group ``members``.

    The members of a permutation's call are the processes that its pairs link with this one. ``where`` is the source
    location; if empty, that of the caller of the package.
    """
    pairs: Pairs = ()
    taking, result = tuple(members), operation.result_shape(len(members))
    if isinstance(operation, CollectivePermute):
        operation = operation.linked(rank)
        taking = tuple(members[position] for position in operation.ends)
        pairs = tuple((members[source], members[target]) for source, target in operation.pairs)
    place = where or caller_of()
    return Call(
        operation.name, describe(operation), operation.shape, result, operation.dtype, taking, place, pairs=pairs
    )


def text_of(call: Call, members: Sequence[int], where: str) -> str:
    """Return the text of ``call`` in a group; positions in pairs are relative to ``members``."""
    return f"{call.text} among {short_list(members)}" + (f" at {where}" if where else "")
