"""Under jax_disable_jit functions run in Python, op by op, and collectives communicate as ever."""

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

ONE = {"processes": 1}
X = np.array([1, 2], np.float32)


def same(mine: Any, other: Any) -> None:
    assert jax.tree.structure(mine) == jax.tree.structure(other)
    for ours, theirs in zip(jax.tree.leaves(mine), jax.tree.leaves(other), strict=True):
        assert type(ours) is type(theirs) and ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_each_call_runs_the_function_on_values() -> None:
    """Python can branch on them, and print them; results are those of the compiled function."""
    seen: list[Any] = []

    def function(x: Any, *, twice: bool) -> Any:
        if jax.config.jax_disable_jit:
            assert x[0] > 0 and np.asarray(x).shape == (2,) and x.tolist() == [1, 2]
            seen.append((float(x[0]), int(x[1]), f"{x[0]:.1f}", str(x)))
        y = lax.psum(jnp.sin(x), "processes") + lax.axis_index("processes")
        return {"y": y * 2 if twice else y, "n": 3, "none": None}

    step = spmd.jax.jit(function, axes=ONE, static_argnames="twice")
    want = step(X, twice=True)
    with jax.disable_jit():
        for _ in range(2):
            same(step(X, twice=True), want)
    assert seen == [(1, 2, "1.0", "[1. 2.]")] * 2
    same(step(X, twice=True), want)
    assert len(seen) == 2


def test_derivatives_and_control_flow_run_in_python() -> None:
    def function(x: Any) -> Any:
        def loss(x: Any) -> Any:
            total, _ = lax.scan(lambda sum, each: (sum + each**2, None), 0.0, x)
            return lax.pmean(jax.nn.relu(total), "processes")

        counted = lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, lax.psum(s[1], "processes")), (0, x))
        chosen = lax.cond(lax.axis_index("processes") == 0, lambda: lax.psum(x, "processes"), lambda: -x)
        kept = jax.grad(lambda x: jax.checkpoint(lambda x: lax.psum(jnp.sin(x), "processes"))(x).sum())(x)
        return jax.value_and_grad(loss)(x), counted, chosen, kept

    step = spmd.jax.jit(function, axes=ONE)
    want = step(X)
    with jax.disable_jit():
        same(step(X), want)


def test_loops_in_python_run_until_a_value_says_so() -> None:
    def function(x: Any) -> Any:
        while lax.pmax(x, "processes")[0] < 5:
            x = 2 * x + 3
        return x[x > 6]

    with jax.disable_jit():
        assert spmd.jax.jit(function, axes=ONE)(X).tolist() == [7]


def collectives(x: Any, scale: Any) -> Any:
    keys = jax.random.split(jax.random.fold_in(jax.random.key(0), lax.axis_index("b")))
    return (
        lax.psum(x, "a") * scale + lax.axis_index("b"),
        lax.all_gather(x, ("a", "b"), tiled=True),
        lax.ppermute(x, "b", [(0, 1)]),
        lax.psum(x, "b", axis_index_groups=[[0, 2, 1]]),
        jax.grad(lambda x: (lax.all_gather(jnp.tanh(x), "b") ** 2).sum())(x),
        jax.vmap(lambda each: lax.pmean(each, "a"))(x),
        jax.random.normal(keys[0], (2,)),
        lax.psum(jnp.ones(2), "b"),
    )


def test_simulated_functions_run_op_by_op_for_all_processes_at_once() -> None:
    calls = 0

    def function(x: Any, scale: Any) -> Any:
        nonlocal calls
        calls += 1
        return collectives(x, scale)

    many = spmd.jax.simulate(function, axes={"a": 2, "b": 3})
    x, scale = np.arange(24, dtype=np.float32).reshape(6, 4), np.full((1, 4), 2, np.float32)
    want, before = many(x, scale), calls
    with jax.disable_jit():
        for _ in range(2):
            same(many(x, scale), want)
        same(many(x, 2.0), want)
    assert calls == before + 3


def test_python_does_not_branch_on_what_differs_between_processes() -> None:
    many = spmd.jax.simulate(lambda x: x * float(x[0]), axes={"a": 2})
    with jax.disable_jit(), pytest.raises(spmd.UsageError, match="no one value in Python"):
        many(np.stack([X, X]))


def shard_mapped(x: Any) -> Any:
    return jax.shard_map(lambda x: lax.psum(x, "a"), mesh=abstract_mesh((1,), ("a",)), in_specs=P("a"), out_specs=P())(
        x
    )


def constrained(x: Any) -> Any:
    return lax.with_sharding_constraint(x, NamedSharding(abstract_mesh((1,), ("a",)), P("a")))


def sharded() -> Any:
    return jax.jit(lambda x: x + 1, in_shardings=NamedSharding(abstract_mesh((1,), ("a",)), P("a")))


@pytest.mark.parametrize("make", [lambda: shard_mapped, lambda: constrained, sharded])
def test_the_global_view_is_refused(make: Callable[[], Any]) -> None:
    with jax.disable_jit(), pytest.raises(spmd.UsageError, match="of the global view, which does not run op by op"):
        spmd.jax.jit(make())(X)


def test_an_axis_that_is_not_there_is_told_with_those_that_are() -> None:
    step = spmd.jax.jit(lambda x: lax.psum(x, "q"), axes=ONE)
    with (
        jax.disable_jit(),
        pytest.raises(spmd.UsageError, match=r"test_op_by_op.py:\d+: .* axis q; .* processes \(1\)"),
    ):
        step(X)


def test_nan_stops_where_it_comes_up() -> None:
    """Whether or not it reaches a result."""
    step = spmd.jax.jit(lambda x: lax.psum(jnp.where(x > 1, jnp.log(x - 1.5), 0), "processes"), axes=ONE)
    place = r"test_op_by_op.py:\d+: invalid value \(nan\) encountered in log"
    with jax.disable_jit(), jax.debug_nans(True), pytest.raises(FloatingPointError, match=place):
        step(X)


def test_programs_are_compiled_all_the_same() -> None:
    step = spmd.jax.jit(lambda x: jnp.sin(x), axes=ONE)
    with jax.disable_jit():
        np.testing.assert_allclose(step.executable(X)(X)[0], np.sin(X), rtol=1e-6)
