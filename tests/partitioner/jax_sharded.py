"""Programs that JAX lowers with shardings on 8 devices, JAX's results, and what XLA's own partitioned program sends.

``python tests/partitioner/jax_sharded.py FILE NAME...`` writes those of these names; it runs by itself, since JAX takes
the number of devices when it is loaded. The results are those of the program without shardings.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from spmd.support.arrays import Array

DEVICES = 8


@dataclass(frozen=True)
class ShardedProgram:
    """A program's text, its global arguments and results, and the bytes a process sends in XLA's version."""

    text: str
    arguments: list[Array]
    results: list[Array]
    xla_bytes: int


def export(folder: Path, names: Sequence[str]) -> dict[str, ShardedProgram]:
    """Return the programs of these names, made by a JAX of its own; `folder` keeps them."""
    file = folder / "jax-sharded.pkl"
    if not file.exists():
        environment = dict(os.environ) | {
            "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}",
            "JAX_PLATFORMS": "cpu",
        }
        subprocess.run([sys.executable, __file__, str(file), *names], env=environment, check=True)
    return {name: ShardedProgram(*parts) for name, parts in pickle.loads(file.read_bytes()).items()}


# --- bytes of a compiled program -------------------------------------------------------------------------------------

_WIDTHS = {"f32": 4, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "pred": 1, "s8": 1, "u8": 1, "c64": 8}
_COLLECTIVE = re.compile(r"= (.*?) (all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)(-start)?\(")


def sent_bytes(compiled: str) -> int:
    """Bytes that a process sends in the collectives of XLA's text, by the same formulas as partitioner/report.py."""
    total = 0
    for line in compiled.splitlines():
        match_ = _COLLECTIVE.search(line)
        if match_ is None:
            continue
        size, count = _size(match_.group(1)), _group(line)
        total += {
            "all-gather": size * (count - 1) // count,
            "all-reduce": 2 * size * (count - 1) // count,
            "reduce-scatter": size * (count - 1),
            "all-to-all": size * (count - 1) // count,
            "collective-permute": size,
        }[match_.group(2)]
    return total


def _size(text: str) -> int:
    parts = re.findall(r"(\w+)\[([\d,]*)\]", text)
    return sum(_WIDTHS[kind] * prod(int(n) for n in shape.split(",") if n) for kind, shape in parts if kind in _WIDTHS)


def _group(line: str) -> int:
    if groups := re.search(r"replica_groups=\{\{([\d,]+)\}", line):
        return len(groups.group(1).split(","))
    if groups := re.search(r"replica_groups=\[\d+,(\d+)\]", line):
        return int(groups.group(1))
    if groups := re.search(r"replica_groups=mesh\[(.*?)\] \{(.*?)\}", line):
        sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", groups.group(1))}
        named = re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", groups.group(2))
        return prod(int(part) if part else sizes[name] for name, part in named)
    return DEVICES


# --- the programs ----------------------------------------------------------------------------------------------------


def _programs() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...], Any, Any]]:
    """Functions with their arguments, argument specs, mesh, and result specs or None."""
    import jax
    import jax.numpy as jnp
    from jax import lax
    from jax.sharding import AxisType, NamedSharding
    from jax.sharding import PartitionSpec as P

    def mesh(shape: tuple[int, ...], names: tuple[str, ...]) -> Any:
        return jax.make_mesh(shape, names, axis_types=(AxisType.Auto,) * len(shape))

    line, plane, cube = mesh((8,), ("x",)), mesh((4, 2), ("x", "y")), mesh((2, 2, 2), ("x", "y", "z"))
    rng = np.random.default_rng(0)
    table: dict[str, Any] = {}

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape, np.float32)

    def words(limit: int, *shape: int) -> Array:
        return rng.integers(0, limit, shape).astype(np.int32)

    def add(name: str, function: Any, arguments: Any, specs: Any, where: Any = line, results: Any = None) -> None:
        table[name] = function, arguments, specs, where, results

    def keep(x: Any, where: Any, *spec: Any) -> Any:
        return lax.with_sharding_constraint(x, NamedSharding(where, P(*spec)))

    def dot(a: Any, b: Any) -> Any:
        return a @ b

    a, b, m = normal(32, 64), normal(64, 16), normal(16, 32)
    add("rows", dot, (a, b), (P("x"), P()))
    add("contracted", dot, (a, b), (P(None, "x"), P("x")))
    add("half_contracted", dot, (a, b), (P(None, "x"), P()))
    add("both_rows", dot, (a, b), (P("x"), P("x")))
    add("plane", dot, (a, b), (P("x", "y"), P("y")), plane)
    add("plane_crossed", dot, (a, b), (P("y", "x"), P("x", "y")), plane, P("x", "y"))
    add("cube", dot, (a, b), (P("x", ("y", "z")), P(("y", "z"))), cube, P("x", "y"))

    def mlp(x: Any, up: Any, down: Any) -> Any:
        return jax.nn.relu(x @ up) @ down

    x, up, down = normal(32, 64), normal(64, 128), normal(128, 64)
    add("megatron", mlp, (x, up, down), (P("x"), P(None, "y"), P("y")), plane, P("x"))
    add("fully_sharded", mlp, (x, up, down), (P("x"), P("x"), P("x")), line, P("x"))

    def loss(up: Any, down: Any, x: Any) -> Any:
        return (mlp(x, up, down) ** 2).mean()

    gradients = jax.grad(loss, argnums=(0, 1))
    add("data_gradients", gradients, (up, down, x), (P(), P(), P("x")), line, (P(), P()))
    add("sharded_gradients", gradients, (up, down, x), (P("x"), P("x"), P("x")), line, (P("x"), P("x")))
    add("tensor_gradients", gradients, (up, down, x), (P(None, "y"), P("y"), P("x")), plane, (P(None, "y"), P("y")))

    def attention(q: Any, k: Any, v: Any) -> Any:
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8, -1)
        return jnp.einsum("bhqk,bkhd->bqhd", weights, v)

    qkv = (normal(4, 16, 8, 8),) * 3
    add("attention_heads", attention, qkv, (P(None, None, "x"),) * 3)
    add("attention_sequence", attention, qkv, (P(None, "x"),) * 3)
    add("attention_gradients", jax.grad(lambda *t: attention(*t).sum()), qkv, (P("x", None, "y"),) * 3, plane)

    def norm(x: Any, gain: Any) -> Any:
        centered = x - x.mean(-1, keepdims=True)
        return centered / jnp.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * gain

    add("layer_norm", norm, (x, normal(64)), (P(None, "x"), P("x")))
    add(
        "layer_norm_gradients",
        jax.grad(lambda *t: norm(*t).sum(), argnums=(0, 1)),
        (x, normal(64)),
        (P(None, "x"), P("x")),
    )
    add("words_by_vocabulary", lambda t, i: t[i], (normal(64, 32), words(64, 16)), (P("x"), P()))
    add("words_gradients", jax.grad(lambda t, i: (t[i] ** 2).sum()), (normal(64, 32), words(64, 16)), (P("x"), P()))
    add(
        "cross_entropy",
        lambda x, y: -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean(),
        (normal(16, 64), words(64, 16)),
        (P("x", "y"), P("x")),
        plane,
    )

    def convolve(x: Any, w: Any, strides: Any = (1, 1), padding: str = "SAME") -> Any:
        return lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))

    image, kernel = normal(8, 16, 16, 8), normal(3, 3, 8, 16)
    add("conv_batch", convolve, (image, kernel), (P("x"), P()))
    add("conv_space", convolve, (image, kernel), (P(None, "x", "y"), P()), plane)
    add("conv_features", convolve, (image, kernel), (P(None, None, None, "x"), P(None, None, "x")))
    add("conv_strided", lambda x, w: convolve(x, w, (2, 2)), (image, kernel), (P(None, "x"), P()))
    add("conv_valid", lambda x, w: convolve(x, w, padding="VALID"), (image, kernel), (P(None, "x"), P()))
    conv_gradients = jax.grad(lambda x, w: (convolve(x, w) ** 2).mean(), argnums=(0, 1))
    add("conv_gradients", conv_gradients, (image, kernel), (P(None, "x"), P()))

    def pool(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

    add("pool", pool, (image,), (P(None, "x"),))
    add("reshape", lambda x: x.reshape(8, 64), (m,), (P("x", "y"),), plane)
    add("transpose", lambda x: x.T, (m,), (P("x", "y"),), plane, P("x", "y"))
    add("concatenate", lambda x, z: jnp.concatenate([x, z], 0), (m, normal(24, 32)), (P("x"), P("x")), line, P("x"))
    add("pad", lambda x: jnp.pad(x, ((1, 3), (2, 2))), (m,), (P("x"),))
    add("interior_pad", lambda x: lax.pad(x, 0.0, ((1, 2, 2), (0, 0, 0))), (m,), (P("x"),))
    add("strided_slice", lambda x: x[3:13:3, ::2], (m,), (P("x", "y"),), plane)
    add("differences", lambda x: x[1:] - x[:-1], (m,), (P("x"),))
    add("roll", lambda x: jnp.roll(x, 3, 0), (m,), (P("x"),))
    add("reverse", lambda x: x[::-1], (m,), (P("x"),))
    add("sort", lambda x: jnp.sort(x, 0), (m,), (P("x"),))
    add("argsort", lambda x: jnp.argsort(x, 0), (m,), (P("x", "y"),), plane)
    add("top_k", lambda x: lax.top_k(x, 2), (normal(16, 64),), (P(None, "x"),))
    add("cumsum", lambda x: jnp.cumsum(x, 0), (m,), (P("x"),))
    add("cummax", lambda x: lax.cummax(x, 0, reverse=True), (m,), (P("x"),))
    add("argmax", lambda x: jnp.argmax(x, 0), (m,), (P("x"),))
    add(
        "scatter_add",
        lambda x, i, u: x.at[i].add(u),
        (normal(64, 16), words(64, 24), normal(24, 16)),
        (P("x"), P(), P()),
    )
    add(
        "update",
        lambda x, i: lax.dynamic_update_slice(x, jnp.ones((3, 4)), (i, 2)),
        (m, np.int32(5)),
        (P("x", "y"), P()),
        plane,
    )
    add("window", lambda x, i: lax.dynamic_slice(x, (i, 0), (3, 32)), (m, np.int32(5)), (P("x", "y"), P()), plane)

    def recurrent(x: Any, w: Any) -> Any:
        return lax.scan(lambda c, row: (jnp.tanh(c @ w + row),) * 2, jnp.zeros((8, 16)), x)

    add("scan", recurrent, (normal(5, 8, 16), 0.3 * normal(16, 16)), (P(None, "x"), P(None, "y")), plane)
    add("scan_over_parts", recurrent, (normal(16, 8, 16), 0.3 * normal(16, 16)), (P("x"), P()))
    add(
        "while",
        lambda x: lax.while_loop(lambda c: c.sum() < 1e3, lambda c: c * 1.5 + 1, jnp.abs(x)),
        (m,),
        (P("x", "y"),),
        plane,
    )
    add("cond", lambda x: lax.cond(x.sum() > 0, jnp.sin, lambda a: a * 2, x), (m,), (P("x", "y"),), plane)
    key = np.array([1, 2], np.uint32)
    add("random", lambda k: jax.random.normal(k, (16, 32)), (key,), (P(),), line, P("x"))
    add(
        "dropout",
        lambda k, x: jnp.where(jax.random.bernoulli(k, 0.5, x.shape), x, 0),
        (key, m),
        (P(), P("x", "y")),
        plane,
    )
    odd = normal(13, 30)
    add("indivisible", lambda x: keep(x, line, "x").sum(0), (odd,), (P(),))
    add("indivisible_softmax", lambda x: jax.nn.softmax(keep(x, plane, "x", "y"), 0), (odd,), (P(),), plane)
    add("indivisible_dot", lambda x: keep(keep(x, line, None, "x") @ keep(x.T, line, "x"), line, "x"), (odd,), (P(),))
    add("indivisible_cumsum", lambda x: jnp.cumsum(keep(x, plane, "x", "y"), 0), (odd,), (P(),), plane)

    inner = jax.shard_map(
        lambda t, w: jnp.tanh(t @ w) @ w.T, mesh=plane, in_specs=(P("x"), P()), out_specs=P("x"), axis_names={"x"}
    )
    add(
        "partly_manual", lambda t, w: inner(t, w).sum(0), (normal(8, 16), normal(16, 32)), (P("x"), P(None, "y")), plane
    )
    return table


def main(file: Path, names: Sequence[str]) -> None:
    import jax
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    programs = {}
    table = _programs()
    for name in names:
        function, arguments, specs, where, results = table[name]
        expected = [jax.tree.map(np.asarray, jax.jit(function)(*arguments))]

        def placed(spec: Any, where: Any = where) -> Any:
            return jax.tree.map(lambda s: NamedSharding(where, s), spec, is_leaf=lambda s: isinstance(s, P))

        options = {} if results is None else {"out_shardings": placed(results)}
        lowered = jax.jit(function, in_shardings=placed(specs), keep_unused=True, **options).lower(*arguments)
        flat = [np.asarray(array) for array in jax.tree.leaves(arguments)]
        programs[name] = lowered.as_text(), flat, jax.tree.leaves(expected), sent_bytes(lowered.compile().as_text())
    file.write_bytes(pickle.dumps(programs))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
