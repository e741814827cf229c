"""Products of batches and what is between them, run batch by batch: the same bits as unit by unit."""

from collections.abc import Sequence

import numpy as np
import pytest

import spmd
from spmd.compiler.schedule import batch_tiling, block_planner, tasks
from spmd.compiler.schedule.steps import BatchRun
from spmd.types import ELEMENT_TYPES
from tests.backends.llvm.test_memory import peak

BATCH, HEADS, ROWS, KEYS, DEPTH = 3, 4, 20, 33, 8


def attention(element: str, scaled: str, returned: Sequence[str] = ("r",)) -> str:
    """Softmax of `scaled` products of %q and %k, times %v; `returned` are names of what it gives."""
    q, k, s, row = (
        f"tensor<{BATCH}x{HEADS}x{shape}x{element}>"
        for shape in (f"{ROWS}x{DEPTH}", f"{KEYS}x{DEPTH}", f"{ROWS}x{KEYS}", ROWS)
    )
    types = {"r": q, "s": s, "w": s, "m": row}
    batching = "batching_dims = [0, 1] x [0, 1], contracting_dims"
    one = f"tensor<{element}>"
    return f"""func.func @main(%q: {q}, %k: {k}, %v: {k}) -> ({", ".join(types[name] for name in returned)}) {{
      %zero = stablehlo.constant dense<0.0> : {one}
      %least = stablehlo.constant dense<-1.0e30> : {one}
      %p = stablehlo.dot_general %q, %k, {batching} = [3] x [3] : ({q}, {k}) -> {s}
      {scaled.format(s=s, one=one)}
      %m = stablehlo.reduce(%s init: %least) applies stablehlo.maximum across dimensions = [3] : ({s}, {one}) -> {row}
      %ms = stablehlo.broadcast_in_dim %m, dims = [0, 1, 2] : ({row}) -> {s}
      %d = stablehlo.subtract %s, %ms : {s}
      %e = stablehlo.exponential %d : {s}
      %n = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [3] : ({s}, {one}) -> {row}
      %ns = stablehlo.broadcast_in_dim %n, dims = [0, 1, 2] : ({row}) -> {s}
      %w = stablehlo.divide %e, %ns : {s}
      %r = stablehlo.dot_general %w, %v, {batching} = [3] x [2] : ({s}, {k}) -> {q}
      return {", ".join(f"%{name}" for name in returned)} : {", ".join(types[name] for name in returned)}
    }}"""


PLAIN = "%s = stablehlo.add %p, %p : {s}"
#: Each row reads what another batch, or another row, has.
TURNED = "%s = stablehlo.reverse %p, dims = [{dims}] : {{s}}"
MASKED = """%i = stablehlo.iota dim = 2 : tensor<3x4x20x33xi32>
      %j = stablehlo.iota dim = 3 : tensor<3x4x20x33xi32>
      %c = stablehlo.compare LT, %j, %i, SIGNED : (tensor<3x4x20x33xi32>, tensor<3x4x20x33xi32>) -> tensor<3x4x20x33xi1>
      %far = stablehlo.constant dense<-9.0> : {s}
      %s = stablehlo.select %c, %p, %far : tensor<3x4x20x33xi1>, {s}"""


@pytest.fixture
def small_ones_too(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Runs of any size are written; the numbers of their groups are in the list."""
    for name in ("_LEAST_UNIT", "_LEAST_TASK", "_LEAST_POINTS"):
        monkeypatch.setattr(tasks, name, 1)
    monkeypatch.setattr(batch_tiling, "_LEAST", 0)
    taken: list[int] = []

    def plan(*arguments: object) -> BatchRun | None:
        planned = batch_tiling.plan_batches(*arguments)  # type: ignore[arg-type]
        taken.append(0 if planned is None else len(planned.groups))
        return planned

    monkeypatch.setattr(block_planner, "plan_batches", plan)
    return taken


def values(element: str) -> list[np.ndarray]:
    random = np.random.default_rng(5)
    dtype = ELEMENT_TYPES[element].dtype
    shapes = [(BATCH, HEADS, rows, DEPTH) for rows in (ROWS, KEYS, KEYS)]
    return [random.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("element", ["f32", "f64", "bf16"])
@pytest.mark.parametrize(
    ("scaled", "returned", "whole"),
    [
        (PLAIN, ["r"], True),
        (PLAIN, ["w", "r"], True),
        (PLAIN, ["r", "s", "m"], True),
        (MASKED, ["r"], True),
        (TURNED.format(dims="2"), ["r"], True),
        (TURNED.format(dims="1"), ["r"], False),
    ],
)
def test_attention_batch_by_batch(
    monkeypatch: pytest.MonkeyPatch,
    small_ones_too: list[int],
    scaled: str,
    returned: list[str],
    whole: bool,
    element: str,
    threads: int,
) -> None:
    module, arrays = spmd.parse(attention(element, scaled, returned)), values(element)
    together = spmd.compile(module, threads=threads)(*arrays)
    assert (max(small_ones_too) >= 3) is (whole or element == "bf16")  # in which conversions and a product are a run
    monkeypatch.setattr(block_planner, "plan_batches", lambda *_: None)
    apart = spmd.compile(module, threads=threads)(*arrays)
    for mine, other in zip(together, apart, strict=True):
        assert np.asarray(mine).tobytes() == np.asarray(other).tobytes()


def test_a_result_over_an_argument_that_other_batches_read(small_ones_too: list[int]) -> None:
    """Each batch of the result is written where another one's operand lies, which is donated."""
    text = attention("f32", PLAIN).replace("%r = stablehlo.dot_general %w", "%x = stablehlo.dot_general %w")
    text = text.replace("return", f"%r = stablehlo.add %x, %q : tensor<{BATCH}x{HEADS}x{ROWS}x{DEPTH}xf32>\nreturn")
    module, arrays = spmd.parse(text), values("f32")
    (expected,) = spmd.compile(module)(*arrays)
    (donated,) = spmd.compile(module, donate=(0,))(*(array.copy() for array in arrays))
    assert small_ones_too and np.asarray(donated).tobytes() == np.asarray(expected).tobytes()


def test_memory_of_one_batch_is_enough() -> None:
    """What is handed on is 2 MiB before and 2 MiB behind the elements' function, of which a batch has an eighth."""
    batch, rows = "tensor<8x256x8xf32>", "tensor<8x256x256xf32>"
    dims = "batching_dims = [0] x [0], contracting_dims"
    text = f"""func.func @main(%q: {batch}, %k: {batch}) -> {batch} {{
      %p = stablehlo.dot_general %q, %k, {dims} = [2] x [2] : ({batch}, {batch}) -> {rows}
      %t = stablehlo.tanh %p : {rows}
      %r = stablehlo.dot_general %t, %k, {dims} = [2] x [1] : ({rows}, {batch}) -> {batch}
      return %r : {batch}
    }}"""
    arrays = [np.random.default_rng(6).standard_normal((8, 256, 8)).astype(np.float32) for _ in range(2)]
    assert peak(text, *arrays, threads=1) <= 5 << 17
