"""Functions that jax.jit has made as methods of a class, or that are bound to arguments: their static ones stay so."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import spmd

jax = pytest.importorskip("jax")

from jax import lax  # noqa: E402
from jax.sharding import NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import spmd.jax  # noqa: E402
from tests.jax_meshes import abstract_mesh  # noqa: E402

X = np.arange(3, dtype=np.float32)
CUT = NamedSharding(abstract_mesh((1,), ("a",)), P("a"))


class Walker:
    """An environment as gymnax has them, whose object is static."""

    def __init__(self, size: int) -> None:
        self.size = size

    @partial(jax.jit, static_argnames=("self",))
    def named(self, x: Any, y: Any = 1) -> Any:
        return self.size * x + y

    @partial(jax.jit, static_argnums=(0, 2))
    def numbered(self, x: Any, times: int) -> Any:
        return x * range(times)[-1] + self.size

    @partial(jax.jit, static_argnums=(0, -1))
    def last(self, x: Any, times: int) -> Any:
        return x * range(times)[-1]

    @partial(jax.jit, static_argnames=("self", "mode"))
    def chosen(self, x: Any, *, mode: str = "add") -> Any:
        return x + self.size if mode == "add" else x * self.size

    @partial(jax.jit, static_argnums=(0, 2))
    def powers(self, x: Any, *orders: int) -> Any:
        return x ** range(orders[0])[-1]

    @partial(jax.jit, static_argnums=0)
    def summed(self, x: Any) -> Any:
        return lax.psum(x, "processes") * self.size

    @partial(jax.jit, static_argnums=0, in_shardings=CUT)
    def cut(self, x: Any) -> Any:
        return x * self.size

    @classmethod
    @partial(jax.jit, static_argnums=0)
    def of_class(cls, x: Any) -> Any:
        return x * len(cls.__name__)

    @staticmethod
    @partial(jax.jit, static_argnames="times")
    def of_none(x: Any, times: int) -> Any:
        return x * range(times)[-1]

    @spmd.jax.jit
    @partial(jax.jit, static_argnames=("self",))
    def on_ranks(self, x: Any) -> Any:
        return x * self.size


class Runner(Walker):
    """Inherits all of them."""


CALLS: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...], dict[str, Any], Callable[[int], Any]]] = {
    "named": (lambda w: w.named, (X, X), {}, lambda n: n * X + X),
    "by name": (lambda w: w.named, (), {"y": X, "x": X}, lambda n: n * X + X),
    "default": (lambda w: w.named, (X,), {}, lambda n: n * X + 1),
    "numbered": (lambda w: w.numbered, (X, 5), {}, lambda n: 4 * X + n),
    "number by name": (lambda w: w.numbered, (X,), {"times": 5}, lambda n: 4 * X + n),
    "from the end": (lambda w: w.last, (X, 5), {}, lambda n: 4 * X),
    "keyword": (lambda w: w.chosen, (X,), {"mode": "multiply"}, lambda n: n * X),
    "keyword left out": (lambda w: w.chosen, (X,), {}, lambda n: n + X),
    "rest": (lambda w: w.powers, (X, 4), {}, lambda n: X**3),
    "collective": (lambda w: w.summed, (X,), {}, lambda n: n * X),
    "global view": (lambda w: w.cut, (X,), {}, lambda n: n * X),
    "of the class": (lambda w: w.of_class, (X,), {}, lambda n: 6 * X),
    "static method": (lambda w: w.of_none, (X,), {"times": 5}, lambda n: 4 * X),
    "partial": (lambda w: partial(w.numbered, times=5), (X,), {}, lambda n: 4 * X + n),
    "partial with another": (lambda w: partial(w.numbered, times=2), (X,), {"times": 5}, lambda n: 4 * X + n),
    "partial of the object": (lambda w: partial(type(w).numbered, w), (X, 5), {}, lambda n: 4 * X + n),
    "partial twice": (lambda w: partial(partial(w.numbered, X), times=5), (), {}, lambda n: 4 * X + n),
    "of the type": (lambda w: partial(spmd.jax.jit(type(w).named), w), (X, X), {}, lambda n: n * X + X),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", CALLS)
def test_methods_have_their_object_and_their_static_arguments(name: str) -> None:
    make, args, kwargs, expected = CALLS[name]
    for walker in (Walker(2), Runner(3)):
        method = make(walker)
        step = method if name == "of the type" else spmd.jax.jit(method)
        np.testing.assert_array_equal(step(*args, **kwargs), expected(walker.size))


def test_objects_have_programs_of_their_own() -> None:
    step = spmd.jax.jit(Walker.named)
    for size in (2, 3, 2):
        np.testing.assert_array_equal(step(Walker(size), X, 0), size * X)


def test_a_method_on_ranks_is_one_program_for_each_object() -> None:
    for walker in (Walker(2), Runner(3)):
        np.testing.assert_array_equal(walker.on_ranks(X), walker.size * X)


def test_methods_are_simulated_and_exported() -> None:
    many = spmd.jax.simulate(Walker(2).summed, axes={"processes": 2})
    np.testing.assert_array_equal(many(np.stack([X, X])), np.stack([4 * X, 4 * X]))
    module = spmd.jax.export(Walker(2).named, X, X, axes={"processes": 1})
    np.testing.assert_array_equal(spmd.compile(module)(X, X)[0], 3 * X)


def test_an_object_that_cannot_be_hashed_is_refused() -> None:
    class Unhashable(Walker):
        __hash__ = None  # type: ignore[assignment]

    with pytest.raises(spmd.UsageError, match="static argument 'self' is of type Unhashable, which cannot be hashed"):
        spmd.jax.jit(Unhashable(2).named)(X, X)


def test_static_values_of_other_types_are_others() -> None:
    """Though Python calls 2, 2.0 and True + True equal, as jax.jit does not."""
    step = spmd.jax.jit(lambda x, factor: x * factor, static_argnums=1)
    for factor in (2, 2.0, 2):
        assert step(np.arange(3), factor).dtype == (np.int32 if isinstance(factor, int) else np.float32)
