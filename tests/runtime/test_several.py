"""Different programs stacked program by program: the threads' results, and the same refusals."""

import logging

import numpy as np
import pytest

import spmd
from tests.compiler.stacking import same_bits

GROUPS = "dense<[[0, 1, 2], [3, 4, 5]]> : tensor<2x3xi64>"


def program(before: str, after: str, groups: str = GROUPS) -> str:
    return f"""
module attributes {{mhlo.num_replicas = 6 : i32}} {{
  func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<ui32>, tensor<4xf32>) {{
    %a = stablehlo.{before} %x : tensor<4xf32>
    %s = "stablehlo.all_reduce"(%a) <{{replica_groups = {groups}}}> ({{
      ^bb0(%l: tensor<f32>, %r: tensor<f32>):
        %sum = stablehlo.add %l, %r : tensor<f32>
        stablehlo.return %sum : tensor<f32>
    }}) : (tensor<4xf32>) -> tensor<4xf32>
    %b = stablehlo.{after} %s : tensor<4xf32>
    %p = "stablehlo.collective_permute"(%b) <{{source_target_pairs = dense<[[0, 3], [3, 5]]> : tensor<2x2xi64>}}>
      : (tensor<4xf32>) -> tensor<4xf32>
    %id = stablehlo.replica_id : tensor<ui32>
    %c = stablehlo.constant dense<1.0> : tensor<4xf32>
    return %p, %id, %c : tensor<4xf32>, tensor<ui32>, tensor<4xf32>
  }}
}}"""


FIRST = spmd.parse(program("sine", "cosine"))
SECOND = spmd.parse(program("exponential", "negate"))
INPUTS = [[np.linspace(rank, rank + 1, 4, dtype=np.float32)] for rank in range(6)]


@pytest.mark.parametrize(
    "table",
    [
        [[FIRST], [SECOND], [SECOND], [FIRST], [FIRST], [SECOND]],
        [[SECOND], *[[FIRST]] * 5],
        [[FIRST]] * 5 + [[SECOND]],
    ],
)
def test_each_process_gets_what_its_thread_gets(table: list[list[spmd.Module]]) -> None:
    threads = spmd.run_parallel(table, None, INPUTS, mode="threads")
    stacked = spmd.run_parallel(table, None, INPUTS, mode="stacked")
    for left, right in zip(threads, stacked, strict=True):
        assert all(same_bits(a, b) for a, b in zip(left, right, strict=True))


def test_programs_of_other_arguments_and_results() -> None:
    text = """
module attributes {mhlo.num_replicas = 20 : i32} {
  func.func @main(%x: tensor<3xf32>, %y: tensor<3xf32>) -> tensor<3xf32> {
    %p = stablehlo.multiply %x, %y : tensor<3xf32>
    %r = "stablehlo.collective_broadcast"(%p) <{replica_groups = dense<[ROWS]> : tensor<1x20xi64>}>
      : (tensor<3xf32>) -> tensor<3xf32>
    return %r : tensor<3xf32>
  }
}""".replace("ROWS", str(list(range(20))))
    giver = spmd.parse(text)
    taker = spmd.parse(text.replace("%x: tensor<3xf32>, %y", "%y").replace("%x, %y", "%y, %y"))
    table = [[giver], *[[taker]] * 19]
    ones = np.ones(3, np.float32)
    inputs = [[2 * ones, 3 * ones], *[[ones]] * 19]
    # More than sixteen processes are stacked without being asked.
    results = spmd.run_parallel(table, None, inputs)
    assert all(result.tolist() == [6.0] * 3 for (result,) in results)


def test_what_cannot_be_stacked_runs_as_threads(caplog: pytest.LogCaptureFixture) -> None:
    looped = """
module attributes {mhlo.num_replicas = 20 : i32} {
  func.func @main(%x: tensor<f32>) -> tensor<f32> {
    %p = stablehlo.constant dense<true> : tensor<i1>
    %n = stablehlo.compare EQ, %x, %x : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %q = stablehlo.and %p, %n : tensor<i1>
    %r = "stablehlo.if"(%q) ({
      %s = "stablehlo.cross-replica-sum"(%x) {replica_groups = dense<> : tensor<0x0xi64>} : (tensor<f32>) -> tensor<f32>
      stablehlo.return %s : tensor<f32>
    }, {
      stablehlo.return %x : tensor<f32>
    }) : (tensor<i1>) -> tensor<f32>
    %t = stablehlo.sine %r : tensor<f32>
    return %t : tensor<f32>
  }
}"""
    first, second = spmd.parse(looped), spmd.parse(looped.replace("sine", "cosine"))
    table, inputs = [[first], *[[second]] * 19], [[np.float32(1)]] * 20
    with caplog.at_level(logging.INFO, "spmd"):
        results = spmd.run_parallel(table, None, inputs)
    assert results[0][0] == np.sin(np.float32(20)) and "run as threads" in caplog.text
    with pytest.raises(spmd.CompileError, match="different programs meet outside of control flow"):
        spmd.run_parallel(table, None, inputs, mode="stacked")


def test_programs_that_do_not_meet_are_an_error() -> None:
    other = spmd.parse(program("sine", "cosine", "dense<[[0, 1, 2, 3, 4, 5]]> : tensor<1x6xi64>"))
    with pytest.raises(spmd.CollectiveError):
        spmd.run_parallel([[FIRST], *[[other]] * 5], None, INPUTS, mode="stacked")
