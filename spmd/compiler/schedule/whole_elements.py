"""Complex elements that are moved and not computed with go whole: as one number of 64 bits, not as two parts."""

from __future__ import annotations

from dataclasses import replace

from spmd.analysis.affine import Affine
from spmd.analysis.scalar.expression import F32, I64, Expression, Primitive, parameter
from spmd.compiler.schedule.nest import Load, Nest, Stage, Store


def moved_whole(nest: Nest) -> Nest:
    """`nest` with whole elements, where all that it does is to move complex ones of 32-bit parts to known places."""
    stages = tuple(map(_whole, nest.stages))
    return replace(nest, stages=tuple(stage for stage in stages if stage is not None)) if all(stages) else nest


def _whole(stage: Stage) -> Stage | None:
    """`stage` with whole elements; None where it does more than move them."""
    if stage.reductions or stage.updates or not stage.stores or len(stage.stores) % 2:
        return None
    leaves: list[Load] = []
    stores: list[Store] = []
    for first, second in zip(stage.stores[::2], stage.stores[1::2], strict=True):
        real, imaginary = _loaded(stage, first.code), _loaded(stage, second.code)
        if real is None or imaginary is None or first.value is not second.value:
            return None
        source, target = _half(real.address), _half(first.address)
        is_pair = imaginary == replace(real, address=real.address.shifted(1))
        if source is None or target is None or not is_pair or second.address != first.address.shifted(1):
            return None
        stores.append(Store(first.value, target, parameter(len(leaves), I64)))
        leaves.append(Load(real.value, source, I64))
    return replace(stage, leaves=tuple(leaves), stores=tuple(stores))


def _loaded(stage: Stage, code: Expression) -> Load | None:
    """What `code` is, where it is a part that is read at every point."""
    if code.primitive is not Primitive.PARAMETER or not isinstance(code.attribute, int):
        return None
    leaf = stage.leaves[code.attribute] if code.attribute < len(stage.leaves) else None
    if not isinstance(leaf, Load) or not leaf.is_part or leaf.type is not F32 or leaf.mask is not None:
        return None
    return leaf


def _half(address: Affine) -> Affine | None:
    """An address of parts as one of elements; None where it is not known before the program runs."""
    if address.dynamic or address.offset % 2 or any(factor % 2 for _, factor in address.terms):
        return None
    return Affine(address.offset // 2, tuple((variable, factor // 2) for variable, factor in address.terms))
