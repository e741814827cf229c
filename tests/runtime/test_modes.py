"""run_parallel's modes: the same results from threads and from one stacked program, and who is told what."""

import logging

import numpy as np
import pytest

import spmd
from tests.backends.collective_programs import PROGRAMS
from tests.backends.modules import main
from tests.compiler.stacking import same_bits


@pytest.mark.parametrize("name", ["cross_replica", "flattened_ids", "collective_permute: a ring, a self send, zeros"])
def test_both_give_the_same(name: str) -> None:
    program = PROGRAMS[name]
    inputs = [program.inputs(rank) for rank in range(program.grid.size)]
    module = spmd.parse(program.text)
    stacked, threads = (spmd.run_parallel(module, program.grid, inputs, mode=mode) for mode in ("stacked", "threads"))
    for left, right in zip(stacked, threads, strict=True):
        assert all(same_bits(*pair) for pair in zip(left, right, strict=True))


SUM = main(
    """%1 = "stablehlo.all_reduce"(%0) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %c : tensor<f32>
    }) {replica_groups = dense<> : tensor<0x0xi64>} : (tensor<2xf32>) -> tensor<2xf32>""",
    [np.zeros(2, np.float32)],
    "%1 : tensor<2xf32>",
)


def test_results_belong_to_their_process() -> None:
    x = np.ones(2, np.float32)
    results = spmd.run_parallel(spmd.parse(SUM), spmd.ProcessGrid(20, 1), [[x]] * 20)
    results[0][0][...] = 0
    assert results[1][0].tolist() == [20, 20]


def test_many_processes_are_stacked_unless_they_cannot_be(caplog: pytest.LogCaptureFixture) -> None:
    text = """func.func @main(%n: tensor<1xi32>) -> tensor<?xi32> {
      %0 = stablehlo.dynamic_iota %n, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
      return %0 : tensor<?xi32>
    }"""
    inputs = [[np.array([rank], np.int32)] for rank in range(17)]
    grid = spmd.ProcessGrid(17, 1)
    with caplog.at_level(logging.INFO, logger="spmd"):
        results = spmd.run_parallel(spmd.parse(text), grid, inputs)
    assert [result.shape for (result,) in results] == [(rank,) for rank in range(17)]
    assert "run as threads" in caplog.text
    assert "dynamic_iota" in caplog.text
    with pytest.raises(spmd.CompileError, match="cannot be stacked"):
        spmd.run_parallel(spmd.parse(text), grid, inputs, mode="stacked")


def test_different_programs_are_stacked_program_by_program() -> None:
    modules = [[spmd.parse(SUM)], [spmd.parse(SUM)]]
    inputs = [[np.ones(2, np.float32)]] * 2
    for mode in ("threads", "stacked"):
        assert spmd.run_parallel(modules, inputs=inputs, mode=mode)[0][0].tolist() == [2, 2]


def test_a_process_with_wrong_arguments_is_named() -> None:
    inputs = [[np.ones(2, np.float32)] for _ in range(20)]
    inputs[7] = [np.ones(3, np.float32)]
    with pytest.raises(spmd.ExecutionError, match=r"tensor<2xf32> is needed") as caught:
        spmd.run_parallel(spmd.parse(SUM), spmd.ProcessGrid(20, 1), inputs)
    assert caught.value.__notes__ == ["in process 7"]
    inputs[7] = []
    with pytest.raises(spmd.ExecutionError, match="takes 1 arguments, got 0 for process 7"):
        spmd.run_parallel(spmd.parse(SUM), spmd.ProcessGrid(20, 1), inputs)


def test_an_unknown_mode() -> None:
    with pytest.raises(spmd.UsageError, match='mode is "auto", "stacked" or "threads"'):
        spmd.run_parallel(spmd.parse(SUM), spmd.ProcessGrid(2, 1), mode="fast")
