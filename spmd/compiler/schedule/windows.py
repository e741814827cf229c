"""Loop nests that fold products over windows, feature by feature: depthwise convolutions whose features lie side by
side, with a constant where a window goes beyond its operand.
"""

from __future__ import annotations

from dataclasses import dataclass

from spmd.analysis.affine import Affine, Variable
from spmd.analysis.scalar.expression import Expression, MachineType, Primitive, is_constant, parameter
from spmd.compiler.schedule.nest import FOLDED, Load, LoopReduction, Nest, Stage
from spmd.compiler.schedule.padded_loads import bounds_of, padded_load
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
    first, second = (padded_load(stage, operand) for operand in product.operands)
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


def _knows(form: Affine, variables: tuple[Variable, ...]) -> bool:
    return any(form.coefficient(variable) for variable in variables)


def _places(nest: Nest, stage: Stage, mask: Expression | None) -> dict[Variable, WindowPlace] | None:
    """By loop of the window, where `mask` holds, and only there; None where it asks for more than that."""
    ranges: dict[Variable, tuple[Affine, int, int]] = {}
    bounds = bounds_of(nest, stage, mask)
    if bounds is None:
        return None
    for form, is_least, number in bounds:
        taps = [variable for variable, _ in form.terms if variable in stage.reduced]
        if len(taps) != 1:
            return None
        low, high = form.bounds(nest.extents) or (0, 0)
        other, first, stop = ranges.get(taps[0], (form, low, high + 1))
        if other != form:
            return None
        ends = (max(first, number), stop) if is_least else (first, min(stop, number))
        ranges[taps[0]] = (form, *ends)
    return {tap: WindowPlace(form.shifted(-first), stop - first) for tap, (form, first, stop) in ranges.items()}
