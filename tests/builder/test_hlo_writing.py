"""HLO text that is written computes what the program does, and says what XLA's says of it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import spmd
from spmd.builder.hlo import print_hlo

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 4)).astype(np.float32)
SYMMETRIC = X @ X.T + 4 * np.eye(4, dtype=np.float32)
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "cholesky": jnp.linalg.cholesky,
    "triangular solve": lambda a: lax.linalg.triangular_solve(a, a + 1, left_side=True, lower=True, transpose_a=True),
    "eigenvalues": lambda a: jnp.linalg.eigh(a)[0],
    "singular values": lambda a: jnp.linalg.svd(a, compute_uv=False),
    "solve": lambda a: jnp.linalg.solve(a, a[:, :2]),
    "erf_inv": lambda a: lax.erf_inv(a / 10),
    "next_after": lambda a: jnp.nextafter(a, jnp.float32(9)),
    "square": lambda a: (jnp.square(a), jnp.square(a + 1j)),
    "special functions": lambda a: (
        lax.lgamma(a + 1),
        lax.digamma(a + 1),
        lax.bessel_i1e(a),
        lax.zeta(a * a + 2, a * a),
    ),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_calls_and_ops_without_an_opcode(name: str) -> None:
    lowered = jax.jit(PROGRAMS[name]).lower(SYMMETRIC)
    module = spmd.parse(print_hlo(spmd.parse(lowered)))
    results = spmd.compile(module)(SYMMETRIC)
    for result, correct in zip(results, jax.tree.leaves(jax.jit(PROGRAMS[name])(SYMMETRIC)), strict=True):
        np.testing.assert_allclose(result, correct, rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize("donated", [(), (0,), (1,), (0, 1)])
def test_arguments_whose_memory_results_take(donated: tuple[int, ...]) -> None:
    lowered = jax.jit(lambda x, y: (y + 1, x * 2), donate_argnums=donated).lower(X, X)
    module = spmd.parse(lowered)
    text = print_hlo(module)
    assert ("input_output_alias=" in text) == bool(donated)
    again = spmd.parse(text).function("main").argument_attributes
    for before, after in zip(module.function("main").argument_attributes, again, strict=True):
        assert before.get("tf.aliasing_output") == after.get("tf.aliasing_output")
    assert [f"({argument}, {{}}, may-alias)" in text for argument in (0, 1)] == [n in donated for n in (0, 1)]


def test_the_one_result_of_a_program_has_no_index() -> None:
    text = print_hlo(spmd.parse(jax.jit(lambda x: x + 1, donate_argnums=0).lower(X)))
    assert "input_output_alias={ {}: (0, {}, may-alias) }" in text


FUNCTION = "func.func {visibility} @{name}(%a: tensor<f32>) -> tensor<f32> {{ return %a : tensor<f32> }}\n"


def test_the_entry_is_main_or_the_one_function() -> None:
    one = spmd.parse(FUNCTION.format(visibility="public", name="f"))
    assert spmd.compile(spmd.parse(print_hlo(one)))(np.float32(2)) == (2,)
    two = spmd.parse("".join(FUNCTION.format(visibility="public", name=name) for name in "fg"))
    with pytest.raises(
        spmd.SpmdError, match="the entry is @main or the one function of a module; functions here: @f, @g"
    ):
        print_hlo(two)
    with pytest.raises(spmd.SpmdError, match="functions here: none"):
        print_hlo(spmd.parse("module {}"))


def test_a_call_with_computations_is_told() -> None:
    module = spmd.parse(jax.jit(lambda x: lax.approx_max_k(x, 2)).lower(X))
    with pytest.raises(spmd.SpmdError, match="@ApproxTopK that calls computations is not written"):
        print_hlo(module)
