"""Mutable arrays, jax.Ref: made within, given as arguments, and taken from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import spmd

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import spmd.jax  # noqa: E402
from tests.jax_meshes import abstract_mesh  # noqa: E402

X = np.arange(3, dtype=np.float32)


def equal(mine: Any, other: Any) -> None:
    assert jax.tree.structure(mine) == jax.tree.structure(other)
    jax.tree.map(np.testing.assert_array_equal, mine, other)


def in_order(ref: Any, x: Any) -> Any:
    before = ref[0]
    ref[0] = 5.0
    ref[...] += x
    return {"before": before, "after": ref[1:]}


def in_scan(ref: Any, x: Any) -> Any:
    def body(total: Any, each: Any) -> Any:
        ref[0] += each
        ref[1:] = 2 * ref[1:]
        return total + ref[0], ref[1]

    return lax.scan(body, 0.0, x)


def in_branches(ref: Any, x: Any) -> Any:
    def changed() -> None:
        ref[0] = 7.0

    lax.cond(x[1] > 0, changed, lambda: None)
    lax.cond(x[1] < 0, changed, lambda: ref.__setitem__(1, x[2]))
    return x


def in_while(ref: Any, x: Any) -> Any:
    def body(at: Any) -> Any:
        ref[at] += x[at]
        return at + 1

    return lax.while_loop(lambda at: at < 3, body, 0)


def in_inner_jit(ref: Any, x: Any) -> Any:
    @jax.jit
    def inner(ref: Any, x: Any) -> None:
        ref[...] += x

    inner(ref, x)
    inner(ref, 2 * x)


FUNCTIONS = [in_order, in_scan, in_branches, in_while, in_inner_jit]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_ref_is_an_argument_that_has_a_new_value(function: Callable[..., Any]) -> None:
    """Call after call, as under jax.jit."""
    step, own = spmd.jax.jit(function), jax.jit(function)
    mine, other = jax.new_ref(jnp.ones(3)), jax.new_ref(jnp.ones(3))
    for _ in range(3):
        equal(step(mine, X), own(other, X))
        equal(mine[...], other[...])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_ref_is_made_within(function: Callable[..., Any]) -> None:
    def complete(x: Any) -> Any:
        ref = jax.new_ref(2 * x)
        return function(ref, x), jax.freeze(ref)

    equal(spmd.jax.jit(complete)(X), jax.jit(complete)(X))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_ref_is_taken_from_outside(function: Callable[..., Any]) -> None:
    mine, other = jax.new_ref(jnp.ones(3)), jax.new_ref(jnp.ones(3))
    step, own = spmd.jax.jit(lambda x: function(mine, x)), jax.jit(lambda x: function(other, x))
    for _ in range(3):
        equal(step(X), own(X))
        equal(mine[...], other[...])


def test_refs_lie_in_trees_beside_those_from_outside() -> None:
    calls = jax.new_ref(jnp.zeros((), jnp.int32))

    def function(x: Any, *, state: Any) -> Any:
        calls[...] += 1
        state["sum"][...] += lax.psum(x, "processes")
        return state["scale"] * state["sum"][...]

    step, state = spmd.jax.jit(function), {"sum": jax.new_ref(jnp.zeros(3)), "scale": 2}
    for count in range(1, 4):
        equal(step(X, state=state), 2 * count * X)
        assert calls[...] == count
    equal(state["sum"][...], 3 * X)


def test_each_simulated_process_has_its_row_of_a_ref() -> None:
    many = spmd.jax.simulate(lambda ref, x: in_order(ref, lax.psum(x, "processes")), axes={"processes": 2})
    ref = jax.new_ref(jnp.stack([jnp.ones(3), jnp.zeros(3)]))
    equal(many(ref, np.stack([X, X]))["before"], np.array([1, 0], np.float32))
    equal(ref[...], np.array([[5, 3, 5], [5, 2, 4]], np.float32))
    with pytest.raises(spmd.UsageError, match=r"ref is a jax.Ref .* leading axis of all 2 processes"):
        many(jax.new_ref(jnp.ones((1, 3))), np.stack([X, X]))


def test_what_gives_a_nan_leaves_a_ref_as_it_was() -> None:
    def function(ref: Any) -> None:
        ref[...] = jnp.log(ref[...] - 2)

    ref = jax.new_ref(jnp.ones(3))
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match=r"test_refs.py:\d+: .* encountered in log"):
        spmd.jax.jit(function)(ref)
    equal(ref[...], np.ones(3, np.float32))


def test_refs_where_jit_is_disabled() -> None:
    ref = jax.new_ref(jnp.ones(3))
    with jax.disable_jit():
        spmd.jax.jit(in_order)(ref, X)
    equal(ref[...], np.array([5, 2, 3], np.float32))


def test_an_exported_program_takes_and_gives_the_value() -> None:
    module = spmd.jax.export(in_order, jax.new_ref(jnp.ones(3)), X, axes={"processes": 1})
    after, before, value = spmd.compile(module)(np.ones(3, np.float32), X)
    equal((after, before, value), (np.array([2, 3], np.float32), np.float32(1), np.array([5, 2, 3], np.float32)))


def test_a_ref_is_given_once() -> None:
    ref = jax.new_ref(jnp.ones(3))
    for function, args in ((lambda a, b: a[...] + b[...], (ref, ref)), (lambda a: a[...] + ref[...], (ref,))):
        with pytest.raises(spmd.UsageError, match=r"a jax\.Ref is given twice, or is closed over, too"):
            spmd.jax.jit(function)(*args)


def test_the_global_view_takes_no_refs() -> None:
    cut = NamedSharding(abstract_mesh((1,), ("a",)), P("a"))
    ref = jax.new_ref(jnp.ones(3))
    for function, args in (
        (jax.jit(lambda ref, x: ref[...] + x, in_shardings=(None, cut)), (ref, X)),
        (jax.jit(lambda x: ref[...] + x, in_shardings=cut), (X,)),
    ):
        with pytest.raises(spmd.UsageError, match=r"of the global view, which takes no jax\.Ref"):
            spmd.jax.jit(function)(*args)
