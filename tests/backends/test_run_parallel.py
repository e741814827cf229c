"""`interpreter.run_parallel`: programs as processes, streams, channels; and how wrong ones are told."""

import numpy as np
import pytest

import spmd
from collectives.threads import single_process
from spmd.compiler.pipeline.options import Options
from spmd.compiler.stack.runs import stack_runs
from spmd.runtime.process import Process


def run(text: str) -> tuple[np.ndarray, ...]:
    executable = spmd.compile(spmd.parse(text, name="t.mlir"))
    return executable.run(Process(spmd.ProcessGrid(1, 1), single_process()), ())


INFEED = """module {
  func.func @one() -> tensor<2xi64> {
    %0 = stablehlo.constant dense<[1, 2]> : tensor<2xi64>
    func.return %0 : tensor<2xi64>
  }
  func.func @two() -> tensor<2xi64> {
    %0 = stablehlo.constant dense<[3, 4]> : tensor<2xi64>
    func.return %0 : tensor<2xi64>
  }
  func.func @read(%t: !stablehlo.token) -> (tensor<2xi64>, tensor<2xi64>, !stablehlo.token) {
    %a:2 = "stablehlo.infeed"(%t) {infeed_config = ""} : (!stablehlo.token) -> (tensor<2xi64>, !stablehlo.token)
    %b:2 = "stablehlo.infeed"(%a#1) {infeed_config = ""} : (!stablehlo.token) -> (tensor<2xi64>, !stablehlo.token)
    func.return %a#0, %b#0, %b#1 : tensor<2xi64>, tensor<2xi64>, !stablehlo.token
  }
  func.func @main() -> (tensor<2xi64>, tensor<2xi64>) {
    %t = stablehlo.after_all : !stablehlo.token
    %r:3 = "interpreter.run_parallel"(%t) {programs = [[@read]], infeed = [@one, @two]}
      : (!stablehlo.token) -> (tensor<2xi64>, tensor<2xi64>, !stablehlo.token)
    func.return %r#0, %r#1 : tensor<2xi64>, tensor<2xi64>
  }
}"""

IDS = """module {
  func.func @id() -> tensor<2xui32> {
    %r = stablehlo.replica_id : tensor<ui32>
    %p = stablehlo.partition_id : tensor<ui32>
    %a = stablehlo.reshape %r : (tensor<ui32>) -> tensor<1xui32>
    %b = stablehlo.reshape %p : (tensor<ui32>) -> tensor<1xui32>
    %0 = stablehlo.concatenate %a, %b, dim = 0 : (tensor<1xui32>, tensor<1xui32>) -> tensor<2xui32>
    func.return %0 : tensor<2xui32>
  }
  func.func @main() -> (tensor<2xui32>, tensor<2xui32>, tensor<2xui32>, tensor<2xui32>) {
    %r:4 = "interpreter.run_parallel"() {programs = [[@id, @id], [@id, @id]]}
      : () -> (tensor<2xui32>, tensor<2xui32>, tensor<2xui32>, tensor<2xui32>)
    func.return %r#0, %r#1, %r#2, %r#3 : tensor<2xui32>, tensor<2xui32>, tensor<2xui32>, tensor<2xui32>
  }
}"""

SEND = """module {
  func.func @send(%x: tensor<2xi64>, %t: !stablehlo.token) -> !stablehlo.token {
    %0 = "stablehlo.send"(%x, %t) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>,
      is_host_transfer = true} : (tensor<2xi64>, !stablehlo.token) -> !stablehlo.token
    func.return %0 : !stablehlo.token
  }
  func.func @idle(%t: !stablehlo.token) -> !stablehlo.token {
    func.return %t : !stablehlo.token
  }
  func.func @main() {
    %x = stablehlo.constant dense<[1, 2]> : tensor<2xi64>
    %t = stablehlo.after_all : !stablehlo.token
    %r:2 = "interpreter.run_parallel"(%x, %t, %t) {programs = [[@send], [@idle]]}
      : (tensor<2xi64>, !stablehlo.token, !stablehlo.token) -> (!stablehlo.token, !stablehlo.token)
    func.return
  }
}"""


def test_infeed_reads_the_results_of_functions_in_order() -> None:
    first, second = run(INFEED)
    np.testing.assert_array_equal(first, [1, 2])
    np.testing.assert_array_equal(second, [3, 4])


def test_stacked_processes_read_one_infeed_in_the_order_of_the_text_and_of_ranks() -> None:
    text = """module {
      func.func @one() -> tensor<i64> { %0 = stablehlo.constant dense<1> : tensor<i64> func.return %0 : tensor<i64> }
      func.func @two() -> tensor<i64> { %0 = stablehlo.constant dense<2> : tensor<i64> func.return %0 : tensor<i64> }
      func.func @three() -> tensor<i64> { %0 = stablehlo.constant dense<3> : tensor<i64> func.return %0 : tensor<i64> }
      func.func @four() -> tensor<i64> { %0 = stablehlo.constant dense<4> : tensor<i64> func.return %0 : tensor<i64> }
      func.func @read(%t: !stablehlo.token) -> (tensor<i64>, tensor<i64>) {
        %a:2 = "stablehlo.infeed"(%t) : (!stablehlo.token) -> (tensor<i64>, !stablehlo.token)
        %b:2 = "stablehlo.infeed"(%a#1) : (!stablehlo.token) -> (tensor<i64>, !stablehlo.token)
        func.return %a#0, %b#0 : tensor<i64>, tensor<i64>
      }
      func.func @main() -> (tensor<i64>, tensor<i64>, tensor<i64>, tensor<i64>) {
        %t = stablehlo.after_all : !stablehlo.token
        %r:4 = "interpreter.run_parallel"(%t, %t) {programs = [[@read, @read]], infeed = [@one, @two, @three, @four]}
          : (!stablehlo.token, !stablehlo.token) -> (tensor<i64>, tensor<i64>, tensor<i64>, tensor<i64>)
        func.return %r#0, %r#1, %r#2, %r#3 : tensor<i64>, tensor<i64>, tensor<i64>, tensor<i64>
      }
    }"""
    stacked, refused = stack_runs(spmd.parse(text), Options())
    executable = spmd.compile(stacked)
    assert not refused
    for _ in range(2):  # each run reads the infeed from its beginning
        results = executable.run(Process(spmd.ProcessGrid(1, 1), single_process()), ())
        assert [int(result) for result in results] == [1, 3, 2, 4]


def test_rows_are_replicas_and_columns_partitions() -> None:
    assert [tuple(ids) for ids in run(IDS)] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_send_on_a_channel_without_receiver_is_found_before_it_runs() -> None:
    with pytest.raises(spmd.CollectiveError, match="process 0 sends on channel 1, and no process receives from it"):
        run(SEND)


def paired(pair: str) -> str:
    text = SEND.replace("is_host_transfer = true", f"source_target_pairs = dense<[[{pair}]]> : tensor<1x2xi64>")
    return text.replace("type = 2", "type = 1")


def test_a_send_that_is_not_received_is_told_with_its_place() -> None:
    words = "process 0 sends a transfer of 2 int64 at t.mlir:3:10 to process 1, which does not receive it"
    with pytest.raises(spmd.CollectiveError, match=words):
        run(paired("0, 1"))


def test_a_receive_that_nobody_serves_is_told_with_its_place() -> None:
    text = paired("1, 0").replace('"stablehlo.send"(%x, %t)', '"stablehlo.recv"(%t)').replace("%0 =", "%0:2 =")
    text = text.replace(": (tensor<2xi64>, !stablehlo.token) -> !stablehlo.token\n    func.return %0",
                        ": (!stablehlo.token) -> (tensor<2xi64>, !stablehlo.token)\n    func.return %0#1")  # fmt: skip
    words = r"deadlock(.|\n)*process 0: waits in .* at t.mlir:3:12, for process 1"
    with pytest.raises(spmd.CollectiveError, match=words):
        run(text)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[[@id, @id], [@id, @id]]", "[[@id, @id], [@id]]", "programs"),
        ("[[@id, @id], [@id, @id]]", "[[@id, @gone], [@id, @id]]", "@gone"),
    ],
)
def test_programs_that_do_not_fit(old: str, new: str, words: str) -> None:
    with pytest.raises(spmd.SpmdError, match=words):
        run(IDS.replace(old, new))
