"""Loop nests that fold products over windows, feature by feature: depthwise convolutions whose features lie side by
side, with a constant where a window goes beyond its operand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spmd.analysis.affine import Affine, Variable
from spmd.analysis.scalar.expression import Expression, MachineType, Primitive, constant_value, is_constant, parameter
from spmd.compiler.schedule.nest import FOLDED, Load, LoopReduction, Nest, Position, Stage
from spmd.ir import Value


@dataclass(frozen=True, slots=True)
class WindowPlace:
    """Where something is read: `place`, counted from 0 on, is within `limit` where there is anything to be read."""

    place: Affine
    limit: int


@dataclass(frozen=True, slots=True)
class WindowFold:
    """Sums of products of machine values of `type`: `result` at each turn of the loops `outer` and `lane` sums what
    stands in `image`, times `weights`, over the loops `taps`, all in order.

    The `places`, one at most for each of `taps`, say where there is anything in the image; elsewhere it has `padding`.
    `image_first`: products are of the image and the weights, not of the weights and the image.
    """

    type: MachineType
    image: Load
    weights: Load
    result: Value
    written: Affine
    initial: Expression
    padding: Expression | None
    places: dict[Variable, WindowPlace]
    outer: tuple[Variable, ...]
    taps: tuple[Variable, ...]
    lane: Variable
    image_first: bool


def window_fold_of(nest: Nest) -> WindowFold | None:
    """What `nest` folds; None where it does anything else."""
    if len(nest.stages) != 1 or len(nest.stages[0].reductions) != 1:
        return None
    (stage,), (fold,) = nest.stages, nest.stages[0].reductions
    if stage.stores or stage.updates or not stage.kept or not _is_sum(fold):
        return None
    (store,), (product,), lane = fold.stores, fold.inputs, stage.kept[-1]
    if product.primitive is not Primitive.MUL:
        return None
    first, second = (_factor(stage, operand) for operand in product.operands)
    if first is None or second is None:
        return None
    image_first = second[0].mask is None and not _knows(second[0].address, stage.kept[:-1])
    (image, padding), (weights, _) = (first, second) if image_first else (second, first)
    if weights.mask is not None or _knows(weights.address, stage.kept[:-1]):
        return None
    forms = (image.address, weights.address, store.address)
    if any(form.dynamic or form.coefficient(lane) != 1 for form in forms) or lane in nest.outer:
        return None
    places = _places(nest, stage, image.mask)
    if places is None or (image.mask is None) is not (padding is None):
        return None
    return WindowFold(
        image.type, image, weights, store.value, store.address, fold.initial[0], padding, places,
        stage.kept[:-1], stage.reduced, lane, image_first,
    )  # fmt: skip


def _is_sum(fold: LoopReduction) -> bool:
    """Whether one value is summed, from a constant on, and stored as it is."""
    if len(fold.inputs) != 1 or len(fold.stores) != 1 or not is_constant(fold.initial[0]) or fold.neutral is None:
        return False
    type = fold.inputs[0].type
    folded = parameter(FOLDED, type)
    (combine,) = fold.combine
    is_plain = combine.primitive is Primitive.ADD and combine.operands == (folded, parameter(FOLDED + 1, type))
    return type.is_float and is_plain and fold.stores[0].code is folded


def _factor(stage: Stage, code: Expression) -> tuple[Load, Expression | None] | None:
    """What is read as `code`, and what it is where nothing is read."""
    padding: Expression | None = None
    mask: Expression | None = None
    if code.primitive is Primitive.SELECT and is_constant(code.operands[2]):
        mask, code, padding = code.operands
    if code.primitive is not Primitive.PARAMETER:
        return None
    assert isinstance(code.attribute, int)
    load = stage.leaves[code.attribute]
    return (load, padding) if isinstance(load, Load) and load.mask is mask else None


def _knows(form: Affine, variables: tuple[Variable, ...]) -> bool:
    return any(form.coefficient(variable) for variable in variables)


def _places(nest: Nest, stage: Stage, mask: Expression | None) -> dict[Variable, WindowPlace] | None:
    """By loop of the window, where `mask` holds, and only there; None where it asks for more than that."""
    bounds: dict[Variable, tuple[Affine, int, int]] = {}
    for condition in conditions_of(mask):
        place, limit = condition.operands if len(condition.operands) == 2 else (None, None)
        if place is None or limit is None or condition.primitive is not Primitive.COMPARE_INTEGER:
            return None
        if place.primitive is not Primitive.PARAMETER or not is_constant(limit):
            return None
        assert isinstance(place.attribute, int)
        leaf = stage.leaves[place.attribute]
        if not isinstance(leaf, Position) or leaf.form.dynamic or condition.attribute not in ("sge", "slt"):
            return None
        taps = [variable for variable, _ in leaf.form.terms if variable in stage.reduced]
        if len(taps) != 1:
            return None
        low, high = leaf.form.bounds(nest.extents) or (0, 0)
        form, first, stop = bounds.get(taps[0], (leaf.form, low, high + 1))
        if form != leaf.form:
            return None
        bound = int(constant_value(limit))
        ends = (max(first, bound), stop) if condition.attribute == "sge" else (first, min(stop, bound))
        bounds[taps[0]] = (form, *ends)
    return {tap: WindowPlace(form.shifted(-first), stop - first) for tap, (form, first, stop) in bounds.items()}


def conditions_of(mask: Expression | None) -> Iterator[Expression]:
    """What must hold for `mask` to hold."""
    if mask is None:
        return
    if mask.primitive is Primitive.AND:
        for operand in mask.operands:
            yield from conditions_of(operand)
    else:
        yield mask
