"""What is read where a point lies within bounds, with a constant elsewhere: which loads are such, and their bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from spmd.analysis.affine import Affine
from spmd.analysis.scalar.expression import Expression, Primitive, constant_value, is_constant
from spmd.compiler.schedule.nest import Load, Position, Stage


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
    """`form` is at least `number`, or below it."""

    form: Affine
    is_least: bool
    number: int


def bounds_of(stage: Stage, mask: Expression | None) -> list[Bound] | None:
    """What must hold for `mask` to hold; None where it asks more than where a point lies."""
    bounds: list[Bound] = []
    for condition in _conditions_of(mask):
        place, limit = condition.operands if len(condition.operands) == 2 else (None, None)
        if place is None or limit is None or condition.primitive is not Primitive.COMPARE_INTEGER:
            return None
        if place.primitive is not Primitive.PARAMETER or not is_constant(limit):
            return None
        assert isinstance(place.attribute, int)
        leaf = stage.leaves[place.attribute]
        if not isinstance(leaf, Position) or leaf.form.dynamic or condition.attribute not in ("sge", "slt"):
            return None
        bounds.append(Bound(leaf.form, condition.attribute == "sge", int(constant_value(limit))))
    return bounds


def _conditions_of(mask: Expression | None) -> Iterator[Expression]:
    if mask is None:
        return
    if mask.primitive is Primitive.AND:
        for operand in mask.operands:
            yield from _conditions_of(operand)
    else:
        yield mask
