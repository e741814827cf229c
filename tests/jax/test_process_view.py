"""The view of one process means what jax.vmap with axis names means, derivatives included."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import spmd
from spmd.dialects.mesh_groups import given_groups
from tests.jax_programs import close

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import jax.scipy.sparse as jsp  # noqa: E402
from jax import lax  # noqa: E402

import spmd.jax  # noqa: E402

LINE, PLANE = {"i": 4}, {"a": 2, "b": 2}
RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
Function = Callable[..., Any]


def grad(function: Function) -> Function:
    return jax.grad(lambda x: function(x).sum())


def _loss(w: Any, x: Any) -> Any:
    return jnp.mean(jnp.tanh(x @ w) ** 2)


def _linear(shards: Any) -> Function:
    """A two-layer network, its hidden units spread over the axis."""

    @jax.custom_vjp
    def enter(x: Any) -> Any:
        return x

    enter.defvjp(lambda x: (x, None), lambda _, slope: (lax.psum(slope, "i"),))
    return lambda x: jnp.sin(enter(x) @ shards)


PROGRAMS: dict[str, tuple[dict[str, int], Function]] = {
    "psum": (LINE, lambda x: lax.psum(x, "i")),
    "pmean, pmax, pmin": (LINE, lambda x: (lax.pmean(x, "i"), lax.pmax(x, "i"), lax.pmin(jnp.int32(x * 9), "i"))),
    "psum of a constant": (LINE, lambda x: lax.psum(1, "i") * x),
    "gradient of psum": (LINE, grad(lambda x: lax.psum((x**2).sum(), "i"))),
    "gradient of pmean": (LINE, grad(lambda x: lax.pmean((x**2).sum(), "i"))),
    "gradient through psum": (LINE, grad(lambda x: lax.psum(jnp.sin(x), "i") * x)),
    "pmean of a gradient": (LINE, lambda x: lax.pmean(grad(lambda x: x**3)(x), "i")),
    "value and gradient": (LINE, lambda x: lax.pmean(jax.value_and_grad(_loss)(x.T, x), "i")),
    "ppermute": (LINE, lambda x: lax.ppermute(x, "i", RING)),
    "gradient of ppermute": (LINE, grad(lambda x: lax.ppermute(jnp.sin(x), "i", RING) * x)),
    "pshuffle": (LINE, lambda x: lax.pshuffle(x, "i", [3, 1, 0, 2])),
    "all_gather": (LINE, lambda x: lax.all_gather(x, "i", axis=1)),
    "gradient of all_gather": (LINE, grad(lambda x: jnp.sin(lax.all_gather(x, "i")) * x[0, 0])),
    "gradient of all_gather, tiled": (LINE, grad(lambda x: lax.all_gather(x, "i", axis=1, tiled=True) ** 2)),
    "psum_scatter": (LINE, lambda x: lax.psum_scatter(x, "i")),
    "gradient of psum_scatter": (LINE, grad(lambda x: lax.psum_scatter(x**2, "i") ** 2)),
    "gradient of psum_scatter, tiled": (LINE, grad(lambda x: lax.psum_scatter(x**2, "i", tiled=True) ** 2)),
    "all_to_all": (LINE, lambda x: lax.all_to_all(x, "i", 0, 1)),
    "gradient of all_to_all": (LINE, grad(lambda x: lax.all_to_all(x, "i", 0, 0) * jnp.sin(x))),
    "axis_index": (LINE, lambda x: lax.axis_index("i") * x),
    "axes of a plane": (PLANE, lambda x: (lax.psum(x, "a"), lax.pmax(x, "b"), lax.psum(x, ("a", "b")))),
    "indices of a plane": (PLANE, lambda x: (lax.axis_index("a"), lax.axis_index("b"), lax.axis_index(("a", "b")) * x)),
    "gradient in a plane": (PLANE, grad(lambda x: lax.psum(x * lax.psum(x**2, "b"), "a"))),
    "ppermute of one axis": (PLANE, lambda x: lax.ppermute(x, "b", [(0, 1), (1, 0)])),
    "jacobian": (LINE, jax.jacrev(lambda x: lax.psum(x.sum(0), "i"))),
    "hessian": (LINE, jax.hessian(lambda x: lax.psum(jnp.sin(x).sum(), "i"))),
    "forward mode": (LINE, lambda x: jax.jvp(lambda x: lax.all_gather(x, "i") ** 2, (x,), (x,))),
    "scan": (LINE, lambda x: lax.scan(lambda c, _: (lax.psum(c, "i") * 0.1, c.sum()), x, None, length=3)),
    "gradient of a scan": (LINE, grad(lambda x: lax.scan(lambda c, _: (lax.pmean(c**2, "i"), None), x, length=3)[0])),
    "while": (LINE, lambda x: lax.while_loop(lambda c: lax.psum(c.sum(), "i") < 99, lambda c: abs(c) * 2, abs(x))),
    "cond": (LINE, lambda x: lax.cond(lax.axis_index("i") > 1, lambda x: x * 2, lambda x: x - 1, x)),
    "vmap inside": (LINE, lambda x: jax.vmap(lambda row: lax.psum(row, "i"))(x)),
    "jit inside": (LINE, jax.jit(lambda x: lax.psum(x, "i"))),
    "checkpoint": (LINE, grad(jax.checkpoint(lambda x: jnp.sin(lax.psum(jnp.sin(x), "i"))))),
    "conjugate gradients": (LINE, lambda x: jsp.linalg.cg(lambda v: lax.pmean(v, "i") + 2 * v, x[0], maxiter=3)[0]),
    "gradient of a solve": (LINE, grad(lambda x: jsp.linalg.cg(lambda v: lax.psum(v, "i") + v, x[0], maxiter=3)[0])),
    "custom_vjp": (LINE, lambda x: grad(_linear(x))(x.T)),
    "random": (LINE, lambda x: x + jax.random.normal(jax.random.fold_in(jax.random.key(3), lax.axis_index("i")), (3,))),
    "batch normalization": (LINE, grad(lambda x: (x - lax.pmean(x.mean(0), "i")) ** 3 / lax.pmean(x.var(0), "i"))),
    "fft, linalg": (LINE, lambda x: (jnp.abs(jnp.fft.fft(x)), jnp.linalg.qr(lax.psum(x, "i"))[1] ** 2)),
    "attention": (LINE, grad(lambda x: jax.nn.dot_product_attention(*[lax.psum(x, "i").reshape(1, 4, 1, 3)] * 3))),
    "narrow types": (
        LINE,
        lambda x: (lax.psum(x.astype(jnp.int8), "i"), lax.all_gather(x.astype(jnp.float8_e4m3fn), "i").astype(x.dtype)),
    ),
    "bfloat16": (LINE, lambda x: lax.pmax(x.astype(jnp.bfloat16), "i")),
}  # fmt: skip


#: Four processes' arrays of 4 x 3.
STACKED = np.random.default_rng(0).normal(size=(4, 4, 3)).astype(np.float32)


@cache
def by_vmap(name: str) -> list[np.ndarray[Any, Any]]:
    """What a program gives on `STACKED`; jitted, so that one program is compiled in place of one for each op."""
    axes, function = PROGRAMS[name]
    for axis in reversed(axes):
        function = jax.vmap(function, axis_name=axis)
    results = jax.tree.leaves(jax.jit(function)(STACKED.reshape(*axes.values(), *STACKED.shape[1:])))
    return [np.asarray(result).reshape(-1, *result.shape[len(axes) :]) for result in results]


@pytest.mark.sampled(15)
@pytest.mark.parametrize("name", PROGRAMS)
def test_stacked_it_is_vmap(name: str) -> None:
    axes, function = PROGRAMS[name]
    results = jax.tree.leaves(spmd.jax.simulate(function, axes=axes)(STACKED))
    for mine, other in zip(results, by_vmap(name), strict=True):
        assert close(mine, other)


@pytest.mark.sampled(15)
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_process_for_itself_it_is_vmap(name: str) -> None:
    axes, function = PROGRAMS[name]
    executable = spmd.jax.jit(function, axes=axes).executable(STACKED[0])
    results = spmd.run_parallel(executable, inputs=[[array] for array in STACKED])
    for mine, other in zip(zip(*results, strict=True), by_vmap(name), strict=True):
        assert close(np.stack(mine), other)


def test_what_vmap_cannot_is_what_the_collectives_say() -> None:
    def function(x: Any) -> Any:
        gaps = lax.ppermute(x, "i", [(0, 3), (3, 1)])
        return gaps, lax.psum(x, "i", axis_index_groups=[[0, 2], [1, 3]])

    gaps, sums = spmd.jax.simulate(function, axes=LINE)(STACKED)
    zero = np.zeros_like(STACKED[0])
    np.testing.assert_array_equal(gaps, [zero, STACKED[3], zero, STACKED[0]])
    even, odd = STACKED[0] + STACKED[2], STACKED[1] + STACKED[3]
    np.testing.assert_allclose(sums, [even, odd, even, odd], rtol=1e-6)
    whole = spmd.jax.simulate(lambda x: lax.all_gather(x, ("a", "b")), axes=PLANE)(STACKED)
    np.testing.assert_array_equal(whole, [STACKED] * 4)


def test_rank_is_the_first_axis_major() -> None:
    indices = spmd.jax.simulate(lambda: lax.axis_index("a") * 10 + lax.axis_index("b"), axes={"a": 2, "b": 3})()
    assert indices.tolist() == [0, 1, 2, 10, 11, 12]


def test_thousands_of_processes_take_one_device() -> None:
    module = spmd.jax.jit(lambda x: lax.psum(x, "data"), axes={"data": 4096}).lower(np.zeros(3, np.float32))
    (reduce,) = [op for op in module.function("main").body.ops if op.name == "stablehlo.all_reduce"]
    assert given_groups(reduce, module).shape == (1, 4096)
    many = spmd.jax.simulate(lambda x: lax.psum(x, "data"), axes={"data": 4096})
    assert (many(np.arange(4096.0, dtype=np.float32)) == 4096 * 4095 / 2).all()


def test_rows_are_exchanged_in_the_numbers_that_the_program_computes() -> None:
    """jax.lax.ragged_all_to_all and its derivative: all rows of process i for process j, in the order of senders."""
    rng = np.random.default_rng(3)
    sizes = rng.integers(0, 3, (4, 4)).astype(np.int32)
    starts = np.cumsum(sizes, 1, dtype=np.int32) - sizes
    places = np.ascontiguousarray(np.cumsum(sizes, 0, dtype=np.int32) - sizes)
    rows = rng.normal(size=(4, 8, 2)).astype(np.float32)
    arrived, slope = np.zeros((4, 9, 2), np.float32), np.zeros_like(rows)
    for sender, receiver in np.ndindex(4, 4):
        count, start = sizes[sender, receiver], starts[sender, receiver]
        place, sent = places[sender, receiver], rows[sender, start : start + count]
        arrived[receiver, place : place + count] = sent
        slope[sender, start : start + count] = 2 * sent

    def exchange(x: Any, *told: Any) -> Any:
        return lax.ragged_all_to_all(x, jnp.zeros((9, 2), x.dtype), *told, axis_name="i")

    arguments = (rows, starts, sizes, places, np.ascontiguousarray(sizes.T))
    np.testing.assert_array_equal(spmd.jax.simulate(exchange, axes=LINE)(*arguments), arrived)
    gradient = jax.grad(lambda *each: (exchange(*each) ** 2).sum())
    np.testing.assert_array_equal(spmd.jax.simulate(gradient, axes=LINE)(*arguments), slope)
