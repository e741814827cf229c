"""Programs that speak of several meshes, of single devices, or whose devices are replicas."""

from __future__ import annotations

import numpy as np
import pytest

import partitioner
import spmd
from tests.partitioner.running import Array, run_parts

_TURNED = """
sdy.mesh @mesh = <["x"=2, "y"=2]>
sdy.mesh @turned = <["x"=2, "y"=2], device_ids=[2, 0, 3, 1]>
sdy.mesh @six = <["z"=6]>
sdy.mesh @third = <[], device_ids=[3]>
"""


def _array(*shape: int) -> Array:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_arguments_and_results_lie_in_the_order_of_their_own_mesh() -> None:
    text = (
        _TURNED
        + """
func.func @main(%a: tensor<4x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>},
                %b: tensor<4x6xf32> {sdy.sharding = #sdy.sharding<@turned, [{"x"}, {"y"}]>})
    -> (tensor<4x6xf32> {sdy.sharding = #sdy.sharding<@turned, [{"x"}, {"y"}]>},
        tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}]>}) {
  %0 = stablehlo.subtract %a, %b : tensor<4x6xf32>
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %1 = stablehlo.reduce(%b init: %c) applies stablehlo.add across dimensions = [1]
      : (tensor<4x6xf32>, tensor<f32>) -> tensor<4xf32>
  return %0, %1 : tensor<4x6xf32>, tensor<4xf32>
}"""
    )
    a, b = _array(4, 6), _array(4, 6) ** 2
    parts = partitioner.partition(spmd.parse(text))
    assert [layout.index(2) for layout in parts.in_shardings] == [
        (slice(2, 4), slice(0, 3)),
        (slice(0, 2), slice(0, 3)),
    ]
    for actual_results, expected in zip(run_parts(text, [a, b], 4), (a - b, b.sum(1)), strict=True):
        np.testing.assert_array_equal(actual_results, expected)


def test_a_permute_to_another_order_of_devices() -> None:
    text = (
        _TURNED
        + """
func.func @main(%a: tensor<4x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
    -> (tensor<4x6xf32> {sdy.sharding = #sdy.sharding<@turned, [{"x"}, {}]>}) {
  %0 = sdy.collective_permute %a out_sharding=<@turned, [{"x"}, {}]> : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}"""
    )
    module = spmd.parse(text)
    grid = spmd.ProcessGrid(1, 4)
    parts = partitioner.partition(module, grid)
    a = _array(4, 6)
    inputs = [[partitioner.shard_array(a, parts.in_shardings[0], rank)] for rank in range(4)]
    results = spmd.run_parallel(parts.module, grid, inputs, timeout=30)
    for device, part in zip((2, 0, 3, 1), (a[:2], a[:2], a[2:], a[2:]), strict=True):
        np.testing.assert_array_equal(results[device][0], part)


def test_manual_code_runs_on_the_devices_of_its_mesh() -> None:
    text = (
        _TURNED
        + """
func.func @main(%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", "y"}]>}) -> tensor<4xf32> {
  %0 = stablehlo.add %a, %a : tensor<4xf32>
  %1 = sdy.manual_computation(%0) in_shardings=[<@turned, [{"x", "y"}]>] out_shardings=[<@turned, [{"x", "y"}]>]
      manual_axes={"x", "y"} (%p: tensor<1xf32>) {
    %i = stablehlo.partition_id : tensor<ui32>
    %j = stablehlo.convert %i : (tensor<ui32>) -> tensor<f32>
    %k = stablehlo.reshape %j : (tensor<f32>) -> tensor<1xf32>
    %m = stablehlo.multiply %p, %k : tensor<1xf32>
    sdy.return %m : tensor<1xf32>
  } : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}"""
    )
    a = _array(4) + 1
    np.testing.assert_array_equal(run_parts(text, [a], 4)[0], 2 * a * np.array([2, 0, 3, 1]))


def test_meshes_that_a_function_does_not_speak_of_are_left_alone() -> None:
    text = (
        _TURNED
        + """
func.func @small(%a: tensor<6xf32> {sdy.sharding = #sdy.sharding<@six, [{"z"}]>}) -> tensor<6xf32> {
  return %a : tensor<6xf32>
}
func.func @main(%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<4xf32> {
  return %a : tensor<4xf32>
}"""
    )
    module = spmd.parse(text)
    assert partitioner.partition(module).in_shardings[0].sharding.mesh.size == 4
    assert partitioner.partition(module, function="small").in_shardings[0].sharding.mesh.size == 6


def test_two_meshes_of_one_program_have_as_many_devices() -> None:
    text = (
        _TURNED
        + """
func.func @main(%a: tensor<12xf32> {sdy.sharding = #sdy.sharding<@six, [{"z"}]>}) -> tensor<12xf32> {
  %0 = sdy.sharding_constraint %a <@mesh, [{"x"}]> : tensor<12xf32>
  return %0 : tensor<12xf32>
}"""
    )
    with pytest.raises(spmd.CompileError, match="equally many devices, got 4 and 6"):
        partitioner.partition(spmd.parse(text))


@pytest.mark.parametrize("cut", [True, False])
def test_what_is_put_on_one_device_is_there_for_all(cut: bool) -> None:
    sharding = ' {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}' if cut else ""
    text = (
        _TURNED
        + f"""
func.func @main(%a: tensor<4xf32>{sharding}, %i: tensor<i32>) -> tensor<4xf32> {{
  %0 = stablehlo.add %a, %a {{sdy.sharding = #sdy.sharding_per_value<[<@third, []>]>}} : tensor<4xf32>
  %1 = "stablehlo.case"(%i) ({{
    stablehlo.return %0 : tensor<4xf32>
  }}, {{
    %n = stablehlo.negate %0 : tensor<4xf32>
    stablehlo.return %n : tensor<4xf32>
  }}) {{sdy.sharding = #sdy.sharding_per_value<[<@third, []>]>}} : (tensor<i32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}}"""
    )
    a = _array(4)
    np.testing.assert_array_equal(run_parts(text, [a, np.array(1, np.int32)], 4)[0], -2 * a)


def test_devices_are_replicas_on_a_grid_of_one_partition() -> None:
    text = (
        _TURNED
        + """
func.func @main(%a: tensor<4x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>},
                %w: tensor<6x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>})
    -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>}) {
  %0 = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0]
      : (tensor<4x6xf32>, tensor<6x8xf32>) -> tensor<4x8xf32>
  %1 = stablehlo.reverse %0, dims = [0] : tensor<4x8xf32>
  %2 = stablehlo.transpose %1, dims = [1, 0] : (tensor<4x8xf32>) -> tensor<8x4xf32>
  return %2 : tensor<8x4xf32>
}"""
    )
    a, w = _array(4, 6), _array(6, 8)
    grid = spmd.ProcessGrid(4, 1)
    parts = partitioner.partition(spmd.parse(text), grid)
    written = str(parts.module)
    assert "partition_id" not in written
    assert "mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 4 : i32" in written
    inputs = [
        [partitioner.shard_array(x, layout, rank) for x, layout in zip((a, w), parts.in_shardings, strict=True)]
        for rank in range(4)
    ]
    results = spmd.run_parallel(parts.module, grid, inputs, timeout=30)
    whole = partitioner.join_blocks([blocks[0] for blocks in results], parts.out_shardings[0])
    np.testing.assert_array_equal(whole, (a @ w)[::-1].T)


def test_a_program_that_asks_which_replica_it_is() -> None:
    text = (
        _TURNED
        + """
func.func @main(%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<4xf32> {
  %i = stablehlo.replica_id : tensor<ui32>
  %j = stablehlo.convert %i : (tensor<ui32>) -> tensor<f32>
  %k = stablehlo.broadcast_in_dim %j, dims = [] : (tensor<f32>) -> tensor<4xf32>
  %0 = stablehlo.add %a, %k : tensor<4xf32>
  return %0 : tensor<4xf32>
}"""
    )
    grid = spmd.ProcessGrid(2, 4)
    parts = partitioner.partition(spmd.parse(text), grid)
    a = _array(4)
    inputs = [[partitioner.shard_array(a, parts.in_shardings[0], rank)] for rank in range(8)]
    results = spmd.run_parallel(parts.module, grid, inputs, timeout=30)
    for replica in range(2):
        blocks = [results[4 * replica + device][0] for device in range(4)]
        np.testing.assert_array_equal(partitioner.join_blocks(blocks, parts.out_shardings[0]), a + replica)


def test_of_what_is_on_one_device_the_others_have_nothing() -> None:
    text = (
        _TURNED
        + """
func.func @main(%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@third, []>},
                %b: tensor<4xi1> {sdy.sharding = #sdy.sharding<@third, []>},
                %c: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>})
    -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}, tensor<4xi1>) {
  %0 = stablehlo.add %a, %c : tensor<4xf32>
  return %0, %b : tensor<4xf32>, tensor<4xi1>
}"""
    )
    grid = spmd.ProcessGrid(1, 4)
    parts = partitioner.partition(spmd.parse(text), grid)
    a, b, c = np.array([1, -0.0, np.nan, 4], np.float32), np.array([True, False, True, False]), _array(4)
    blocks = [partitioner.shard_array(c, parts.in_shardings[2], rank) for rank in range(4)]
    inputs = [[a if rank == 3 else a + 7, b if rank == 3 else ~b, blocks[rank]] for rank in range(4)]
    per_device = spmd.run_parallel(parts.module, grid, inputs, timeout=30)
    whole = partitioner.join_blocks([results[0] for results in per_device], parts.out_shardings[0])
    np.testing.assert_array_equal(whole, a + c)
    for results in per_device:
        np.testing.assert_array_equal(results[1], b)


def test_a_device_that_is_not_there() -> None:
    text = (
        _TURNED
        + """sdy.mesh @ninth = <[], device_ids=[9]>
func.func @main(%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<4xf32> {
  %0 = sdy.sharding_constraint %a <@ninth, []> : tensor<4xf32>
  return %0 : tensor<4xf32>
}"""
    )
    with pytest.raises(spmd.CompileError, match="must be less than 4, got 9") as refused:
        partitioner.partition(spmd.parse(text, "here.mlir"))
    assert "here.mlir:" in str(refused.value)


@pytest.mark.parametrize(("kind", "fold"), [("", np.add), ("max", np.maximum), ("min", np.minimum)])
def test_unreduced_arguments_are_what_the_processes_hold(kind: str, fold: np.ufunc) -> None:
    text = (
        _TURNED
        + f"""
func.func @main(%a: tensor<4x6xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}, {{}}], unreduced={kind}{{"y"}}>}})
    -> (tensor<4x6xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}, {{}}]>}},
        tensor<4x6xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}, {{}}], unreduced={kind}{{"y"}}>}}) {{
  %0 = sdy.all_reduce {kind or "sum"} {{"y"}} %a out_sharding=<@mesh, [{{"x"}}, {{}}]> : tensor<4x6xf32>
  return %0, %a : tensor<4x6xf32>, tensor<4x6xf32>
}}"""
    )
    grid = spmd.ProcessGrid(1, 4)
    parts = partitioner.partition(spmd.parse(text), grid)
    random = np.random.default_rng(0)
    held = [random.integers(-9, 9, (2, 6)).astype(np.float32) for _ in range(4)]
    results_of_processes = spmd.run_parallel(parts.module, grid, [[block] for block in held], timeout=30)
    whole = np.concatenate([fold(held[0], held[1]), fold(held[2], held[3])])
    for index, layout in enumerate(parts.out_shardings):
        np.testing.assert_array_equal(
            partitioner.join_blocks([results[index] for results in results_of_processes], layout), whole
        )
    a = _array(4, 6)
    np.testing.assert_array_equal(run_parts(text, [a], 4)[1], a)
