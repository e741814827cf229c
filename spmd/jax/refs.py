"""Mutable arrays, jax.Ref: a program takes their values, and returns their final values."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr
from jax.ref import AbstractRef, Ref

from spmd.jax.equations import equations
from spmd.support.arrays import Tree, UserFunction


def of_values(function: UserFunction, places: Sequence[int]) -> UserFunction:
    """Return `function` for values instead of refs, the leaves `places` of (args, kwargs).

    It returns the results, and a list of the refs' final values.
    """

    @functools.wraps(function)
    def complete(*args: Tree, **kwargs: Tree) -> tuple[Tree, list[Tree]]:
        tree: Tree
        leaves, tree = jax.tree.flatten((args, kwargs))
        given = [jax.new_ref(leaves[place]) for place in places]
        for place, ref in zip(places, given, strict=True):
            leaves[place] = ref
        all_args, all_kwargs = tree.unflatten(leaves)
        results = function(*all_args, **all_kwargs)
        return results, [ref[...] for ref in given]

    return complete


def closed_over(jaxpr: ClosedJaxpr) -> tuple[Ref, ...]:
    """Return the refs that a traced function closes over."""
    return tuple(constant for constant in jaxpr.consts if isinstance(constant, Ref))


def with_closed_over(
    jaxpr: ClosedJaxpr,
    axes: Sequence[tuple[str, int]],
    args: tuple[Tree, ...],
    kwargs: Mapping[str, Tree],
    values: Sequence[Tree],
) -> ClosedJaxpr:
    """Return the traced function with `values`, those of the closed-over refs, as additional arguments and results."""

    def complete(leaves: Sequence[Tree], values: Sequence[Tree]) -> tuple[list[Tree], list[Tree]]:
        given = [jax.new_ref(value) for value in values]
        rest = iter(given)
        constants = [next(rest) if isinstance(constant, Ref) else constant for constant in jaxpr.consts]
        results = jax.core.eval_jaxpr(jaxpr.jaxpr, constants, *leaves)
        return results, [ref[...] for ref in given]

    return jax.make_jaxpr(complete, axis_env=axes)(jax.tree.leaves((args, kwargs)), values)


def without_refs(jaxpr: ClosedJaxpr, axes: Sequence[tuple[str, int]]) -> ClosedJaxpr:
    """Return the traced function with values passed on instead of the refs created inside."""
    made = (var.aval for equation in equations(jaxpr.jaxpr) for var in equation.outvars)
    if not any(isinstance(aval, AbstractRef) for aval in made):
        return jaxpr
    # Imported late: private to JAX, and not needed by functions without refs.
    from jax._src.state import discharge

    discharge_state: Any = discharge.discharge_state  # of other signatures in other releases
    given: list[ClosedJaxpr] = []

    def within() -> tuple[()]:
        if jax.__version_info__ < (0, 10, 2):
            given.append(ClosedJaxpr(*discharge_state(jaxpr.jaxpr, jaxpr.consts)))
        else:
            given.append(discharge_state(jaxpr))
        return ()

    jax.make_jaxpr(within, axis_env=axes)()
    return given[0]
