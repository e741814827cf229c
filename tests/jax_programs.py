"""Programs as JAX lowers them under shard_map, with JAX's own results.

``python tests/jax_programs.py N FILE`` writes those of N devices; it runs by itself, since JAX takes the number of
devices when it is loaded.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

NAMES = [
    "psum", "pmean_pmax_pmin", "psum_bf16", "psum_two_axes", "psum_of_one_axis", "all_gather", "all_gather_tiled",
    "psum_scatter", "psum_scatter_inner", "ppermute_ring", "ppermute_partial", "all_to_all", "all_to_all_inner",
    "axis_index", "grouped_psum", "grouped_all_gather", "collective_matmul", "ring_attention", "pipeline",
    "halo_exchange", "summa", "training_step", "mixture_of_experts", "narrow_types",
]  # fmt: skip


@dataclass(frozen=True)
class JaxProgram:
    """A program's text, its global arguments, and the global results that JAX computes."""

    text: str
    arguments: list[np.ndarray[Any, Any]]
    results: list[np.ndarray[Any, Any]]


def export(devices: int, folder: Path) -> dict[str, JaxProgram]:
    """The programs for a number of devices; `folder` keeps them for others."""
    file = folder / f"jax-{devices}.pkl"
    if not file.exists():
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
        of_mpi = ("OMPI_", "PMIX_", "PRTE_")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(of_mpi)}
        environment |= {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
        subprocess.run([sys.executable, __file__, str(devices), str(file)], env=environment, check=True)
    exports: dict[str, JaxProgram] = {
        name: JaxProgram(*parts) for name, parts in pickle.loads(file.read_bytes()).items()
    }
    return exports


def close(actual: Any, expected: Any) -> bool:
    """Whether results agree as far as their type lets the order of additions matter."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return False
    if "int" in actual.dtype.name or actual.dtype == np.bool_:
        return bool((actual == expected).all())
    tolerance = {2: 2e-2, 1: 0.0}.get(actual.dtype.itemsize, 2e-5)
    return np.allclose(actual.astype(np.complex128), expected.astype(np.complex128), rtol=tolerance, atol=tolerance)


def _programs(n: int) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    import jax
    import jax.numpy as jnp
    from jax import lax
    from jax.sharding import Mesh
    from jax.sharding import PartitionSpec as P

    line = Mesh(np.array(jax.devices()), ("x",))
    plane = Mesh(np.array(jax.devices()).reshape(2, n // 2), ("a", "b"))
    rng = np.random.default_rng(0)
    ring = [(i, (i + 1) % n) for i in range(n)]
    programs: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}

    def normal(*shape: int) -> np.ndarray[Any, Any]:
        return rng.normal(size=shape).astype(np.float32)

    def program(name: str, mesh: Any, ins: Any, outs: Any, *arguments: Any) -> Callable[..., Any]:
        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            mapped = jax.shard_map(function, mesh=mesh, in_specs=ins, out_specs=outs, check_vma=False)
            programs[name] = mapped, arguments
            return function

        return add

    program("psum", line, P("x"), P(), normal(2 * n, 3))(lambda x: lax.psum(x, "x"))
    program("pmean_pmax_pmin", line, P("x"), P(), normal(2 * n, 3))(
        lambda x: (lax.pmean(x, "x"), lax.pmax(x, "x"), lax.pmin(jnp.int32(x * 10), "x"))
    )
    program("psum_bf16", line, P("x"), P(), normal(n, 8).astype(jnp.bfloat16))(lambda x: lax.psum(x, "x"))
    program("psum_two_axes", plane, P("a", "b"), P(), normal(4, 2 * n))(lambda x: lax.psum(x, ("a", "b")))
    program("psum_of_one_axis", plane, P("a", "b"), P(None, "b"), normal(4, 2 * n))(lambda x: lax.psum(x, "a"))
    program("all_gather", line, P("x"), P("x"), normal(2 * n, 3))(lambda x: lax.all_gather(x, "x"))
    program("all_gather_tiled", plane, P("a", "b"), P("a", "b"), normal(4, 2 * n))(
        lambda x: lax.all_gather(x, "b", axis=1, tiled=True)
    )
    program("psum_scatter", line, P("x"), P("x"), normal(n * n, 3))(lambda x: lax.psum_scatter(x, "x"))
    program("psum_scatter_inner", plane, P("a", "b"), P("a", "b"), normal(4, n * n))(
        lambda x: lax.psum_scatter(x, "b", scatter_dimension=1, tiled=True)
    )
    program("ppermute_ring", line, P("x"), P("x"), normal(n, 3))(lambda x: lax.ppermute(x, "x", ring))
    program("ppermute_partial", line, P("x"), P("x"), normal(n, 3))(
        lambda x: lax.ppermute(x, "x", [(0, n - 1), (1, 1), (n - 1, 0)])
    )
    program("all_to_all", line, P("x"), P("x"), normal(n * n, 3))(lambda x: lax.all_to_all(x, "x", 0, 0))
    program("all_to_all_inner", plane, P("a", "b"), P("a", "b"), normal(n, n * n))(
        lambda x: lax.all_to_all(x, "b", 1, 0, tiled=True)
    )
    program("axis_index", plane, (), P(("a", "b")))(
        lambda: (lax.axis_index("a") * 10 + lax.axis_index(("a", "b"))).reshape(1)
    )
    halves = [list(range(0, n, 2)), list(range(1, n, 2))]
    program("grouped_psum", line, P("x"), P("x"), normal(n, 3))(lambda x: lax.psum(x, "x", axis_index_groups=halves))
    program("grouped_all_gather", line, P("x"), P("x"), normal(n, 3))(
        lambda x: lax.all_gather(x, "x", axis_index_groups=[half[::-1] for half in halves], tiled=True)
    )

    @program("collective_matmul", line, (P("x"), P(None, "x")), P(None, "x"), normal(2 * n, 5), normal(5, 2 * n))
    def collective_matmul(x: Any, w: Any) -> Any:
        def body(k: Any, carry: Any) -> Any:
            out, x = carry
            out = lax.dynamic_update_slice(out, x @ w, ((lax.axis_index("x") - k) % n * 2, 0))
            return out, lax.ppermute(x, "x", ring)

        return lax.fori_loop(0, n, body, (jnp.zeros((2 * n, w.shape[1])), x))[0]

    @program("ring_attention", line, (P("x"),) * 3, P("x"), *(normal(4 * n, 4) for _ in range(3)))
    def ring_attention(q: Any, k: Any, v: Any) -> Any:
        def body(_: Any, carry: Any) -> Any:
            most, total, out, k, v = carry
            scores = q @ k.T
            now = jnp.maximum(most, scores.max(-1))
            weights, fade = jnp.exp(scores - now[:, None]), jnp.exp(most - now)
            total, out = total * fade + weights.sum(-1), out * fade[:, None] + weights @ v
            return now, total, out, lax.ppermute(k, "x", ring), lax.ppermute(v, "x", ring)

        start = jnp.full(q.shape[:1], -jnp.inf), jnp.zeros(q.shape[:1]), jnp.zeros_like(q), k, v
        _, total, out, _, _ = lax.fori_loop(0, n, body, start)
        return out / total[:, None]

    @program("pipeline", line, (P("x"), P()), P(), normal(n, 4, 4), normal(5, 3, 4))
    def pipeline(w: Any, batches: Any) -> Any:
        stage, many = lax.axis_index("x"), batches.shape[0]

        def step(t: Any, carry: Any) -> Any:
            waiting, outs = carry
            stage_input = jnp.where(stage == 0, batches[jnp.clip(t, 0, many - 1)], waiting)
            stage_output = jnp.tanh(stage_input @ w[0])
            place = (jnp.clip(t - n + 1, 0, many - 1), 0, 0)
            done = (stage == n - 1) & (t >= n - 1)
            outs = jnp.where(done, lax.dynamic_update_slice(outs, stage_output[None], place), outs)
            return lax.ppermute(stage_output, "x", ring[:-1]), outs

        _, outs = lax.fori_loop(0, many + n - 1, step, (jnp.zeros(batches.shape[1:]), jnp.zeros_like(batches)))
        return lax.psum(jnp.where(stage == n - 1, outs, 0), "x")

    @program("halo_exchange", line, P("x"), P("x"), normal(8 * n))
    def halo_exchange(x: Any) -> Any:
        left = lax.ppermute(x[-1:], "x", ring)
        right = lax.ppermute(x[:1], "x", [(b, a) for a, b in ring])
        padded = jnp.concatenate([left, x, right])
        return (padded[:-2] + padded[1:-1] + padded[2:]) / 3

    @program("summa", plane, (P("a", "b"),) * 2, P("a", "b"), normal(2 * n, 2 * n), normal(2 * n, 2 * n))
    def summa(x: Any, y: Any) -> Any:
        return lax.all_gather(x, "b", axis=1, tiled=True) @ lax.all_gather(y, "a", axis=0, tiled=True)

    @program("training_step", line, (P(), P("x")), (P(), P()), normal(8, 3), normal(2 * n, 8))
    def training_step(w: Any, x: Any) -> Any:
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)
        return lax.pmean(loss, "x"), w - 0.1 * lax.pmean(gradient, "x")

    @program("mixture_of_experts", line, (P("x"), P("x")), P("x"), normal(n * n, 4), normal(n, 4, 4))
    def mixture_of_experts(x: Any, w: Any) -> Any:
        there = lax.all_to_all(x.reshape(n, 1, 4), "x", 0, 0)
        return lax.all_to_all(jnp.einsum("abd,de->abe", there, w[0]), "x", 0, 0).reshape(n, 4)

    small = (normal(n, 4) * 3).astype(np.int8).astype(jnp.int4), normal(n, 4).astype(jnp.float8_e4m3fn)
    program("narrow_types", line, (P("x"), P("x")), (P("x"), P("x")), *small)(
        lambda x, y: (lax.all_gather(x, "x", tiled=True), lax.ppermute(y, "x", ring))
    )
    return programs


def _main() -> None:
    import jax

    devices, file = int(sys.argv[1]), Path(sys.argv[2])
    exported = {}
    for name, (function, arguments) in _programs(devices).items():
        jitted = jax.jit(function)
        results = [np.asarray(leaf) for leaf in jax.tree.leaves(jitted(*arguments))]
        exported[name] = jitted.lower(*arguments).as_text(), [np.asarray(a) for a in arguments], results
    file.write_bytes(pickle.dumps(exported))


if __name__ == "__main__":
    _main()
