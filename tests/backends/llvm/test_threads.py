"""Units cut over threads: the same bits for any number of them, whoever calls, after a fork and at the end."""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spmd
from spmd.compiler.schedule import rates, tasks
from spmd.support.machine import RANK_VARIABLES, default_threads, usable_cores
from tests.backends.llvm.drawn import drawn_program
from tests.backends.together import Cases, Program, together
from tests.effort import examples

THREADS = (1, 2, 3, 5)
SUM = """func.func @main(%x: tensor<{n}xf32>) -> (tensor<{n}xf32>, tensor<f32>) {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.exponential %x : tensor<{n}xf32>
  %s = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<{n}xf32>, tensor<f32>) -> tensor<f32>
  return %y, %s : tensor<{n}xf32>, tensor<f32>
}}"""


@pytest.fixture
def all_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every nest is cut, however little it costs."""
    for name in ("_LEAST_UNIT", "_LEAST_TASK", "_LEAST_POINTS"):
        monkeypatch.setattr(tasks, name, 1)
    monkeypatch.setitem(rates.RATES, "operations", 1)


def by_threads(text: str, *arrays: np.ndarray, counts: Sequence[int] = THREADS) -> list[Program]:
    """The program for each number of threads."""
    return [Program(text, arrays, {"threads": threads}) for threads in counts]


def bits(results: Sequence[np.ndarray]) -> list[bytes]:
    return [np.asarray(result).tobytes() for result in results]


@pytest.mark.usefixtures("all_are_cut")
@given(st.data())
@settings(max_examples=examples(25), suppress_health_check=list(HealthCheck))
def test_random_programs_give_the_same_bits_for_any_number_of_threads(data: st.DataObject) -> None:
    module, arrays = drawn_program(data, 12)
    alone, *others = [bits(spmd.compile(module, threads=threads)(*arrays)) for threads in THREADS]
    assert others == [alone] * len(others)


@pytest.mark.usefixtures("all_are_cut")
@pytest.mark.parametrize("shape", [(3, 3), (4, 4), (17, 1), (2, 9), (16, 8), (33, 2), (33, 5), (5, 33, 3)], ids=str)
@together
def test_what_is_written_over_its_operand_is_written_once(shape: tuple[int, ...]) -> Cases:
    """A loop that is cut is run in parts, however few points the stage has once its loops are merged."""
    full = f"tensor<{'x'.join(map(str, shape))}xf32>"
    axes, order = list(range(len(shape))), [*range(1, len(shape)), 0]
    turned = f"tensor<{'x'.join(str(shape[axis]) for axis in order)}xf32>"
    text = f"""func.func @main(%x: {full}) -> (tensor<f32>, {full}, {turned}) {{
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %c = stablehlo.cosine %x : {full}
      %s = stablehlo.reduce(%c init: %zero) applies stablehlo.add across dimensions = {axes}
        : ({full}, tensor<f32>) -> tensor<f32>
      %n = stablehlo.negate %c : {full}
      %t = stablehlo.transpose %x, dims = {order} : ({full}) -> {turned}
      %u = stablehlo.negate %t : {turned}
      return %s, %n, %u : tensor<f32>, {full}, {turned}
    }}"""
    array = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    alone, *others = yield by_threads(text, array)
    assert list(map(bits, others)) == [bits(alone)] * len(others)
    np.testing.assert_array_equal(others[0][2], -array.transpose(order))


@pytest.mark.usefixtures("all_are_cut")
@pytest.mark.parametrize("count", [127, 8192, 65537, 300_001])
@together
def test_a_fold_of_everything_has_one_association(count: int) -> Cases:
    array = np.random.default_rng(count).standard_normal(count).astype(np.float32)
    totals = yield by_threads(SUM.format(n=count), array)
    assert [bits(results) for results in totals] == [bits(totals[0])] * len(totals)
    np.testing.assert_allclose(totals[0][1], np.exp(array.astype(np.float64)).sum(), rtol=1e-6)


@pytest.mark.usefixtures("all_are_cut")
@pytest.mark.parametrize("shape", [(3, 1000), (1000, 3), (64, 64), (17, 513), (1, 70_000)])
@pytest.mark.parametrize("axis", [0, 1])
@together
def test_folds_of_one_dimension_are_cut_along_the_other(shape: tuple[int, int], axis: int) -> Cases:
    left = shape[1 - axis]
    text = f"""func.func @main(%x: tensor<{shape[0]}x{shape[1]}xf64>) -> tensor<{left}xf64> {{
      %zero = stablehlo.constant dense<0.0> : tensor<f64>
      %s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [{axis}]
        : (tensor<{shape[0]}x{shape[1]}xf64>, tensor<f64>) -> tensor<{left}xf64>
      return %s : tensor<{left}xf64>
    }}"""
    array = np.random.default_rng(5).standard_normal(shape)
    totals = [bits(results) for results in (yield by_threads(text, array))]
    assert totals == [totals[0]] * len(totals)


@pytest.mark.sampled(5)
@pytest.mark.usefixtures("all_are_cut")
@pytest.mark.parametrize("columns", [1, 3, 16, 64, 77])
@pytest.mark.parametrize("rows", [128, 1001, 40_000])
@together
def test_folds_of_a_few_columns_are_cut_at_their_blocks(rows: int, columns: int) -> Cases:
    full, row = f"tensor<{rows}x{columns}xf32>", f"tensor<{columns}xf32>"
    text = f"""func.func @main(%x: {full}) -> ({full}, {row}, {row}) {{
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %y = stablehlo.exponential %x : {full}
      %s = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0]
        : ({full}, tensor<f32>) -> {row}
      %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [0]
        : ({full}, tensor<f32>) -> {row}
      return %y, %s, %m : {full}, {row}, {row}
    }}"""
    array = np.random.default_rng(rows + columns).standard_normal((rows, columns)).astype(np.float32)
    array[-1, 0], array[rows // 2, -1] = 9.0, np.nan
    results = yield by_threads(text, array)
    assert [bits(each) for each in results] == [bits(results[0])] * len(results)
    sums = np.exp(array.astype(np.float64)).sum(0)
    np.testing.assert_allclose(results[0][1], sums, rtol=1e-5)
    np.testing.assert_array_equal(results[0][2], array.max(0))


def test_several_threads_of_python_share_the_workers() -> None:
    array = np.random.default_rng(1).standard_normal(300_001).astype(np.float32)
    executable = spmd.compile(spmd.parse(SUM.format(n=array.size)), threads=3)
    expected = bits(executable(array))
    wrong: list[int] = []

    def call(number: int) -> None:
        wrong.extend(number for _ in range(20) if bits(executable(array)) != expected)

    callers = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
        assert not caller.is_alive()
    assert wrong == []


def test_a_child_of_a_fork_starts_workers_of_its_own() -> None:
    """Of the parent's workers the child has none; libraries may have threads of their own there."""
    array = np.random.default_rng(1).standard_normal(300_001).astype(np.float32)
    executable = spmd.compile(spmd.parse(SUM.format(n=array.size)), threads=2, backends=("llvm", "numpy"))
    expected = bits(executable(array))
    child = os.fork()
    if not child:
        before = set(os.listdir("/proc/self/task"))
        same = all(bits(executable(array)) == expected for _ in range(3))
        os._exit(0 if same and before < set(os.listdir("/proc/self/task")) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert bits(executable(array)) == expected


@pytest.mark.parametrize("last", ["pass", "raise SystemExit(3)", "caller.start()"])
def test_a_process_with_workers_ends(last: str) -> None:
    script = f"""
import threading, numpy as np, spmd
executable = spmd.compile(spmd.parse({SUM.format(n=300_001)!r}), threads=3)
array = np.ones(300_001, np.float32)
executable(array)
def forever():
    while True:
        executable(array)
caller = threading.Thread(target=forever, daemon=True)
{last}
"""
    ended = subprocess.run([sys.executable, "-c", script], timeout=60, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (3 if "Exit" in last else 0, "")


def test_threads_are_the_cores_alone_one_a_rank_and_what_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*RANK_VARIABLES, "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    cores = usable_cores()
    assert default_threads() == cores and default_threads(2 * cores) == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "6,2")
    assert default_threads() == 6 and default_threads(3) == 2
    monkeypatch.setenv("PMI_RANK", "0")
    assert default_threads(3) == 6  # a rank's own number
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert default_threads() == 1


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, "2"])
def test_a_number_of_threads_that_is_none_is_refused(threads: object) -> None:
    with pytest.raises(spmd.UsageError, match="option threads"):
        spmd.compile(spmd.parse(SUM.format(n=3)), threads=threads)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize(
    "lhs, rhs, contracted",
    [
        ((300, 211), (211, 260), (1, 0)),
        ((211, 300), (211, 260), (0, 0)),
        ((97, 400), (401, 400), (1, 1)),
        ((5, 2000), (2000, 1001), (1, 0)),
        ((120, 90), (90, 80), (1, 0)),
        ((1003, 30), (30, 31), (1, 0)),
    ],
)
@together
def test_products_are_cut_by_rows_or_columns(
    element: str, lhs: tuple[int, int], rhs: tuple[int, int], contracted: tuple[int, int]
) -> Cases:
    rows, columns = lhs[1 - contracted[0]], rhs[1 - contracted[1]]
    types = [f"tensor<{a}x{b}x{element}>" for a, b in (lhs, rhs, (rows, columns))]
    text = f"""func.func @main(%x: {types[0]}, %y: {types[1]}) -> {types[2]} {{
      %z = stablehlo.dot_general %x, %y, contracting_dims = [{contracted[0]}] x [{contracted[1]}]
        : ({types[0]}, {types[1]}) -> {types[2]}
      return %z : {types[2]}
    }}"""
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal(shape).astype("f4" if element == "f32" else "f8") for shape in (lhs, rhs)]
    expected = np.tensordot(*(array.astype("f8") for array in arrays), axes=contracted)
    results = yield by_threads(text, *arrays)
    for (product,) in results:
        np.testing.assert_allclose(product, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("batch", [(2,), (3, 2), (40,), (5, 8)])
@pytest.mark.parametrize("columns", [64, 300])
@together
def test_batches_of_products_are_cut(batch: tuple[int, ...], columns: int) -> Cases:
    shape = "x".join(map(str, batch))
    axes = ", ".join(str(axis) for axis in range(len(batch)))
    left, right, result = (f"tensor<{shape}x{size}xf32>" for size in ("150x64", f"{columns}x64", f"150x{columns}"))
    last = len(batch) + 1
    text = f"""func.func @main(%x: {left}, %y: {right}) -> {result} {{
      %z = stablehlo.dot_general %x, %y, batching_dims = [{axes}] x [{axes}],
        contracting_dims = [{last}] x [{last}] : ({left}, {right}) -> {result}
      return %z : {result}
    }}"""
    rng = np.random.default_rng(2)
    x, y = (rng.standard_normal((*batch, size, 64)).astype("f4") for size in (150, columns))
    expected = np.matmul(x.astype("f8"), np.swapaxes(y.astype("f8"), -1, -2))
    results = yield by_threads(text, x, y, counts=(1, 2, 5))
    for (product,) in results:
        np.testing.assert_allclose(product, expected, atol=1e-4)


def test_blas_has_its_threads_back_after_a_product() -> None:
    from threadpoolctl import threadpool_info

    before = threadpool_info()
    array = np.ones((400, 400), np.float32)
    text = """func.func @main(%x: tensor<400x400xf32>) -> tensor<400x400xf32> {
      %z = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0]
        : (tensor<400x400xf32>, tensor<400x400xf32>) -> tensor<400x400xf32>
      return %z : tensor<400x400xf32>
    }"""
    spmd.compile(spmd.parse(text), threads=3)(array)
    counts = {library["filepath"]: library["num_threads"] for library in threadpool_info()}
    assert all(counts[library["filepath"]] == library["num_threads"] for library in before)
