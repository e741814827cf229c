"""What belongs to a process belongs to it in a simulation: transfers and streams under predicates, probes, checks."""

from typing import Any

import numpy as np
import pytest

import spmd
from spmd.support.arrays import Array

GRID = spmd.ProcessGrid(2, 2)
X = np.arange(8, dtype=np.float32).reshape(4, 2)

TRANSFER = """func.func @main(%p: tensor<i1>, %q: tensor<i1>, %x: tensor<2xf32>) -> tensor<2xf32> {
  %k = stablehlo.create_token : !stablehlo.token
  %a = "stablehlo.if"(%p) ({
    %s = "stablehlo.send"(%x, %k) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, PAIRS}
      : (tensor<2xf32>, !stablehlo.token) -> !stablehlo.token
    stablehlo.return %s : !stablehlo.token
  }, { stablehlo.return %k : !stablehlo.token }) : (tensor<i1>) -> !stablehlo.token
  %b = "stablehlo.if"(%q) ({
    %r:2 = "stablehlo.recv"(%a) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, PAIRS}
      : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
    stablehlo.return %r#0 : tensor<2xf32>
  }, { stablehlo.return %x : tensor<2xf32> }) : (tensor<i1>) -> tensor<2xf32>
  return %b : tensor<2xf32>
}""".replace("PAIRS", "source_target_pairs = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>")


def transferred(text: str, sends: list[bool], receives: list[bool], mode: str) -> list[list[float]]:
    module = spmd.parse(text, name="test.mlir")
    inputs = [[np.bool_(p), np.bool_(q), x] for p, q, x in zip(sends, receives, X, strict=True)]
    options: Any = {"timeout": 120.0, "abort": True, "mode": mode}
    return [array.tolist() for (array,) in spmd.run_parallel(module, spmd.ProcessGrid(1, 4), inputs, **options)]


@pytest.mark.parametrize("mode", ["threads", "stacked"])
@pytest.mark.parametrize("everyone", [False, True])
def test_a_transfer_of_those_that_come_to_its_ends(mode: str, everyone: bool) -> None:
    sends, receives = ([True] * 4, [True] * 4) if everyone else ([True, False] * 2, [False, True] * 2)
    expected = [[0, 0], [0, 1], [0, 0], [4, 5]] if everyone else [[0, 1], [0, 1], [4, 5], [4, 5]]
    assert transferred(TRANSFER, sends, receives, mode) == expected


@pytest.mark.parametrize("mode", ["threads", "stacked"])
def test_a_process_that_nobody_sends_to_is_named(mode: str) -> None:
    with pytest.raises(spmd.CollectiveError, match=r"process 3(.|\n)*waits(.|\n)*process 2") as caught:
        transferred(TRANSFER, [True, False, False, False], [False, True] * 2, mode)
    assert "test.mlir:9:12" in str(caught.value)


@pytest.mark.parametrize("mode", ["threads", "stacked"])
def test_a_process_that_does_not_receive_is_named(mode: str) -> None:
    text = r"process 2 sends.*test.mlir:4:10 to process 3, which does not receive it"
    with pytest.raises(spmd.CollectiveError, match=text):
        transferred(TRANSFER, [True, False] * 2, [False, True, False, False], mode)


def test_transfers_whose_order_hangs_on_predicates_run_as_threads() -> None:
    twice = TRANSFER.replace("%a = ", "%z = ").replace("return %x : tensor<2xf32> })", "return %x : tensor<2xf32> })")
    first, second = twice.split("  %b = ")[0], twice.split("  %b = ")[1]
    again = first.split("token\n", 1)[1].replace("%z", "%a").replace("%k)", "%z)").replace("return %k", "return %z")
    text = first + again + "  %b = " + second
    sends, receives = [True, False] * 2, [False, True] * 2
    with pytest.raises(spmd.CompileError, match="predicates that differ decide what is sent and received first"):
        transferred(text, sends, receives, "stacked")
    with pytest.raises(spmd.CollectiveError, match="does not receive it"):
        transferred(text, sends, receives, "threads")


FEEDS = """func.func @main(%n: tensor<i32>) -> tensor<2xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %sum = stablehlo.constant dense<0.0> : tensor<2xf32>
  %k = stablehlo.create_token : !stablehlo.token
  %r:3 = stablehlo.while(%i = %zero, %a = %sum, %t = %k) : tensor<i32>, tensor<2xf32>, !stablehlo.token
  cond {
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    %x:2 = "stablehlo.infeed"(%t) {infeed_config = ""} : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
    %b = stablehlo.add %a, %x#0 : tensor<2xf32>
    %o = "stablehlo.outfeed"(%b, %j, %x#1) {outfeed_config = ""}
      : (tensor<2xf32>, tensor<i32>, !stablehlo.token) -> !stablehlo.token
    stablehlo.return %j, %b, %o : tensor<i32>, tensor<2xf32>, !stablehlo.token
  }
  return %r#1 : tensor<2xf32>
}"""


def fed(turns: list[int], entries: list[list[Array]], mode: str) -> tuple[list[list[float]], list[list[Any]]]:
    """Results, and what each process has written: sums so far, each with its turn."""
    outfeeds: list[list[Any]] = [[] for _ in turns]
    results = spmd.run_parallel(
        spmd.parse(FEEDS, name="test.mlir"),
        GRID,
        [[np.int32(count)] for count in turns],
        infeed=entries,
        outfeed=outfeeds,
        mode=mode,
    )
    told = [[(array.tolist(), int(turn)) for array, turn in entries] for entries in outfeeds]
    return [array.tolist() for (array,) in results], told


def test_each_process_reads_and_writes_as_often_as_it_comes_to_it() -> None:
    turns = [2, 0, 1, 3]
    entries = [[X[rank] + turn for turn in range(count)] for rank, count in enumerate(turns)]
    stacked = fed(turns, entries, "stacked")
    assert stacked == fed(turns, entries, "threads")
    assert stacked[1][2] == [([4.0, 5.0], 1)] and not stacked[1][1]


@pytest.mark.parametrize("mode", ["threads", "stacked"])
@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ([], "the infeed of process 3 is exhausted"),
        ([np.zeros(3, np.float32)], "the infeed of process 3 gives float32 of shape (3,) where tensor<2xf32> is read"),
    ],
)
def test_a_stream_that_is_wrong_names_process_op_and_line(mode: str, entry: list[Array], said: str) -> None:
    with pytest.raises(spmd.ExecutionError) as caught:
        fed([0, 1, 1, 1], [[], [X[1]], [X[2]], entry], mode)
    assert said in str(caught.value) and "test.mlir:12:12: stablehlo.infeed" in str(caught.value)
    assert any("in process 3" in note for note in caught.value.__notes__)


LOOKED_AT = """func.func @main(%p: tensor<i1>, %x: tensor<2xf32>, %expected: tensor<2xf32>) -> tensor<2xf32> {
  %r = "stablehlo.if"(%p) ({
    %y = interpreter.probe %x, probe_id = "x" : tensor<2xf32>
    interpreter.print %y : tensor<2xf32>
    stablehlo.return %y : tensor<2xf32>
  }, { stablehlo.return %x : tensor<2xf32> }) : (tensor<i1>) -> tensor<2xf32>
  %z = interpreter.probe %r, probe_id = "x" : tensor<2xf32>
  check.expect_serialized_eq %expected, probe_id = "x", iter = 1 : tensor<2xf32>
  return %z : tensor<2xf32>
}"""


@pytest.mark.parametrize("mode", ["threads", "stacked"])
def test_a_probe_sees_what_its_process_comes_to(mode: str, capfd: pytest.CaptureFixture[str]) -> None:
    module = spmd.parse(LOOKED_AT, name="test.mlir")
    inputs = [[np.bool_(True), x, x] for x in X]
    spmd.run_parallel(module, GRID, inputs, mode=mode)
    assert sorted(capfd.readouterr().out.splitlines()) == [
        f"test.mlir:4:5: process {rank} {GRID.process_id(rank)}: %y = {x}" for rank, x in enumerate(X)
    ]
    inputs[2][0] = np.bool_(False)
    with pytest.raises(spmd.ExecutionError, match="probe 'x' saw 1 values, none at iteration 1") as caught:
        spmd.run_parallel(module, GRID, inputs, mode=mode)
    assert any("in process 2" in note for note in caught.value.__notes__)
    assert "process 2" not in capfd.readouterr().out


def test_a_check_is_made_by_the_processes_that_come_to_it() -> None:
    text = """func.func @main(%p: tensor<i1>, %x: tensor<f32>) {
      "stablehlo.if"(%p) ({
        check.expect_eq_const %x, dense<2.0> : tensor<f32>
        stablehlo.return
      }, { stablehlo.return }) : (tensor<i1>) -> ()
      return
    }"""
    simulation = spmd.simulate(spmd.parse(text), GRID)
    values = np.array([2, 3, 2, 4], np.float32)
    simulation(np.array([True, False, True, False]), values)
    with pytest.raises(spmd.ExecutionError, match="4") as caught:
        simulation(np.array([True, False, True, True]), values)
    assert "in process 3 (1, 1)" in caught.value.__notes__
