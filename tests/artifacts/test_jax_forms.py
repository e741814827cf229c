"""What JAX writes of one program in four forms, each of which computes what JAX does.

The forms: a file of jax.export, MLIR bytecode, and HLO text before and after XLA's optimizations.
"""

# ruff: noqa: E501 (a program on a line)

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import spmd

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax
RNG = np.random.default_rng(3)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def complex_normal(*shape: int) -> Any:
    return (normal(*shape) + 1j * normal(*shape)).astype(np.complex64)


INDICES = np.int32([0, 5, 3])
SYMMETRIC = (lambda x: x @ x.T + 4 * np.eye(4, dtype=np.float32))(normal(4, 4))
Program = tuple[Callable[..., Any], tuple[Any, ...]]
PROGRAMS: dict[str, Program] = {
    "a grouped convolution": (
        lambda x, w: lax.conv_general_dilated(
            x, w, (2, 1), [(1, 2), (0, 1)], rhs_dilation=(1, 2), feature_group_count=2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        ),
        (normal(2, 9, 8, 4), normal(3, 2, 2, 6)),
    ),
    "a transposed convolution": (lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME"), (normal(1, 4, 4, 3), normal(3, 3, 3, 2))),
    "a complex convolution": (lambda x, w: lax.conv(x, w, (1,), "SAME"), (complex_normal(1, 2, 6), complex_normal(2, 2, 3))),
    "a sort of several arrays": (
        lambda a, b: lax.sort((a, b, a + b), num_keys=2), (np.int32([3, 1, 3, 1, 2]), np.int32([5, 4, 3, 2, 1])),
    ),
    "a sort of complex numbers": (jnp.sort, (np.complex64([1 + 2j, 1 - 1j, -3, 0]),)),
    "indices out of bounds": (
        lambda x: (x.at[jnp.int32([1, -9, 50])].max(0.5, mode="drop"), x.at[jnp.int32([0, 8])].get(mode="fill", fill_value=7)),
        (normal(5, 3),),
    ),
    "batched scatter": (jax.vmap(lambda x, i: x.at[i].add(1.0)), (normal(3, 6), INDICES)),
    "a gradient of a scan": (
        lambda x: jax.grad(lambda x: lax.scan(lambda c, v: (jnp.tanh(c + v), c), 0.0, x, reverse=True)[0])(x), (normal(5),),
    ),
    "a switch": (lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, lambda x: x * 2], x), (np.int32(7), normal(4))),
    "bits by rbg": (
        lambda key: jax.random.bits(jax.random.wrap_key_data(key, impl="rbg"), (4,)), (np.uint32([7, 2, 1, 3]),),
    ),
    "real transforms": (lambda x: jnp.fft.irfft(jnp.fft.rfft(x) * 2, 8), (normal(3, 8),)),
    "eigenvalues": (lambda a: jnp.linalg.eigh(a)[0], (SYMMETRIC,)),
    "a triangular solve": (
        lambda a, b: lax.linalg.triangular_solve(a, b, left_side=False, lower=False, transpose_a=True, unit_diagonal=True),
        (SYMMETRIC, normal(4, 4)),
    ),
    "floats of 8 bits": (
        lambda a, b: lax.dot(a.astype(jnp.float8_e4m3fn), b.astype(jnp.float8_e5m2), preferred_element_type=jnp.float32),
        (normal(3, 4), normal(4, 2)),
    ),
    "every float of 8 bits": (
        lambda a: [
            a.astype(kind).astype(jnp.float32)
            for kind in ("float8_e4m3b11fnuz", "float8_e5m2fnuz", "float8_e4m3fnuz", "float8_e3m4", "float8_e4m3")
        ],
        (normal(12),),
    ),
    "integers of 4 bits": (
        lambda a: a.astype(jnp.int8) * jnp.array([1, -3, 5], jnp.int4).astype(jnp.int8), (np.int32([1, 2, 3]),),
    ),
    "functions of complex numbers": (lambda z: (jnp.exp(z), jnp.sqrt(z), jnp.tanh(z), z / (z + 1)), (complex_normal(5),)),
    "a gradient of pooling": (
        lambda x: jax.grad(
            lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").sum()
        )(x),
        (normal(1, 6, 6, 2),),
    ),
    "a reduction of two arrays": (
        lambda x: lax.reduce(
            (x, lax.iota(jnp.int32, 5)), (np.float32(-np.inf), np.int32(0)),
            lambda a, b: (lax.max(a[0], b[0]), lax.select(a[0] > b[0], a[1], b[1])), (0,),
        ),
        (normal(5),),
    ),
    "a product over two batches": (
        lambda a, b: lax.dot_general(a, b, (((3,), (1,)), ((0, 2), (0, 3)))), (normal(2, 3, 4, 5), normal(2, 5, 6, 4)),
    ),
    "empty arrays": (lambda x: (x.sum(0), x @ jnp.ones((3, 2))), (np.zeros((0, 3), np.float32),)),
    "an argument that nothing uses": (lambda x, y: x * 2, (normal(3), normal(2))),
    "a tree": (lambda d: {"s": d["a"] + d["b"][0], "t": [d["b"][1]]}, ({"a": normal(2), "b": (normal(2), INDICES)},)),
}  # fmt: skip


def bytecode(lowered: Any) -> bytes:
    out = io.BytesIO()
    lowered.compiler_ir("stablehlo").operation.write_bytecode(out)
    return out.getvalue()


def exported(function: Any, arguments: tuple[Any, ...]) -> bytes:
    from jax import export

    return bytes(export.export(function)(*arguments).serialize())


@pytest.mark.sampled(23)
@pytest.mark.parametrize("form", ["export", "bytecode", "before", "after"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_form_computes_what_jax_does(name: str, form: str) -> None:
    function, arguments = PROGRAMS[name]
    jitted = jax.jit(function)
    leaves = jax.tree.leaves(arguments)
    lowered = jitted.lower(*arguments)
    data: str | bytes
    if form == "export":
        data = exported(jitted, arguments)
    elif form == "bytecode":
        data = bytecode(lowered)
    else:
        data = lowered.as_text("hlo") if form == "before" else lowered.compile().as_text()
    executable = spmd.compile(spmd.parse(data))
    results = executable(*leaves[: len(executable.in_types)])  # what nothing uses comes last
    correct = jax.tree.leaves(jitted(*arguments))
    assert len(results) == len(correct)
    for result, other in zip(results, correct, strict=True):
        assert result.dtype == other.dtype
        np.testing.assert_allclose(result, other, rtol=2e-4, atol=1e-4)
