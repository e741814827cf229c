"""Collective ops in programs, on in-process ranks."""

import numpy as np
import pytest

import spmd
from spmd.builder import F32, Shape, XlaBuilder, ops
from tests.backends.collective_programs import PROGRAMS, REPLICAS, SQUARE, all_reduce


@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_the_specification(name: str, reproducible: bool) -> None:
    program = PROGRAMS[name]
    module = spmd.parse(program.text, name="test.mlir")
    inputs = [program.inputs(rank) for rank in range(4)]
    results = spmd.run_parallel(module, program.grid, inputs, reproducible=reproducible)
    for rank, got in enumerate(results):
        expected = program.expected(rank)
        assert len(got) == len(expected)
        for actual, desired in zip(got, expected, strict=True):
            np.testing.assert_array_equal(actual, desired, strict=True)


@pytest.mark.parametrize(
    ("flag", "groups", "expected"),
    [
        ("", "[[0, 1]]", [1111.0] * 4),
        ("use_global_device_ids = false,", "[[0, 1]]", [1111.0] * 4),
        ("use_global_device_ids = true,", "[[0, 1], [2, 3]]", [11.0, 11.0, 1100.0, 1100.0]),
        ("use_global_device_ids,", "[[0, 1], [2, 3]]", [11.0, 11.0, 1100.0, 1100.0]),
    ],
)
def test_global_device_ids_may_be_said_to_be_used_or_not(flag: str, groups: str, expected: list[float]) -> None:
    """With a channel: groups of replicas across all partitions, or of flattened ids."""
    count = groups.count("], ") + 1
    text = f"""func.func @main(%x: tensor<1xf32>) -> tensor<1xf32> {{
      %0 = "stablehlo.all_reduce"(%x) ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %c = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %c : tensor<f32>
      }}) {{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, {flag}
           replica_groups = dense<{groups}> : tensor<{count}x2xi64>}} : (tensor<1xf32>) -> tensor<1xf32>
      return %0 : tensor<1xf32>
    }}"""
    module = spmd.parse(str(spmd.parse(text)))
    inputs = [(np.float32([10**rank]),) for rank in range(4)]
    results = spmd.run_parallel(module, spmd.ProcessGrid(2, 2), inputs)
    assert [float(array[0]) for (array,) in results] == expected


def test_a_process_in_no_group_is_an_error() -> None:
    module = spmd.parse(all_reduce("replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>"), name="test.mlir")
    with pytest.raises(spmd.CollectiveError, match=r"process 3 is in none of the process groups"):
        spmd.run_parallel(module, REPLICAS, [(np.zeros(4, np.float32),)] * 4)


def test_groups_that_do_not_fit_the_grid_are_found_when_compiling() -> None:
    module = spmd.parse(all_reduce("replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>"), name="test.mlir")
    with pytest.raises(spmd.CollectiveError, match="on a 2x2 process grid: replica id 2 is out of range"):
        spmd.compile(module, SQUARE)


def test_pairs_that_do_not_fit_the_grid_are_found_when_compiling() -> None:
    module = spmd.parse(PROGRAMS["collective_permute: a ring, a self send, zeros"].text, name="test.mlir")
    with pytest.raises(spmd.CollectiveError, match="on a 2x2 process grid: source_target_pairs, source: partition"):
        spmd.compile(module, SQUARE)


def test_processes_that_disagree_are_named_with_their_lines() -> None:
    one = spmd.parse(all_reduce("replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>"), name="one.mlir")
    text = all_reduce("replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>")
    other = spmd.parse(text.replace("stablehlo.add", "stablehlo.maximum"), name="other.mlir")
    grid = spmd.ProcessGrid(2, 1)
    with pytest.raises(spmd.CollectiveError) as caught:
        spmd.run_parallel([[one], [other]], grid, [(np.zeros(4, np.float32),)] * 2)
    message = str(caught.value)
    assert "process 0: all_reduce add of 4 float32 among [0, 1] at one.mlir:2:6" in message
    assert "process 1: all_reduce maximum of 4 float32 among [0, 1] at other.mlir:2:6" in message


def test_waiting_for_a_process_that_ends_is_told() -> None:
    one = spmd.parse(all_reduce("replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>"), name="one.mlir")
    other = spmd.parse("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }")
    words = r"process 0: all_reduce add of 4 float32 among \[0, 1\] at one.mlir:2:6\n  process 1: has ended"
    with pytest.raises(spmd.CollectiveError, match=words):
        spmd.run_parallel([[one], [other]], spmd.ProcessGrid(2, 1), [(np.zeros(4, np.float32),)] * 2)


GATHERED = """func.func @main(%x: tensor<2xi64>) -> tensor<{0}xi64> {{
  %0 = "stablehlo.all_gather"(%x) {{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}}
    : (tensor<2xi64>) -> tensor<{0}xi64>
  %1 = stablehlo.add %0, %0 : tensor<{0}xi64>
  return %1 : tensor<{0}xi64>
}}"""
SCATTERED = """func.func @main(%x: tensor<8xi64>) -> tensor<{0}xi64> {{
  %0 = "stablehlo.reduce_scatter"(%x) ({{
    ^bb0(%a: tensor<i64>, %b: tensor<i64>):
      %c = stablehlo.add %a, %b : tensor<i64>
      stablehlo.return %c : tensor<i64>
  }}) {{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}}
    : (tensor<8xi64>) -> tensor<{0}xi64>
  return %0 : tensor<{0}xi64>
}}"""


@pytest.mark.parametrize(
    ("text", "size", "fits"),
    [(GATHERED, 4, True), (GATHERED, 9_000_000, False), (SCATTERED, 4, True), (SCATTERED, 8, False)],
)
def test_a_result_that_the_group_does_not_give_is_refused(text: str, size: int, fits: bool) -> None:
    """all_gather (C6) and reduce_scatter (C8) depend on the group's size, which the process grid tells."""
    module, grid = spmd.parse(text.format(size)), spmd.ProcessGrid(2)
    operand = np.arange(8 if text is SCATTERED else 2)
    if fits:
        assert spmd.run_parallel(module, grid, [[operand]] * 2)[1][0].shape == (size,)
        return
    for compile_for in (spmd.compile, spmd.simulate):
        with pytest.raises(
            spmd.CollectiveError, match=rf":2:\d+: .*group of 2 processes must have shape \(4,\), got .*<{size}x"
        ):
            compile_for(module, grid)


def test_every_transport_is_given_what_the_builder_declares() -> None:
    b = XlaBuilder("gather")
    ops.AllGather(ops.Parameter(b, 0, Shape.array_shape(F32, (2,))), 0, 1000)
    with pytest.raises(spmd.CollectiveError, match=r"got tensor<2000xf32>"):
        spmd.compile(b.Build().to_stablehlo(), spmd.ProcessGrid(2))
