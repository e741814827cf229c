"""What would hang or disagree on real ranks is an error of the simulation as well."""

from typing import Any

import numpy as np
import pytest

import spmd
from tests.backends.collective_programs import ADD

GRID = spmd.ProcessGrid(4, 1)


def simulated(text: str, grid: spmd.ProcessGrid = GRID) -> Any:
    return spmd.simulate(spmd.parse(text, name="test.mlir"), grid)


def under(groups: str) -> str:
    """An all_reduce that only processes with a true predicate come to."""
    body = f"""func.func @main(%p: tensor<i1>, %x: tensor<2xf32>) -> tensor<2xf32> {{
      %r = "stablehlo.if"(%p) ({{
        %a = "stablehlo.all_reduce"(%x) ADD {{replica_groups = {groups}}} : (tensor<2xf32>) -> tensor<2xf32>
        stablehlo.return %a : tensor<2xf32>
      }}, {{
        stablehlo.return %x : tensor<2xf32>
      }}) : (tensor<i1>) -> tensor<2xf32>
      return %r : tensor<2xf32>
    }}"""
    return body.replace("ADD", ADD).replace("tensor<E>", "tensor<f32>")


PAIRS = "dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>"
X = np.arange(8, dtype=np.float32).reshape(4, 2)


def test_a_group_goes_its_way_together() -> None:
    (results,) = simulated(under(PAIRS))(np.array([True, True, False, False]), X)
    assert results.tolist() == [[2, 4], [2, 4], [4, 5], [6, 7]]


def test_a_process_that_waits_in_vain() -> None:
    simulation = simulated(under(PAIRS))
    with pytest.raises(
        spmd.CollectiveError,
        match=r"test.mlir:3:\d+: stablehlo.all_reduce: process 3 comes here, process 2 of its group \[2, 3\] does not",
    ):
        simulation(np.array([True, True, False, True]), X)


PERMUTE = """func.func @main(%n: tensor<i32>, %x: tensor<f32>) -> tensor<f32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<f32>
  cond {
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %k = stablehlo.add %i, %one : tensor<i32>
    %b = "stablehlo.collective_permute"(%a) {source_target_pairs = dense<[[0, 1], [1, 0], [2, 3], [3, 2]]>
      : tensor<4x2xi64>} : (tensor<f32>) -> tensor<f32>
    stablehlo.return %k, %b : tensor<i32>, tensor<f32>
  }
  return %r#1 : tensor<f32>
}"""


def test_each_pair_loops_as_often_as_it_likes() -> None:
    simulation = simulated(PERMUTE)
    x = np.arange(4, dtype=np.float32)
    assert simulation(np.array([1, 1, 2, 2], np.int32), x)[0].tolist() == [1, 0, 2, 3]
    with pytest.raises(spmd.CollectiveError, match=r"process 2 comes here, process 3 of its group \[2, 3\] does not"):
        simulation(np.array([1, 1, 2, 1], np.int32), x)


DYNAMIC = """func.func @main(%x: tensor<2xf32>, %root: tensor<1xi32>) -> tensor<2xf32> {
  %0 = "stablehlo.collective_broadcast"(%x, %root) {replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>,
    has_dynamic_root} : (tensor<2xf32>, tensor<1xi32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}"""


def test_roots_that_are_told_while_running() -> None:
    simulation = simulated(DYNAMIC)
    roots = np.array([[1], [1], [0], [0]], np.int32)
    assert simulation(X, roots)[0].tolist() == [[2, 3], [2, 3], [4, 5], [4, 5]]
    with pytest.raises(spmd.CollectiveError, match=r"process 2 has root 0, process 3 of its group \[2, 3\] root 1"):
        simulation(X, np.array([[1], [1], [0], [1]], np.int32))
    with pytest.raises(spmd.CollectiveError, match=r"root 2 is outside the process group of 2 processes"):
        simulation(X, np.array([[1], [1], [2], [2]], np.int32))


def test_a_process_in_no_group() -> None:
    text = under("dense<[[0, 1, 2]]> : tensor<1x3xi64>")
    with pytest.raises(spmd.CollectiveError, match=r"test.mlir:3:\d+: .*process 3 \(3, 0\) is in none"):
        simulated(text)


TRANSFER = """func.func @main(%x: tensor<2xf32>, %k: !stablehlo.token) -> tensor<2xf32> {
  %s = "stablehlo.send"(%x, %k) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
    source_target_pairs = dense<[[0, 1], [1, 2]]> : tensor<2x2xi64>} : (tensor<2xf32>, !stablehlo.token) -> !stablehlo.token
  %r:2 = "stablehlo.recv"(%s) {channel_handle = #stablehlo.channel_handle<handle = CHANNEL, type = 1>,
    source_target_pairs = dense<[[0, 1], [1, 2]]> : tensor<2x2xi64>} : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
  return %r#0 : tensor<2xf32>
}"""  # noqa: E501


def test_transfers() -> None:
    simulation = simulated(TRANSFER.replace("CHANNEL", "1"))
    assert simulation(X, None)[0].tolist() == [[0, 0], [0, 1], [2, 3], [0, 0]]


def test_a_receive_without_a_send() -> None:
    with pytest.raises(spmd.CollectiveError, match=r"test.mlir:4:\d+: stablehlo.recv: nothing was sent on channel 2"):
        simulated(TRANSFER.replace("CHANNEL", "2"))


FEEDS = """func.func @main() -> tensor<2xf32> {
  %k = stablehlo.create_token : !stablehlo.token
  %x:2 = "stablehlo.infeed"(%k) {infeed_config = ""} : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
  %y = stablehlo.add %x#0, %x#0 : tensor<2xf32>
  %o = "stablehlo.outfeed"(%y, %x#1) {outfeed_config = ""} : (tensor<2xf32>, !stablehlo.token) -> !stablehlo.token
  return %x#0 : tensor<2xf32>
}"""


def test_every_process_has_its_streams() -> None:
    simulation = simulated(FEEDS)
    outfeeds: list[list[Any]] = [[] for _ in range(4)]
    (results,) = simulation(infeed=[[row] for row in X], outfeed=outfeeds)
    assert results.tolist() == X.tolist()
    assert [entry[0].tolist() for entry in outfeeds] == (2 * X).tolist()


def test_an_infeed_that_ends_too_early_names_its_process() -> None:
    with pytest.raises(spmd.ExecutionError, match="the infeed of process 2 is exhausted"):
        simulated(FEEDS)(infeed=[[X[0]], [X[1]], [], [X[3]]])


def test_arguments_that_do_not_fit() -> None:
    simulation = simulated(under(PAIRS))
    with pytest.raises(spmd.ExecutionError, match=r"argument 1: tensor<2xf32> behind a leading axis of 4 processes"):
        simulation(np.array([True]), X[:3])
    with pytest.raises(spmd.ExecutionError, match="takes 2 arguments, got 1"):
        simulation(X)


def test_what_fails_while_running_says_where_processes_are() -> None:
    from spmd.runtime.watch import check_nans

    text = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = stablehlo.log %x : tensor<2xf32>
      return %0 : tensor<2xf32>
    }"""
    simulation = spmd.simulate(spmd.parse(text, name="test.mlir"), GRID, watch=check_nans)
    x = np.ones((4, 2), np.float32)
    x[2, 1] = -1
    with pytest.raises(spmd.ExecutionError, match=r"test.mlir:2:\d+: stablehlo.log: .* the first at \[1\]") as caught:
        simulation(x)
    assert caught.value.__notes__ == [
        "in process 2 (2, 0)",
        "in the stacked program of a 4x1 grid: leading axes of 4 are processes",
    ]


def test_an_argument_that_cannot_be_stacked_has_a_place() -> None:
    text = "\nfunc.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {\n  return %x : tensor<?xf32>\n}"
    with pytest.raises(spmd.CompileError, match=r"test.mlir:2:1: func.func: cannot be stacked: .* is dynamic"):
        simulated(text)
