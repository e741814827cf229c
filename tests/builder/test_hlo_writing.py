"""HLO text that is written computes what the program does, and says what XLA's says of it."""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src.lib import xla_client

import spmd
from spmd.builder.hlo import print_hlo
from tests.builder.test_hlo_text import close, run_by_xla

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


def _linear_algebra(a: Any) -> Any:
    return jnp.linalg.qr(a), jnp.linalg.eigh(a), jnp.linalg.svd(a[..., :3]), jax.scipy.linalg.lu(a)


def _functions(a: Any) -> Any:
    """Functions that XLA's clients have no code for, in both widths."""
    unit = jnp.tanh(a)
    for x in (unit, unit.astype(jnp.bfloat16), unit + 0.3j):
        yield jnp.sinh(x), jnp.cosh(x)
    yield [f(unit) for f in (jnp.arcsin, jnp.arccos, jnp.arctanh, jnp.arcsinh, lax.erf_inv, lax.erfc, lax.lgamma)]
    yield jnp.arccosh(abs(a) + 1), lax.digamma(abs(a) + 1), jnp.nextafter(a, a + 1), lax.approx_max_k(a, 2)


@pytest.mark.parametrize("function", [_linear_algebra, lambda a: list(_functions(a))], ids=["layouts", "expanded"])
def test_what_is_written_runs_by_xla_to_the_same_values(function: Callable[[Any], Any]) -> None:
    """LAPACK gets matrices by columns, as XLA hands them; functions are primitives that XLA's clients run."""
    lowered = jax.jit(function).lower(SYMMETRIC)
    text = print_hlo(spmd.parse(lowered))
    for got, want in zip(run_by_xla(text, SYMMETRIC), jax.tree.leaves(function(SYMMETRIC)), strict=True):
        close(got, want)


def test_layouts_and_aliases_of_a_call_are_kept() -> None:
    """A call whose matrices lie by rows is not one of LAPACK's routines, which have them by columns."""
    text = print_hlo(spmd.parse(jax.jit(jnp.linalg.cholesky).lower(SYMMETRIC)))
    assert "= (f32[4,4]{0,1}, s32[]) custom-call" in text
    assert "operand_layout_constraints={f32[4,4]{0,1}}, output_to_operand_aliasing={{0}: (0, {})}" in text
    for rows in (text.replace("{0,1}", "{1,0}"), text.replace("{0,1}", "").replace("operand_layout", "x_layout")):
        with pytest.raises(spmd.SpmdError, match=r"matrices must be column-major|attribute x_layout"):
            spmd.compile(spmd.parse(rows))


@pytest.mark.parametrize("name", ["BF16_BF16_F32", "BF16_BF16_F32_X3", "F32_F32_F32"])
def test_the_algorithm_of_a_product_is_kept(name: str) -> None:
    """StableHLO and HLO text of one program give the same bits."""
    numbers = (((1,), (0,)), ((), ()))
    product = jax.jit(lambda a: lax.dot_general(a, a, numbers, precision=lax.DotAlgorithmPreset[name]))
    module = spmd.parse(product.lower(X))
    text = print_hlo(module)
    assert f"algorithm=dot_{name.lower()}" in text
    np.testing.assert_array_equal(spmd.compile(spmd.parse(text))(X)[0], spmd.compile(module)(X)[0])


SHARDED = """
sdy.mesh @mesh = <["x"=2, "y"=4]>
func.func @main(%a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {"x"}]>}) -> tensor<8x16xf32> {
  %0 = sdy.sharding_constraint %a <@mesh, [{"x", "y"}, {}]> : tensor<8x16xf32>
  %1 = sdy.manual_computation(%0) in_shardings=[<@mesh, [{"x"}, {}]>] out_shardings=[<@mesh, [{"x"}, {}]>]
      manual_axes={AXES} (%b: tensor<4x16xf32>) {
    %2 = stablehlo.tanh %b : tensor<4x16xf32>
    sdy.return %2 : tensor<4x16xf32>
  } : (tensor<8x16xf32>) -> tensor<8x16xf32>
  return %1 : tensor<8x16xf32>
}
"""


@pytest.mark.parametrize(
    ("axes", "inside"),
    [('"x"', "{devices=[1,1,2,4]<=[8] last_tile_dims={manual, replicated}}"), ('"x", "y"', "{manual}")],
)
def test_shardings_over_axes_are_written_as_blocks(axes: str, inside: str) -> None:
    """All that is computed inside of a manual computation says so."""
    text = print_hlo(spmd.parse(SHARDED.replace("AXES", axes)))
    assert "parameter(0), sharding={devices=[4,2]<=[2,4]T(1,0)}" in text
    assert 'custom_call_target="Sharding", sharding={devices=[8,1]<=[8]}' in text
    assert f'custom_call_target="SPMDFullToShardShape", sharding={inside}' in text
    assert re.search(rf"tanh\(.*\), sharding={re.escape(inside)}", text)
    whole = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"
    assert f'custom_call_target="SPMDShardToFullShape", sharding={whole}' in text
    xla_client.hlo.hlo_module_from_text(text)
    assert print_hlo(spmd.parse(text)) == text
