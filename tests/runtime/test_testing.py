"""The plugin for users' tests, on in-process ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import spmd

if TYPE_CHECKING:
    from spmd.testing import Run

pytest_plugins = ["spmd.testing", "pytester"]

SUM = """
    func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = "stablehlo.cross-replica-sum"(%x) {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}
        : (tensor<2xf32>) -> tensor<2xf32>
      return %0 : tensor<2xf32>
    }"""


def operand(rank: int) -> list[np.ndarray]:
    return [np.full(2, rank, np.float32)]


@pytest.mark.parametrize("mode", ["threads", "stacked"])
def test_a_value_a_process(spmd_run: Run, mode: str) -> None:
    run = spmd_run(SUM, (4, 1), operand, mode=mode)
    run.expect(lambda rank: [np.full(2, 6, np.float32)])
    run.expect([[np.full(2, 6, np.float32)]] * 4)
    assert run[3][0][0] == 6


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (np.full(2, 7, np.float32), r"process 2 \(2, 0\), result 0:(.|\n)*Mismatched elements: 2 / 2"),
        (np.full(2, 6, np.float64), r"result 0: float32 of shape \(2,\), expected float64 of \(2,\)"),
    ],
)
def test_a_difference_is_told_with_its_process(spmd_run: Run, wrong: np.ndarray, words: str) -> None:
    run = spmd_run(SUM, (4, 1), operand)
    with pytest.raises(AssertionError, match=words) as caught:
        run.expect(lambda rank: [wrong if rank == 2 else np.full(2, 6, np.float32)])
    assert "process 1 " not in str(caught.value)


def test_tolerances_and_options(spmd_run: Run) -> None:
    run = spmd_run(SUM, spmd.ProcessGrid(4, 1), operand, reproducible=True)
    run.expect(lambda rank: [np.full(2, 6.01, np.float32)], rtol=0.01)
    with pytest.raises(AssertionError, match="there are 1 results, 2 are expected"):
        run.expect(lambda rank: [1, 2])


ONE = [np.full(2, 1, np.float32)]


@pytest.mark.parametrize(
    ("grid", "inputs", "words"),
    [
        (2, [ONE] * 2, r"\(replicas, partitions\) or a ProcessGrid, got 2: \(2, 1\) for 2 replicas, \(1, 2\) for 2"),
        ((4, 1, 1), [ONE] * 4, r"\(replicas, partitions\) or a ProcessGrid, got \(4, 1, 1\)"),
        ((4, 1), [ONE], "as one entry per process: 4 on a 4x1 grid, got 1"),
        ((4, 1), [ONE] * 5, "as one entry per process: 4 on a 4x1 grid, got 5"),
        ((4, 1), ONE, "as one entry per process: 4 on a 4x1 grid, got 1"),
        ((4, 1), 5, "as one entry per process, got int"),
        ((4, 1), [ONE, ONE, ONE, 5], "inputs of process 3 must be a sequence of arrays, got int"),
    ],
)
def test_what_does_not_fit_the_grid_is_told(spmd_run: Run, grid: object, inputs: object, words: str) -> None:
    with pytest.raises(spmd.UsageError, match=words):
        spmd_run(SUM, grid, inputs)


def test_what_is_expected_has_an_entry_a_process(spmd_run: Run) -> None:
    run = spmd_run(SUM, (4, 1), operand)
    with pytest.raises(spmd.UsageError, match="as one entry per process: 4 on a 4x1 grid, got 1"):
        run.expect([ONE])
    with pytest.raises(spmd.UsageError, match="spmd_run takes a module, got int"):
        spmd_run(5)


COUNTING = """
    func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %r = stablehlo.custom_call @count_visits(%x) {has_side_effect = true} : (tensor<2xf32>) -> tensor<2xf32>
      return %r : tensor<2xf32>
    }"""


def test_orders_are_explored(spmd_run: Run) -> None:
    run = spmd_run(SUM, (4, 1), operand, explore=5)
    run.expect(lambda rank: [np.full(2, 6, np.float32)])
    calls = iter(range(10_000))
    spmd.register_custom_call("count_visits", lambda x, attributes: np.float32(x + next(calls)))
    with pytest.raises(AssertionError, match="two orders differ"):
        spmd_run(COUNTING, (2, 1), operand, explore=5)


FAILING = """
import pytest, spmd
def test_program():
    spmd.parse("func.func @main() { foo }")
def test_call():
    spmd.ProcessGrid(0, 1)
def test_defect(monkeypatch):
    monkeypatch.setattr("spmd.io.reading._parse", lambda *words, **named: 1 // 0)
    spmd.parse("func.func @main() { return }")
"""


def test_a_report_shows_the_frames_of_the_test_unless_spmd_itself_is_wrong(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FAILING)
    lines = pytester.runpytest_inprocess("-p", "spmd.testing", "-p", "no:xdist").outlines
    report = "\n".join(lines)
    program, call, defect = (report.index(f"_ test_{name} _") for name in ("program", "call", "defect"))
    assert "<string>:1:21: custom form of unknown operation 'foo'" in report[program:call]
    assert not any(f"{package}/" in report[program:defect] for package in ("spmd", "collectives"))
    assert "spmd/io/reading.py" in report[defect:] and "ZeroDivisionError" in report[defect:]


def test_modules_of_spmd_are_compiled_as_they_are() -> None:
    """pytest leaves them to Python's own loader: rewriting their assertions took seconds in each process."""
    import launch.cli
    import spmd.ir.values

    for module in (spmd.ir.values, launch.cli):
        assert type(module.__loader__).__module__ == "_frozen_importlib_external"
