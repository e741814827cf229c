"""What is read where a point lies within bounds, with a constant elsewhere: which loads are such, and their bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from spmd.analysis.affine import Affine
from spmd.analysis.scalar.expression import Expression, Primitive, is_constant
from spmd.compiler.schedule.interior import conditions_of
from spmd.compiler.schedule.nest import Load, Nest, Stage


def padded_load(stage: Stage, code: Expression) -> tuple[Load, Expression | None] | None:
    """What is read as `code`, and what it is where nothing is read; None of what is more than that."""
    padding: Expression | None = None
    mask: Expression | None = None
    if code.primitive is Primitive.SELECT and is_constant(code.operands[2]):
        mask, code, padding = code.operands
    if code.primitive is not Primitive.PARAMETER:
        return None
    assert isinstance(code.attribute, int)
    load = stage.leaves[code.attribute]
    return (load, padding) if isinstance(load, Load) and load.mask is mask else None


class Bound(NamedTuple):
    """`form`, which has no offset, is at least `number`, or below it."""

    form: Affine
    is_least: bool
    number: int


def bounds_of(nest: Nest, stage: Stage, mask: Expression | None) -> list[Bound] | None:
    """What must hold for `mask` to hold; None where it asks more than where a point lies."""
    known = dict(conditions_of(nest, stage)) if mask is not None else {}
    bounds: list[Bound] = []
    for part in _parts_of(mask):
        condition = known.get(part)
        if condition is None or condition.predicate not in ("sge", "slt"):
            return None
        difference = condition.difference
        bounds.append(Bound(Affine(0, difference.terms), condition.predicate == "sge", -difference.offset))
    return bounds


def _parts_of(mask: Expression | None) -> Iterator[Expression]:
    """What is all asked by `mask`."""
    if mask is None:
        return
    if mask.primitive is Primitive.AND:
        for operand in mask.operands:
            yield from _parts_of(operand)
    else:
        yield mask
