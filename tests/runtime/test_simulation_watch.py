"""Who watches a simulation is told of processes: which one has a NaN, and whose values are printed."""

import io

import numpy as np
import pytest

import spmd
from spmd.runtime.watch import check_nans, print_each
from spmd.support.arrays import Array

GRID = spmd.ProcessGrid(2, 2)

LOG_OF_PRODUCT = """func.func @main(%x: tensor<2x3xf32>, %w: tensor<3x4xf32>) -> tensor<2x4xf32> {
  %l = stablehlo.log %x : tensor<2x3xf32>
  %y = stablehlo.dot_general %l, %w, contracting_dims = [1] x [0]
    : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  return %y : tensor<2x4xf32>
}"""
CONVOLUTION = """func.func @main(%x: tensor<1x4x2xf32>, %w: tensor<2x2x3xf32>) -> tensor<1x3x3xf32> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x4x2xf32>, tensor<2x2x3xf32>) -> tensor<1x3x3xf32>
  return %y : tensor<1x3x3xf32>
}"""


def fault(text: str, inputs: list[list[Array]], mode: str) -> tuple[str, str]:
    """What the first NaN is told as, and in which process."""
    with pytest.raises(spmd.ExecutionError) as caught:
        spmd.run_parallel(spmd.parse(text, name="test.mlir"), GRID, inputs, mode=mode, watch=check_nans)
    note = next(note for note in caught.value.__notes__ if note.startswith("in process"))
    return str(caught.value), note


ONES, TWOS = np.full((2, 3), 2, np.float32), np.full((3, 4), 2, np.float32)
NEGATIVE = np.array([[2, 2, 2], [2, 2, -2]], np.float32)
INFINITE = np.full((3, 4), np.inf, np.float32)
IMAGE, KERNEL = np.full((1, 4, 2), 2, np.float32), np.full((2, 2, 3), 2, np.float32)
LARGE = KERNEL.copy()
LARGE[1, 1, 2] = 3e38

CASES = {
    "elementwise": (LOG_OF_PRODUCT, [[x, TWOS] for x in (ONES, ONES.copy(), NEGATIVE, ONES)]),
    "product": (LOG_OF_PRODUCT, [[x.copy(), w] for x, w in zip([ONES] * 4, (TWOS, TWOS, INFINITE, TWOS), strict=True)]),
    "product, one side the same": (LOG_OF_PRODUCT, [[ONES, w] for w in (TWOS, TWOS.copy(), INFINITE, TWOS)]),
    "convolution": (CONVOLUTION, [[IMAGE.copy(), w] for w in (KERNEL, KERNEL.copy(), LARGE, KERNEL)]),
    "convolution, one side the same": (CONVOLUTION, [[IMAGE, w] for w in (KERNEL, KERNEL.copy(), LARGE, KERNEL)]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_nan_is_told_as_by_its_process(name: str) -> None:
    text, inputs = CASES[name]
    told, process = fault(text, inputs, "stacked")
    assert process == "in process 2 (1, 0)"
    assert (told, "in process 2") == fault(text, inputs, "threads")


BRANCH = """func.func @main(%p: tensor<i1>, %x: tensor<2xf32>) -> tensor<2xf32> {
  %minus = stablehlo.constant dense<-1.0> : tensor<2xf32>
  %r = "stablehlo.if"(%p) ({
    %l = stablehlo.log %x : tensor<2xf32>
    %z = stablehlo.multiply %x, %minus : tensor<2xf32>
    stablehlo.return %l : tensor<2xf32>
  }, { stablehlo.return %x : tensor<2xf32> }) : (tensor<i1>) -> tensor<2xf32>
  return %r : tensor<2xf32>
}"""
VALUES = np.array([[1, 2], [-1, 1], [3, 4], [1, -2]], np.float32)


@pytest.mark.parametrize("memory", [1, 100, 200])
def test_a_nan_is_that_of_its_process_in_chunks_too(memory: int) -> None:
    grid = spmd.ProcessGrid(7, 1)
    inputs = [np.full((7, 2, 3), 2, np.float32), np.broadcast_to(TWOS, (7, *TWOS.shape))]
    inputs[0][5, 1, 2] = -1
    simulation = spmd.simulate(spmd.parse(LOG_OF_PRODUCT, name="test.mlir"), grid, watch=check_nans, memory=memory)
    with pytest.raises(spmd.ExecutionError, match=r"stablehlo.log: .* 1 of 6 .* at \[1, 2\]: nan") as caught:
        simulation(*inputs)
    assert "in process 5 (5, 0)" in caught.value.__notes__
    assert "slice" in str(simulation.module)


def test_a_nan_of_a_branch_that_a_process_does_not_take_is_none() -> None:
    simulation = spmd.simulate(spmd.parse(BRANCH, name="test.mlir"), GRID, watch=check_nans)
    (results,) = simulation(np.array([True, False, True, False]), VALUES)
    assert np.isfinite(results).all()
    with pytest.raises(
        spmd.ExecutionError, match=r"test.mlir:4:10: stablehlo.log: .* 1 of 2 .* at \[1\]: nan"
    ) as caught:
        simulation(np.array([True, False, True, True]), VALUES)
    assert "in process 3 (1, 1)" in caught.value.__notes__


def test_values_are_printed_process_by_process() -> None:
    file = io.StringIO()
    simulation = spmd.simulate(
        spmd.parse("func.func @main(%x: tensor<i32>) -> tensor<i32> {\n  %y = stablehlo.negate %x : tensor<i32>\n"
                   "  return %y : tensor<i32>\n}", name="test.mlir"),
        GRID,
        watch=lambda unit, run: print_each(unit, run, file),
    )  # fmt: skip
    simulation(np.arange(4, dtype=np.int32))
    assert file.getvalue().splitlines() == [
        f"test.mlir:2:8: process {rank} {GRID.process_id(rank)}: stablehlo.negate %y : tensor<i32> = {-rank}"
        for rank in range(4)
    ]
