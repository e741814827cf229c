"""Units that fold dimensions before the last, a block of columns at a time."""

import ml_dtypes
import numpy as np
import pytest

import spmd
from spmd.compiler.schedule import columns, tasks
from spmd.compiler.schedule.rows import row_groups
from tests.compiler.schedule.test_schedule import units_of

CASES = [
    ((20, 96), (0,)),
    ((40, 640), (0,)),
    ((3, 17, 64), (1,)),
    ((2, 20, 5, 64), (1,)),
    ((2, 5, 7, 128), (1, 2)),
    ((2, 1, 20, 1, 33), (2,)),
    ((19, 32, 1), (0,)),
]


DTYPES = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16}


@pytest.fixture
def small_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of any size are worth a group, and blocks are of few columns."""
    monkeypatch.setattr(columns, "_LEAST", 1)
    monkeypatch.setattr(columns, "_MOST", 128)


def softmax(shape: tuple[int, ...], folded: tuple[int, ...], element: str, *, turned: bool = False) -> str:
    """exp(x) / its sum, and the sum's square root; `turned`: the sum is of exp(x) and of its columns in reverse."""
    full = f"tensor<{'x'.join(map(str, shape))}x{element}>"
    rows = [d for d in range(len(shape)) if d not in folded]
    kept = f"tensor<{''.join(f'{shape[d]}x' for d in rows)}{element}>"
    dims = ", ".join(map(str, folded))
    last = len(shape) - 1
    turn = f"%t = stablehlo.reverse %e, dims = [{last}] : {full}\n  %w = stablehlo.add %e, %t : {full}"
    return f"""func.func @main(%x: {full}) -> ({full}, {kept}) {{
  %zero = stablehlo.constant dense<0.0> : tensor<{element}>
  %e = stablehlo.exponential %x : {full}
  {turn if turned else f"%w = stablehlo.add %e, %e : {full}"}
  %s = stablehlo.reduce(%w init: %zero) applies stablehlo.add across dimensions = [{dims}]
    : ({full}, tensor<{element}>) -> {kept}
  %b = stablehlo.broadcast_in_dim %s, dims = [{", ".join(map(str, rows))}] : ({kept}) -> {full}
  %r = stablehlo.divide %e, %b : {full}
  %q = stablehlo.sqrt %s : {kept}
  return %r, %q : {full}, {kept}
}}"""


@pytest.mark.usefixtures("small_arrays")
@pytest.mark.parametrize(("shape", "folded"), CASES)
@pytest.mark.parametrize("element", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("turned", [False, True])
def test_columns_have_the_bits_of_units_by_themselves(
    shape: tuple[int, ...], folded: tuple[int, ...], element: str, turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = spmd.parse(softmax(shape, folded, element, turned=turned))
    x = np.random.default_rng(0).standard_normal(shape).astype(DTYPES[element])
    together = spmd.compile(module)(x)
    monkeypatch.setattr(columns, "_LEAST", 1 << 30)
    apart = spmd.compile(module)(x)
    for one, other in zip(together, apart, strict=True):
        np.testing.assert_array_equal(one, other)
    wide = np.exp(x.astype(np.float64))
    total = wide + (wide[..., ::-1] if turned else wide)
    expected = wide / total.sum(folded, keepdims=True)
    np.testing.assert_allclose(together[0].astype(np.float64), expected, rtol=0.1 if element == "bf16" else 1e-5)


@pytest.mark.usefixtures("small_arrays")
@pytest.mark.parametrize(("shape", "folded"), CASES)
def test_threads_share_blocks_of_columns(
    shape: tuple[int, ...], folded: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_LEAST_UNIT", "_LEAST_TASK", "_LEAST_POINTS"):
        monkeypatch.setattr(tasks, name, 1)
    module = spmd.parse(softmax(shape, folded, "f32"))
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    alone, *others = [[np.asarray(r).tobytes() for r in spmd.compile(module, threads=n)(x)] for n in (1, 2, 3)]
    assert others == [alone, alone]


@pytest.mark.usefixtures("small_arrays")
def test_an_argument_that_is_given_away_takes_the_result() -> None:
    module = spmd.parse(softmax((40, 640), (0,), "f32"))
    x = np.random.default_rng(0).standard_normal((40, 640)).astype(np.float32)
    (expected, _), owned = spmd.compile(module)(x), x.copy()
    result, _ = spmd.compile(module, donate=(0,))(owned)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.usefixtures("small_arrays")
def test_a_softmax_runs_by_columns() -> None:
    units = units_of(softmax((40, 640), (0,), "f32"))
    assert [len(group) for group in row_groups(units)] == [len(units)]


@pytest.mark.parametrize(
    ("shape", "folded", "size"),
    [
        ((64, 4096 * 8), (0,), 512),  # as many as one block has at most
        ((512, 8192), (0,), 128),  # as fit the cache
        ((8, 64, 56, 56 * 8), (1,), 512),  # of 25088, which two dimensions make
        ((64, 33000), (0,), None),  # no multiple of 32 divides it
        ((4096, 1024), (0,), None),  # too many rows
        ((64, 512), (0,), None),  # a small array
    ],
)
def test_columns_of_a_block(shape: tuple[int, ...], folded: tuple[int, ...], size: int | None) -> None:
    assert columns.column_block(shape, folded) == size
