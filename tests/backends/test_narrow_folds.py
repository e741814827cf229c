"""Sums and products of narrow floats: in f32 and rounded once, by whatever op, in whatever order, on any transport.

A fold that rounds after each step, as the specification's own loop and XLA's CPU back end do, loses more than the
type's own precision where what is folded nearly cancels. What is drawn here has sums that f32 holds, so that there is
one right result.
"""

import ml_dtypes
import numpy as np
import pytest

import spmd
from spmd.support.arrays import Array

TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f8E5M2": ml_dtypes.float8_e5m2}
GRID = spmd.ProcessGrid(num_replicas=4, num_partitions=1)


def nearly_cancelling(element: str, *shape: int) -> Array:
    """Numbers of both signs along the first dimension, of which every sum is a multiple of 1/4 below 2^20."""
    rng = np.random.default_rng(5)
    half = rng.integers(-64, 65, shape) * 2.0 ** rng.integers(-2, 3, shape)
    values = half.astype(TYPES[element])
    values[1::2] = -values[: len(values) // 2 * 2 : 2] + rng.integers(-1, 2, values[1::2].shape).astype(values.dtype)
    return values


def add(element: str) -> str:
    return f"""({{ ^bb0(%a: tensor<{element}>, %o: tensor<{element}>):
      %sum = stablehlo.add %a, %o : tensor<{element}>
      stablehlo.return %sum : tensor<{element}> }})"""


def program(element: str, length: int) -> str:
    """Along the first and the last dimension: totals by reduce, running ones by reduce_window, sums by scatter."""
    rows, columns = f"tensor<{length}x5x{element}>", f"tensor<5x{length}x{element}>"
    total, one = f"tensor<5x{element}>", f"tensor<{element}>"
    running = """<{{padding = dense<{padding}> : tensor<2x2xi64>, window_dimensions = array<i64: {sizes}>}}>"""
    down = running.format(padding=f"[[{length - 1}, 0], [0, 0]]", sizes=f"{length}, 1")
    along = running.format(padding=f"[[0, 0], [{length - 1}, 0]]", sizes=f"1, {length}")
    backwards = running.format(padding=f"[[0, 0], [0, {length - 1}]]", sizes=f"1, {length}")
    whole = "<{window_dimensions = array<i64: 1, " + str(length) + ">}>"
    types = f"{total}, {total}, {rows}, {columns}, {columns}, tensor<5x1x{element}>, {total}"
    return f"""func.func @main(%x: {rows}) -> ({types}) {{
      %z = stablehlo.constant dense<0.0> : {one}
      %t = stablehlo.transpose %x, dims = [1, 0] : ({rows}) -> {columns}
      %r = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0] : ({rows}, {one}) -> {total}
      %s = stablehlo.reduce(%t init: %z) applies stablehlo.add across dimensions = [1] : ({columns}, {one}) -> {total}
      %d = "stablehlo.reduce_window"(%x, %z) {down} {add(element)} : ({rows}, {one}) -> {rows}
      %l = "stablehlo.reduce_window"(%t, %z) {along} {add(element)} : ({columns}, {one}) -> {columns}
      %b = "stablehlo.reduce_window"(%t, %z) {backwards} {add(element)} : ({columns}, {one}) -> {columns}
      %w = "stablehlo.reduce_window"(%t, %z) {whole} {add(element)} : ({columns}, {one}) -> tensor<5x1x{element}>
      %i = stablehlo.constant dense<0> : tensor<{length}x1xi32>
      %e = stablehlo.constant dense<0.0> : tensor<1x5x{element}>
      %c = "stablehlo.scatter"(%e, %i, %x) <{{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],
        inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> {add(element)}
        : (tensor<1x5x{element}>, tensor<{length}x1xi32>, {rows}) -> tensor<1x5x{element}>
      %k = stablehlo.reshape %c : (tensor<1x5x{element}>) -> {total}
      return %r, %s, %d, %l, %b, %w, %k : {types}
    }}"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("length", [8, 16, 17, 100])
@pytest.mark.parametrize("element", TYPES)
def test_folds_are_rounded_once(element: str, length: int) -> None:
    """No result is further from the exact one than the fold in order, rounded at each step, is."""
    x = nearly_cancelling(element, length, 5)
    wide = x.astype(np.float64)
    total, running = wide.sum(0), np.cumsum(wide, 0)
    back = np.cumsum(wide[::-1], 0)[::-1].T
    wants = [total, total, running, running.T, back, total[:, None], total]
    module = spmd.parse(program(element, length))
    results = [spmd.compile(module, backends=each)(x) for each in (("llvm", "numpy"), ("numpy",))]
    simulation = spmd.simulate(module, spmd.ProcessGrid(num_replicas=2, num_partitions=1))
    results.append(tuple(part[1] for part in simulation(np.stack([x, x]))))
    for each in results:
        for number, (got, want) in enumerate(zip(each, wants, strict=True)):
            once = want.astype(np.float32).astype(x.dtype)
            np.testing.assert_array_equal(got.astype(np.float64), once.astype(np.float64), err_msg=f"result {number}")


@pytest.mark.parametrize("element", TYPES)
def test_collectives_fold_as_reduce_does(element: str) -> None:
    """all_reduce and reduce_scatter of four processes, on threads and stacked."""
    one = f"tensor<8x{element}>"
    groups = "replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>"
    text = f"""func.func @main(%x: {one}) -> ({one}, tensor<2x{element}>) {{
      %r = "stablehlo.all_reduce"(%x) <{{{groups}}}> {add(element)} : ({one}) -> {one}
      %s = "stablehlo.reduce_scatter"(%x) <{{{groups}, scatter_dimension = 0 : i64}}> {add(element)}
        : ({one}) -> tensor<2x{element}>
      return %r, %s : {one}, tensor<2x{element}>
    }}"""
    x = nearly_cancelling(element, 4, 8)
    once = x.astype(np.float32).sum(0).astype(x.dtype).astype(np.float64)
    module = spmd.parse(text)
    ranks = spmd.run_parallel(module, GRID, [[row] for row in x])
    stacked = [np.asarray(each) for each in spmd.simulate(module, GRID)(x)]
    for rank, (whole, part) in enumerate([*ranks, *zip(*stacked, strict=True)]):
        place = rank % 4 * 2
        np.testing.assert_array_equal(np.asarray(whole, np.float64).reshape(8), once)
        np.testing.assert_array_equal(np.asarray(part, np.float64), once[place : place + 2])


@pytest.mark.parametrize("backends", [("llvm", "numpy"), ("numpy",)])
@pytest.mark.parametrize("element", TYPES)
def test_without_excess_precision_each_step_is_rounded(element: str, backends: tuple[str, ...]) -> None:
    """As the specification's own loops do: the running totals of 8 by 9 numbers, and sums by scatter."""
    x = nearly_cancelling(element, 8, 5)
    steps = [np.zeros(5, x.dtype)]
    for row in x:
        steps.append((steps[-1].astype(np.float32) + row.astype(np.float32)).astype(x.dtype))
    running = np.stack(steps[1:]).astype(np.float64)
    total, same, down, along, _, whole, scattered = spmd.compile(
        spmd.parse(program(element, 8)), backends=backends, excess_precision=False
    )(x)
    np.testing.assert_array_equal(down.astype(np.float64), running)
    np.testing.assert_array_equal(along.astype(np.float64), running.T)
    for each in (total, same, whole[:, 0], scattered):
        np.testing.assert_array_equal(each.astype(np.float64), running[-1])
