"""chlo.top_k in native code gives what the NumPy back end gives, to the bit: ties, NaN and zeros of both signs."""

import numpy as np
import pytest

import spmd
from spmd.backends.llvm.emit import math_library as functions
from spmd.backends.llvm.ops.top_k import TopK
from spmd.backends.llvm.target import LlvmTarget
from tests.backends.together import Cases, Program, for_numpy, together

TEXT = """func.func @main(%x: tensor<{rows}x{size}x{element}>)
    -> (tensor<{rows}x{k}x{element}>, tensor<{rows}x{k}xi32>) {{
  %v, %i = chlo.top_k(%x, k = {k}) : tensor<{rows}x{size}x{element}>
    -> (tensor<{rows}x{k}x{element}>, tensor<{rows}x{k}xi32>)
  return %v, %i : tensor<{rows}x{k}x{element}>, tensor<{rows}x{k}xi32>
}}"""
HARD = [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1, 1, -1, 2, 1e-42, -1e-42, 127, -128]


def native_form(module: spmd.Module) -> bool:
    return LlvmTarget().supports(module.functions[0].body.ops[0])


def elements(dtype: np.dtype, shape: tuple[int, int]) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    if dtype.kind in "iu":
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        x = rng.integers(low, high, shape, dtype, endpoint=True)
        x[rng.random(shape) < 0.3] = rng.choice([low, high])
        return x
    x = rng.standard_normal(shape).astype(dtype)
    hard = rng.random(shape) < 0.5
    with np.errstate(all="ignore"):
        x[hard] = rng.choice(np.array(HARD), hard.sum()).astype(dtype)
    return x


@pytest.mark.sampled(16)
@pytest.mark.parametrize("element", ["f32", "f16", "bf16", "i32", "ui32", "i16", "ui16", "i8", "ui8"])
@pytest.mark.parametrize(("size", "k"), [(1, 1), (5, 5), (16, 3), (33, 8), (100, 17), (257, 64), (300, 128)])
@together
def test_top_k_is_that_of_numpy(element: str, size: int, k: int) -> Cases:
    text = TEXT.format(rows=9, size=size, k=k, element=element)
    module = spmd.parse(text)
    assert native_form(module)
    x = elements(module.functions[0].arguments[0].tensor.dtype, (9, size))
    several = [x, np.sort(x, axis=-1)]
    results = yield [*(Program(text, [rows]) for rows in several), *(for_numpy(text, rows) for rows in several)]
    for native, plain in zip(results[:2], results[2:], strict=True):
        for mine, other in zip(native, plain, strict=True):
            np.testing.assert_array_equal(mine.view(np.uint8), other.view(np.uint8))


def test_rows_are_cut_for_threads() -> None:
    module = spmd.parse(TEXT.format(rows=101, size=4000, k=20, element="f32"))
    x = elements(np.dtype(np.float32), (101, 4000))
    plain = spmd.compile(module, backends=("numpy",))(x)
    for threads in (1, 2, 5):
        for mine, other in zip(spmd.compile(module, threads=threads)(x), plain, strict=True):
            np.testing.assert_array_equal(mine.view(np.uint8), other.view(np.uint8))


@pytest.mark.parametrize(("element", "k"), [("f32", 129), ("f64", 3), ("i64", 3)])
def test_what_has_no_native_form_is_left_to_numpy(element: str, k: int) -> None:
    module = spmd.parse(TEXT.format(rows=2, size=140, k=k, element=element))
    assert not native_form(module)
    x = elements(np.dtype(np.float64), (2, 140)).astype(module.functions[0].arguments[0].tensor.dtype)
    values, _ = spmd.compile(module)(x)
    assert values.shape == (2, k)


def test_rows_of_other_lengths_share_their_code() -> None:
    def steps() -> set[object]:
        return {callee for _, callee in functions._LIBRARIES if isinstance(callee, TopK)}

    spmd.compile(spmd.parse(TEXT.format(rows=2, size=100, k=4, element="f32")))
    before = steps()
    assert before
    spmd.compile(spmd.parse(TEXT.format(rows=3, size=516, k=4, element="f32")))
    assert steps() == before
