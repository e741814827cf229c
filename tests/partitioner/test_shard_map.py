"""JAX's `shard_map` over some axes of a mesh, by both partitioners' lowerings, gives what one device gives."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import partitioner
import spmd

jax = pytest.importorskip("jax")

from jax import lax  # noqa: E402
from jax.sharding import NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import spmd.jax  # noqa: E402
from spmd.analysis.shardings import is_sharded  # noqa: E402
from tests.effort import some_slow  # noqa: E402
from tests.jax_meshes import abstract_mesh  # noqa: E402
from tests.partitioner.drawn_shard_map import draw_shard_map  # noqa: E402
from tests.partitioner.running import run_module  # noqa: E402

_DRAWS = int(os.environ.get("SPMD_PROPERTY_DRAWS", "40")) // 2
_BATCH = 5
X = np.arange(16, dtype=np.float32).reshape(4, 4)
MESH = abstract_mesh((2, 2), ("a", "b"))


def lowered(function: Any, *arguments: Any, shardy: bool) -> spmd.Module:
    """The program of a jitted function, in sdy's words or GSPMD's."""
    before = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", shardy)
    try:
        return spmd.jax.jit(function).lower(*arguments)
    finally:
        jax.config.update("jax_use_shardy_partitioner", before)


@pytest.mark.parametrize("shardy", [True, False], ids=["shardy", "gspmd"])
@pytest.mark.parametrize("first", some_slow(range(0, _DRAWS, _BATCH), 1))
def test_ranks_give_what_one_device_gives(first: int, shardy: bool) -> None:
    for seed in range(first, first + _BATCH):
        drawn = draw_shard_map(seed)
        module = lowered(drawn.sharded, drawn.argument, shardy=shardy)
        (result,) = run_module(module, [drawn.argument], drawn.devices)
        expected = np.asarray(drawn.single(drawn.argument))
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5, err_msg=drawn.text)


@pytest.mark.parametrize("wanted", [P(None, "a"), P("a"), P(("b", "a")), P("b", "a"), P(P.UNCONSTRAINED, "a")])
def test_what_comes_from_partly_manual_code_is_cut_afterwards(wanted: P) -> None:
    """An axis that was manual may cut the result once it is whole: it is none of its open dimensions' before."""

    def function(x: Any) -> Any:
        y = jax.shard_map(
            lambda v: lax.psum(v, "a"), mesh=MESH, in_specs=P(None, "a"), out_specs=P(), axis_names={"a"}
        )(x)
        return lax.with_sharding_constraint(y, NamedSharding(MESH, wanted))

    (result,) = run_module(lowered(jax.jit(function), X, shardy=False), [X], 4)
    np.testing.assert_array_equal(result, X[:, :2] + X[:, 2:])


def test_what_goes_into_partly_manual_code_may_be_cut_before() -> None:
    def function(x: Any) -> Any:
        y = lax.with_sharding_constraint(x, NamedSharding(MESH, P("a", "b")))
        z = jax.shard_map(
            lambda v: lax.psum(v, "a"), mesh=MESH, in_specs=P(), out_specs=P(), axis_names={"a"}, check_vma=False
        )(y)
        return z, y

    result, same = run_module(lowered(jax.jit(function), X, shardy=False), [X], 4)
    np.testing.assert_array_equal(result, 2 * X)
    np.testing.assert_array_equal(same, X)


def test_a_process_s_program_speaks_of_no_shardings() -> None:
    """Not in the regions of its ops either: who runs it does not partition it once more."""
    mapped = jax.shard_map(
        lambda v: lax.sort(lax.psum(v, "a")), mesh=MESH, in_specs=P("a"), out_specs=P(), axis_names={"a"}
    )
    for shardy in (True, False):
        module = lowered(jax.jit(mapped), X, shardy=shardy)
        parts = partitioner.partition(module, spmd.ProcessGrid(1, 4))
        assert is_sharded(module) and not is_sharded(parts.module)


_CALLS = """
module attributes {{mhlo.num_partitions = 4 : i32}} {{
  func.func @main(%a: tensor<4x4xf32> {{mhlo.sharding = "{outer}"}}) -> tensor<4x4xf32> {{
    %b = stablehlo.custom_call @Sharding(%a) {{mhlo.sharding = "{outer}"}} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %c = stablehlo.custom_call @SPMDFullToShardShape(%b) {{mhlo.sharding =
      "{{devices=[1,1,2,2]<=[4] last_tile_dims={{manual, replicated}}}}"}} : (tensor<4x4xf32>) -> tensor<{part}xf32>
    %d = stablehlo.add %c, %c : tensor<{part}xf32>
    %e = stablehlo.custom_call @Sharding(%d) {{mhlo.sharding =
      "{{devices=[1,1,2,2]<=[4] last_tile_dims={{manual, replicated}}}}"}} : (tensor<{part}xf32>) -> tensor<{part}xf32>
    %f = stablehlo.custom_call @SPMDShardToFullShape(%e) {{mhlo.sharding = "{outer}"}}
      : (tensor<{part}xf32>) -> tensor<4x4xf32>
    return %f : tensor<4x4xf32>
  }}
}}"""
_BY_COLUMNS = "{devices=[1,2,2]<=[4] last_tile_dim_replicate}"


def test_a_part_of_another_shape_than_its_sharding_gives_is_refused() -> None:
    sound = spmd.parse(_CALLS.format(outer=_BY_COLUMNS, part="4x2"))
    np.testing.assert_array_equal(run_module(sound, [X], 4)[0], 2 * X)
    for part in ("4x1", "2x4", "4x4"):
        module = spmd.parse(_CALLS.format(outer=_BY_COLUMNS, part=part))
        with pytest.raises(spmd.CompileError, match=rf"custom_call: .* needs blocks of tensor<4x2xf32>, got .*{part}"):
            partitioner.partition(module, spmd.ProcessGrid(1, 4))
