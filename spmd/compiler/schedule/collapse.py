"""Merges adjacent loops whose accesses are contiguous.

Two neighbouring loops are merged if every affine form that depends on them advances through the inner one and on to the
next iteration of the outer one with a uniform stride.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from spmd.analysis.affine import Affine, Variable
from spmd.compiler.schedule.nest import Leaf, Load, LoopReduction, Nest, Position, Stage, Store, Update


def collapse(nest: Nest, separate: Collection[Variable] = ()) -> Nest:
    """Return `nest` with as few loops as its addresses allow; those in `apart` are not merged."""
    if len(nest.extents) < 2:
        return nest
    forms = {form for stage in nest.stages for form in stage.forms()}
    roles = [(variable in separate, *_role(nest, variable)) for variable in range(len(nest.extents))]
    extents = list(nest.extents)
    gone: set[Variable] = set()
    inner = len(extents) - 1
    for outer in range(inner - 1, -1, -1):
        alike = roles[outer] == roles[inner]
        if alike and all(form.coefficient(outer) == form.coefficient(inner) * extents[inner] for form in forms):
            # The inner loop continues where the next iteration of the outer one starts.
            extents[inner] *= extents[outer]
            gone.add(outer)
            forms = {_without(form, {outer}) for form in forms}
        else:
            inner = outer
    return _rewritten(nest, extents, gone) if gone else nest


def _role(nest: Nest, variable: Variable) -> tuple[object, ...]:
    """Return the role of a loop in each stage."""
    return (
        variable in nest.outer,
        *((variable in s.loops, variable in s.reduced, variable in s.independent) for s in nest.stages),
    )


def _without(form: Affine, gone: set[Variable]) -> Affine:
    return Affine(form.offset, tuple((v, c) for v, c in form.terms if v not in gone), form.dynamic)


def _rewritten(nest: Nest, extents: list[int], gone: set[Variable]) -> Nest:
    """Return the nest without the variables in `gone`, merged into loops with the given `extents`."""

    def leaf(old: Leaf) -> Leaf:
        if isinstance(old, Load):
            return replace(old, address=_without(old.address, gone))
        return Position(_without(old.form, gone))

    def store(old: Store) -> Store:
        return replace(old, address=_without(old.address, gone))

    def reduction(old: LoopReduction) -> LoopReduction:
        return replace(old, stores=tuple(map(store, old.stores)))

    def update(old: Update) -> Update:
        return replace(old, writes=tuple((value, _without(at, gone), code) for value, at, code in old.writes))

    def stage(old: Stage) -> Stage:
        return Stage(
            tuple(map(leaf, old.leaves)),
            tuple(v for v in old.loops if v not in gone),
            tuple(v for v in old.reduced if v not in gone),
            tuple(map(store, old.stores)),
            tuple(map(reduction, old.reductions)),
            tuple(map(update, old.updates)),
            old.independent - gone,
        )

    return Nest(tuple(extents), tuple(map(stage, nest.stages)), tuple(v for v in nest.outer if v not in gone))
