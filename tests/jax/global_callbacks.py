"""Functions of the global view that call Python: what they note and give is what one device notes and gives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from tests.jax_meshes import abstract_mesh

#: What was called so far, by this Python process.
NOTES: list[Any] = []
X = np.arange(32, dtype=np.float32).reshape(8, 4)
SCALAR = jax.ShapeDtypeStruct((), np.float32)


def note(tag: str, *values: Any) -> None:
    NOTES.append((tag, *(np.asarray(value).tolist() for value in values)))


def counted(tag: str, *values: Any) -> Any:
    """Notes a call; gives how many there have been, which another process would not count alike."""
    note(tag, *values)
    return np.float32(len(NOTES))


def _once(x: Any) -> Any:
    count = io_callback(lambda v: counted("io", v), SCALAR, x)
    jax.debug.callback(lambda v: note("debug", v), count)
    return x + count


def _pure(x: Any) -> Any:
    result = jax.ShapeDtypeStruct((4, 8), np.float32)
    return jax.pure_callback(lambda v: (note("pure", v), np.asarray(v).T)[1], result, x * 2)


def _ordered(x: Any) -> Any:
    first = io_callback(lambda v: counted("first", v), SCALAR, x.sum(), ordered=True)

    def body(i: Any, total: Any) -> Any:
        return total + io_callback(lambda v: counted("loop", v), SCALAR, i, ordered=True)

    total = jax.lax.fori_loop(0, 3, body, first)
    io_callback(lambda v: note("last", v), None, total, ordered=True)
    return x * total


def _ordered_prints(x: Any) -> Any:
    jax.debug.callback(lambda v: note("first", v), x[1], ordered=True)

    def body(i: Any, total: Any) -> Any:
        jax.debug.callback(lambda i, v: note("loop", i, v), i, total, ordered=True)
        return total + i

    total = jax.lax.fori_loop(0, 3, body, 0)
    jax.debug.callback(lambda v: note("last", v), total, ordered=True)
    return x * total


def _without_values(x: Any) -> Any:
    jax.debug.callback(lambda: note("nothing"))
    io_callback(lambda: note("nothing ordered"), None, ordered=True)
    return x


def _in_branches(x: Any) -> Any:
    def taken(v: Any) -> Any:
        return v + io_callback(lambda w: counted("taken", w), SCALAR, v)

    def other(v: Any) -> Any:
        jax.debug.callback(lambda w: note("other", w), v)
        return v

    return jax.lax.cond(x.sum() > 0, taken, other, x[0, 1]), jax.lax.cond(x.sum() < 0, taken, other, x[1, 1])


def _scanned(x: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        return carry + io_callback(lambda v: counted("row", v), SCALAR, row), carry

    return jax.lax.scan(step, jnp.float32(0), x)


def _kinds(x: Any) -> Any:
    """Results of every kind that could lose something on its way: zeros' signs, NaNs, truths, nothing at all."""
    types = {
        "float": jax.ShapeDtypeStruct((4,), np.float32), "bool": jax.ShapeDtypeStruct((2, 2), np.bool_),
        "int": jax.ShapeDtypeStruct((), np.int8), "complex": jax.ShapeDtypeStruct((1,), np.complex64),
        "half": jax.ShapeDtypeStruct((3,), jnp.bfloat16), "empty": jax.ShapeDtypeStruct((0, 3), np.float32),
    }  # fmt: skip

    def call(v: Any) -> Any:
        note("kinds", v)
        return {
            "float": np.array([-0.0, np.nan, -np.inf, 3e-38], np.float32), "bool": np.eye(2, dtype=bool),
            "int": np.int8(-128), "complex": np.array([complex(-0.0, np.nan)], np.complex64),
            "half": np.array([-0.0, 1, 3e38], jnp.bfloat16), "empty": np.zeros((0, 3), np.float32),
        }  # fmt: skip

    return io_callback(call, types, x[0])


def _mapped(x: Any) -> Any:
    return jax.vmap(lambda row: jax.pure_callback(lambda v: np.float32(v[0]), SCALAR, row, vmap_method="sequential"))(x)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "once": _once, "pure": _pure, "ordered": _ordered, "ordered_prints": _ordered_prints,
    "without_values": _without_values, "in_branches": _in_branches, "scanned": _scanned, "kinds": _kinds,
    "mapped": _mapped,
}  # fmt: skip


def global_view(name: str, count: int) -> Any:
    """The function `name`, its argument cut over `count` devices along one or both dimensions."""
    minor = 2 if count % 4 == 0 else 1
    mesh = abstract_mesh((count // minor, minor), ("a", "b"))
    return jax.jit(FUNCTIONS[name], in_shardings=NamedSharding(mesh, P("a", "b")))


@functools.cache
def on_one_device(name: str) -> tuple[Any, list[Any]]:
    """What JAX's one device gives, and what it notes."""
    NOTES.clear()
    results = jax.block_until_ready(jax.jit(FUNCTIONS[name])(X))
    jax.effects_barrier()
    notes = NOTES.copy()
    return jax.tree.map(np.asarray, results), notes
