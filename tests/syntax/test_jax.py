# ruff: noqa: E501 - one program a line
"""What JAX lowers is read, in every form it can be printed in; and what spmd prints, MLIR reads as the same program."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import spmd
from spmd.syntax import difference, parse, print_op
from tests.reference import context

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax
F32, I32, U32, BF16, C64, BOOL = jnp.float32, jnp.int32, jnp.uint32, jnp.bfloat16, jnp.complex64, jnp.bool_


def A(*shape: int, dtype: Any = F32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def key(words: int = 2) -> Any:
    return A(words, dtype=U32)


def unary(x: Any) -> list[Any]:
    names = "sin cos tan tanh exp expm1 log log1p sqrt cbrt floor ceil round sign abs isnan arcsin arctan sinh arccosh"
    functions = [getattr(jnp, name) for name in names.split()]
    return [f(x) for f in (*functions, lax.rsqrt, lax.logistic, lax.is_finite, lax.erf_inv, lax.lgamma, lax.digamma)]


def bits(x: Any) -> list[Any]:
    return [lax.population_count(x), lax.clz(x), ~x, x & 3, x | 1, x ^ 7, x << 2, x >> 1, x // 3, x % 3]


def sharded(f: Callable[..., Any], spec: Any, out: Any) -> Callable[..., Any]:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("x", "y"))
    return jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=out)


P = jax.sharding.PartitionSpec
NHWC = ("NHWC", "HWIO", "NHWC")
PROGRAMS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "scan": (lambda x: lax.scan(lambda c, a: (c + a, c * a), x[0], x), [A(5, 3)]),
    "while": (lambda x: lax.while_loop(lambda v: v[0] < 9, lambda v: (v[0] + 1, v[1] * 2), (0, x)), [A(3)]),
    "cond": (lambda p, x: lax.cond(p, jnp.sin, jnp.cos, x), [A(dtype=BOOL), A(3)]),
    "switch": (lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.tan], x), [A(dtype=I32), A(3)]),
    "sort": (lambda x: (jnp.sort(x), jnp.argsort(x), lax.top_k(x, 2)), [A(5, 3)]),
    "gather": (lambda x, i: x[i], [A(5, 3), A(4, dtype=I32)]),
    "scatter": (lambda x, i: (x.at[i].add(1.0), x.at[i].set(2.0), x.at[i].max(x[0])), [A(5, 3), A(4, dtype=I32)]),
    "convolution": (
        lambda x, k: lax.conv_general_dilated(x, k, (2, 2), "SAME", rhs_dilation=(2, 1), dimension_numbers=NHWC),
        [A(2, 8, 8, 3), A(3, 3, 3, 4)],
    ),
    "pooling": (
        jax.value_and_grad(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").sum()),
        [A(2, 8, 8, 3)],
    ),
    "random": (lambda k: jax.random.normal(jax.random.wrap_key_data(k), (3, 4)), [key()]),
    "rbg": (lambda k: jax.random.bits(jax.random.wrap_key_data(k, impl="rbg"), (3,)), [key(4)]),
    "fft": (lambda x: (jnp.fft.rfft(x), jnp.fft.fft2(x)), [A(4, 8)]),
    **{
        name: (functools.partial(lambda name, x: getattr(jnp.linalg, name)(x), name), [A(4, 4)])
        for name in ("cholesky", "qr", "svd", "det")
    },
    "triangular": (lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True), [A(4, 4), A(4, 2)]),
    "einsum": (lambda a, b: jnp.einsum("bij,bkj->bik", a, b, precision="highest"), [A(2, 3, 4), A(2, 5, 4)]),
    "algorithm": (lambda a, b: lax.dot(a, b, precision=lax.DotAlgorithmPreset.BF16_BF16_F32_X3), [A(3, 4), A(4, 5)]),
    "narrow": (
        lambda x: [x.astype(d).astype(F32) for d in (jnp.int4, jnp.float8_e4m3fn, jnp.float4_e2m1fn, BF16)], [A(3, 4)]
    ),
    "unary": (unary, [A(4)]),
    "bits": (bits, [A(4, dtype=I32)]),
    "special": (lambda x: (lax.bessel_i1e(x), lax.bessel_i0e(x), lax.erf(x), lax.nextafter(x, x)), [A(4)]),
    "cumulative": (lambda x: (jnp.cumsum(x), lax.cummax(x), lax.cumlogsumexp(x)), [A(8)]),
    "reductions": (lambda x: (x.sum(), x.max(1), x.prod(), x.argmax(), x.std(), jnp.any(x > 0)), [A(4, 5)]),
    "two at once": (
        lambda x, y: lax.reduce((x, y), (F32(0), I32(1)), lambda a, b: (a[0] + b[0], a[1] * b[1]), (0,)),
        [A(4, 5), A(4, 5, dtype=I32)],
    ),
    "pad": (lambda x: lax.pad(x, F32(0), ((1, 2, 0), (-1, 0, 1))), [A(4, 5)]),
    "slices": (lambda x, i: (x[1:3, ::2], lax.dynamic_slice(x, (i, i), (2, 2)), x[::-1]), [A(4, 5), A(dtype=I32)]),
    "update": (lambda x, i: lax.dynamic_update_slice(x, x[:2, :2], (i, i)), [A(4, 5), A(dtype=I32)]),
    "constants": (
        lambda x: (x + np.arange(12, dtype=np.float32), np.arange(200) % 3 == 0, np.array([np.nan, np.inf, -0.0, 1 / 3])),
        [A(12)],
    ),
    "complex": (lambda x: (x * np.array([1 + 2j, np.nan, 1j], np.complex64)).real, [A(3, dtype=C64)]),
    "gradient": (jax.value_and_grad(lambda w, x: jnp.mean(jax.nn.softmax(jnp.tanh(x @ w)) ** 2)), [A(4, 5), A(3, 4)]),
    "batched": (jax.vmap(jnp.linalg.solve), [A(2, 3, 3), A(2, 3)]),
    "rematerialized": (jax.grad(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)).sum())), [A(3)]),
    "ragged": (lambda a, b, g: lax.ragged_dot(a, b, g), [A(8, 4), A(3, 4, 5), A(3, dtype=I32)]),
    "barrier": (lambda x: lax.optimization_barrier((x, x)), [A(3)]),
    "callback": (lambda x: jax.pure_callback(lambda y: y, A(3), x), [A(3)]),
    "bitcast": (lambda x: (lax.bitcast_convert_type(x, I32), lax.reduce_precision(x, 5, 10)), [A(3)]),
    "no arguments": (lambda: jnp.eye(4, 5, 1), []),
    "psum": (sharded(lambda x: lax.psum(x, "x"), P("x", "y"), P(None, "y")), [A(8, 8)]),
    "permute": (sharded(lambda x: lax.ppermute(x, "x", [(0, 0)]) + lax.axis_index("y"), P("x", "y"), P("x", "y")), [A(4, 4)]),
    "scatter sum": (
        sharded(lambda x: lax.psum_scatter(x, "y", tiled=True), P("x", None), P(("x", "y"), None)), [A(8, 8)]
    ),
}  # fmt: skip


@pytest.mark.sampled(14)
@pytest.mark.parametrize("name", PROGRAMS)
def test_jax_and_spmd_print_programs_that_the_other_reads(name: str) -> None:
    function, arguments = PROGRAMS[name]
    lowered = jax.jit(function).lower(*arguments)
    operation = lowered.compiler_ir("stablehlo").operation
    texts = {
        "pretty": lowered.as_text(),
        "with locations": lowered.as_text(debug_info=True),
        "generic": operation.get_asm(print_generic_op_form=True),
        "locations inside": operation.get_asm(use_local_scope=True, enable_debug_info=True),
    }
    modules = {form: spmd.parse(text, f"{form}.mlir") for form, text in texts.items()}
    first = modules["pretty"]
    assert {form: difference(first, module) for form, module in modules.items()} == dict.fromkeys(modules)
    for generic in (False, True):
        printed = print_op(first, generic=generic)
        assert difference(first, parse(printed)) is None
        assert through_mlir(printed) == through_mlir(texts["pretty"])


def through_mlir(text: str) -> str:
    """The program as MLIR prints it, having read it."""
    from jaxlib.mlir import ir

    with context():
        return str(ir.Module.parse(text).operation.get_asm(print_generic_op_form=True))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.sin(x).sum(0) + x.shape[0],
        lambda x: jnp.concatenate([x, x]).reshape(-1, 2),
        lambda x: jnp.sort(x, axis=0)[::2],
        lambda x: lax.dynamic_slice(x, (1, 0), (x.shape[0] - 1, 2)),
        lambda x: jnp.einsum("bi,bj->ij", x, x),
    ],
)
def test_programs_of_dynamic_shape_are_read(function: Callable[..., Any]) -> None:
    from jax import export

    (size,) = export.symbolic_shape("b")
    text = export.export(jax.jit(function))(jax.ShapeDtypeStruct((size, 4), F32)).mlir_module()
    module = spmd.parse(text)
    assert difference(module, parse(print_op(module))) is None
    assert through_mlir(print_op(module)) == through_mlir(text)
