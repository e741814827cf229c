"""Corresponding values of two functions: of ops at the same position of nearly equal programs."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import islice, zip_longest

from spmd.comparison.formats import is_inexact
from spmd.ir import Block, Function, Op
from spmd.ir.attributes import DenseAttr


def corresponding(left: Block, right: Block) -> list[tuple[Op, Op]]:
    """Return the pairs of ops of the two blocks, in order, whose results have the same types.

    Ops correspond if they have the same name, types and attributes in the same order; in the sections between, one by
    one, if both sides have equally many. An op on one side only has no counterpart.
    """
    ours, theirs = left.ops[:-1], right.ops[:-1]
    keys = [key_of(op) for op in ours], [key_of(op) for op in theirs]
    start, end = _common_ends(*keys)
    pairs = list(zip(ours[:start], theirs[:start], strict=True))
    middle = ours[start : len(ours) - end], theirs[start : len(theirs) - end]
    pairs += _aligned(*middle, [keys[0][start : len(ours) - end], keys[1][start : len(theirs) - end]])
    pairs += zip(ours[len(ours) - end :], theirs[len(theirs) - end :], strict=True)
    return [(one, other) for one, other in pairs if one.result_types == other.result_types]


def _common_ends(left: Sequence[Hashable], right: Sequence[Hashable]) -> tuple[int, int]:
    """Return the lengths of the common prefix and of the common suffix of the keys."""
    shorter = min(len(left), len(right))
    start = next((at for at in range(shorter) if left[at] != right[at]), shorter)
    rest = shorter - start
    end = next((at for at in range(rest) if left[-1 - at] != right[-1 - at]), rest)
    return start, end


def _aligned(ours: Sequence[Op], theirs: Sequence[Op], keys: Sequence[Sequence[Hashable]]) -> list[tuple[Op, Op]]:
    pairs: list[tuple[Op, Op]] = []
    matcher = SequenceMatcher(None, keys[0], keys[1], autojunk=False)
    for tag, first, last, other_first, other_last in matcher.get_opcodes():
        if tag == "equal" or last - first == other_last - other_first:
            pairs += zip(ours[first:last], theirs[other_first:other_last], strict=True)
    return pairs


def key_of(op: Op) -> Hashable:
    """Return a key that is equal for ops that compute the same from the same types."""
    regions = tuple(tuple(key_of(inner) for inner in block.ops) for region in op.regions for block in region.blocks)
    return (_head(op), regions)


def _head(op: Op, *, with_numbers: bool = True) -> Hashable:
    """Return the key of an op without its regions, and unless `with_numbers` without the floats of a constant."""
    attributes = op.attributes if with_numbers or not holds_floats(op) else {}
    named = repr(sorted((name, repr(value)) for name, value in attributes.items()))
    return (op.name, tuple(map(str, op.operand_types)), tuple(map(str, op.result_types)), named)


def holds_floats(op: Op) -> bool:
    """Return whether `op` is a constant of real or complex floats."""
    return op.name == "stablehlo.constant" and isinstance(op["value"], DenseAttr) and is_inexact(op.result.type)


def corresponding_constants(left: Function, right: Function) -> list[tuple[Op, Op]]:
    """Return the pairs of float constants of two functions that differ, op by op, in these alone; none otherwise."""
    pairs = list(zip_longest(_inner(left), _inner(right)))
    if not all(
        one and other and _head(one, with_numbers=False) == _head(other, with_numbers=False) for one, other in pairs
    ):
        return []
    return [(one, other) for one, other in pairs if holds_floats(one)]


def _inner(function: Function) -> Iterator[Op]:
    return islice(function.walk(), 1, None)
