"""Traversal of the equations of a jaxpr."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr

from spmd.support.arrays import Tree


def equations(jaxpr: Jaxpr) -> Iterator[Any]:
    """Yield all equations of `jaxpr`, including those of the functions that it calls."""
    for equation in jaxpr.eqns:
        yield equation
        yield from equations_within(equation.params)


def equations_within(params: Mapping[str, Tree]) -> Iterator[Any]:
    """Yield all equations of the functions among a primitive's parameters."""
    for value in params.values():
        for inner in value if isinstance(value, tuple | list) else (value,):
            if isinstance(inner, ClosedJaxpr):
                yield from equations(inner.jaxpr)
            elif isinstance(inner, Jaxpr):
                yield from equations(inner)
