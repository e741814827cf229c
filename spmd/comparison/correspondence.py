"""Corresponding values of two functions: of ops at the same position of nearly equal programs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from difflib import SequenceMatcher

from spmd.ir import Block, Op


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
    attributes = repr(sorted((name, repr(value)) for name, value in op.attributes.items()))
    regions = tuple(tuple(key_of(inner) for inner in block.ops) for region in op.regions for block in region.blocks)
    return (op.name, tuple(map(str, op.operand_types)), tuple(map(str, op.result_types)), attributes, regions)
