"""Mistakes of communication are found when a function is traced, at the user's line; right functions pass."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import spmd.jax
from spmd import CollectiveError, UsageError
from spmd.jax import CommunicationWarning

W, X = np.ones(3, np.float32), np.ones((8, 3), np.float32)
AXES = {"data": 4}


@pytest.fixture(autouse=True)
def no_warning_passes() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", CommunicationWarning)
        yield


def loss(w: jax.Array, x: jax.Array) -> jax.Array:
    return ((x @ w - 1) ** 2).mean()


def traced(function: Callable[..., Any], *arguments: Any, **declared: Any) -> None:
    spmd.jax.jit(function, axes=AXES, **declared).lower(*arguments)


def forgotten(w: jax.Array, x: jax.Array) -> jax.Array:
    return w - 0.1 * jax.grad(loss)(w, x)


def meant(w: jax.Array, x: jax.Array) -> jax.Array:
    return w - 0.1 * jax.lax.pmean(jax.grad(loss)(w, x), "data")


def test_the_forgotten_mean() -> None:
    with pytest.raises(CollectiveError, match=r"test_checking.py:\d+.*result 0 must be the same") as raised:
        traced(forgotten, W, X, replicated=0, replicated_results=0)
    assert "argument 1" in str(raised.value)
    traced(forgotten, W, X)
    traced(meant, W, X, replicated="w", replicated_results=True)


def test_a_branch_that_some_processes_take() -> None:
    def step(x: jax.Array) -> jax.Array:
        return jax.lax.cond(jax.lax.axis_index("data") == 0, lambda: jax.lax.psum(x, "data"), lambda: x)

    with pytest.raises(CollectiveError, match=r"test_checking.py:\d+.*process 0 waits here for process 1"):
        traced(step, X)


def test_a_gradient_that_is_summed_twice() -> None:
    def step(w: jax.Array, x: jax.Array) -> jax.Array:
        mean = jax.lax.pmean(jax.grad(loss)(w, x), "data")
        return w - jax.lax.psum(mean, "data")

    with pytest.raises(CommunicationWarning, match="it is counted 4 times"):
        traced(step, W, X, replicated=0)


def dropout(key: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x, 0)


def test_dropout_of_one_key_for_data_that_differ() -> None:
    def own(key: jax.Array, x: jax.Array) -> jax.Array:
        return dropout(jax.random.fold_in(key, jax.lax.axis_index("data")), x)

    key = jax.random.key(0)
    with pytest.raises(CommunicationWarning, match="the same random numbers on all processes"):
        traced(dropout, key, X, replicated=0)
    traced(own, key, X, replicated=0)


def test_right_functions_pass() -> None:
    def adam(state: dict[str, Any], x: jax.Array) -> tuple[dict[str, Any], jax.Array]:
        value, g = jax.lax.pmean(jax.value_and_grad(loss)(state["w"], x), "data")
        m = 0.9 * state["m"] + 0.1 * g
        return {"w": state["w"] - 0.01 * m, "m": m}, value

    def normalized(w: jax.Array, x: jax.Array) -> jax.Array:
        def inner(w: jax.Array) -> jax.Array:
            mean = jax.lax.pmean(x.mean(0), "data")
            return (((x - mean) @ w) ** 2).mean()

        return w - jax.lax.pmean(jax.grad(inner)(w), "data")

    def until(x: jax.Array) -> jax.Array:
        norm = lambda x: jax.lax.psum((x**2).sum(), "data")  # noqa: E731
        return jax.lax.while_loop(lambda x: norm(x) > 1, lambda x: x / 2, x)

    def count(x: jax.Array) -> jax.Array:
        return jax.lax.psum(1, "data") * x

    traced(adam, {"w": W, "m": W}, X, replicated=0, replicated_results=True)
    traced(normalized, W, X, replicated=0, replicated_results=True)
    traced(until, X)
    traced(count, X)


def test_what_cannot_be_declared() -> None:
    with pytest.raises(UsageError, match="replicated"):
        spmd.jax.jit(meant, replicated=1.5)
    with pytest.raises(UsageError, match=r"^replicated has 'nope', which is no parameter"):
        traced(meant, W, X, replicated="nope")
    with pytest.raises(UsageError, match=r"^replicated has 7, which is no array among the 2 arguments"):
        traced(meant, W, X, replicated=7)
    with pytest.raises(UsageError, match="replicated_results has 1"):
        traced(meant, W, X, replicated_results=1)
