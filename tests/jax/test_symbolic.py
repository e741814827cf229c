"""Functions exported with symbolic sizes give what JAX gives, for more than one size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import spmd

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax import export  # noqa: E402


def cross_entropy(x: Any, labels: Any) -> Any:
    """The mean loss of rows of logits."""
    return -jnp.take_along_axis(jax.nn.log_softmax(x), labels[:, None], axis=1).mean()


def scanned(x: Any) -> Any:
    return jax.lax.scan(lambda carry, row: (carry + row, carry), jnp.zeros(3), x)[1]


F, I32 = "float32", "int32"
#: By name: a function, and the shape and dtype of each argument.
FUNCTIONS = {
    "rows": (lambda x, i: x[i], [("n, 3", F), ("4", I32)]),
    "take": (lambda x, i: jnp.take(x, i, axis=0), [("n, 3", F), ("4", I32)]),
    "take_along_axis": (lambda x, i: jnp.take_along_axis(x, i, axis=1), [("n, 5", F), ("n, 5", I32)]),
    "every other row": (lambda x: x[::2], [("n, 3", F)]),
    "reversed rows": (lambda x: x[::-1], [("n, 3", F)]),
    "the last row": (lambda x: x[-1], [("n, 3", F)]),
    "cross entropy": (cross_entropy, [("n, 10", F), ("n", I32)]),
    "its gradient": (jax.grad(cross_entropy), [("n, 10", F), ("n", I32)]),
    "updated rows": (lambda x, i: x.at[i].add(1.0), [("n, 3", F), ("4", I32)]),
    "sort": (lambda x: jnp.sort(x, 0), [("n, 3", F)]),
    "cumsum": (lambda x: jnp.cumsum(x, 0), [("n, 3", F)]),
    "top_k": (lambda x: jax.lax.top_k(x, 2), [("n, 6", F)]),
    "scan": (scanned, [("n, 3", F)]),
    "roll and pad": (lambda x: jnp.pad(jnp.roll(x, 1, 0), ((1, 2), (0, 0))), [("n, 3", F)]),
    "argmax": (lambda x: jnp.argmax(x, 0), [("n, 3", F)]),
    "product": (lambda x: x @ x.T, [("n, 3", F)]),
    "convolution": (lambda x: jax.lax.conv(x, jnp.ones((2, 3, 3, 3)), (1, 1), "SAME"), [("n, 3, 8, 8", F)]),
    "triangle": (lambda x: jnp.tril(x), [("n, n", F)]),
    "qr": (lambda x: jnp.linalg.qr(x)[1], [("n, 3, 3", F)]),
    "singular values": (lambda x: jnp.linalg.svd(x, compute_uv=False), [("n, 3, 3", F)]),
    "solve": (lambda x: jnp.linalg.solve(x + 3 * jnp.eye(3), x), [("n, 3, 3", F)]),
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_symbolic_sizes(name: str) -> None:
    function, shapes = FUNCTIONS[name]
    scope, jitted = export.SymbolicScope(), jax.jit(function)
    types = [jax.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), dtype) for shape, dtype in shapes]
    module = spmd.parse(export.export(jitted, platforms=["cpu"])(*types).mlir_module())
    rng = np.random.default_rng(0)
    runs = [spmd.compile(module, backends=backends) for backends in (("llvm", "numpy"), ("numpy",))]
    for n in (7, 4):
        sizes = [tuple(n if size == "n" else int(size) for size in shape.split(", ")) for shape, _ in shapes]
        draw = {F: rng.standard_normal, I32: lambda size: rng.integers(0, 3, size)}
        arrays = [draw[dtype](size).astype(dtype) for size, (_, dtype) in zip(sizes, shapes, strict=True)]
        for run in runs:
            for got, want in zip(run(*arrays), jax.tree.leaves(jitted(*arrays)), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
