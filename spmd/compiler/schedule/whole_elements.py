"""Moves of complex elements: one 64-bit value instead of two 32-bit parts."""

from __future__ import annotations

from dataclasses import replace

from spmd.analysis.affine import Affine
from spmd.analysis.scalar.expression import F32, I64, Expression, Primitive, parameter
from spmd.compiler.schedule.nest import Load, Nest, Stage, Store


def with_whole_moves(nest: Nest) -> Nest:
    """Return `nest` with 64-bit moves if it only copies complex elements of 32-bit parts at static addresses; else
    `nest`.
    """
    stages = tuple(map(_whole, nest.stages))
    return replace(nest, stages=tuple(stage for stage in stages if stage is not None)) if all(stages) else nest


def _whole(stage: Stage) -> Stage | None:
    """Return `stage` with 64-bit moves; None if it does more than copy elements."""
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
    """Return the unmasked load of a complex part that `code` is; None if it is anything else."""
    if code.primitive is not Primitive.PARAMETER or not isinstance(code.attribute, int):
        return None
    leaf = stage.leaves[code.attribute] if code.attribute < len(stage.leaves) else None
    if not isinstance(leaf, Load) or not leaf.is_part or leaf.type is not F32 or leaf.mask is not None:
        return None
    return leaf


def _half(address: Affine) -> Affine | None:
    """Return the address of a part as one of whole elements; None if it is dynamic or odd."""
    if address.dynamic or address.offset % 2 or any(factor % 2 for _, factor in address.terms):
        return None
    return Affine(address.offset // 2, tuple((variable, factor // 2) for variable, factor in address.terms))
