"""FFT, Cholesky, triangular systems and batch normalization, against NumPy in a wider type."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.backends.modules import here, ints, op
from tests.backends.together import Cases, Program, drawn, together
from tests.effort import examples

TYPES = {"f32": np.float32, "f64": np.float64, "complex<f32>": np.complex64, "complex<f64>": np.complex128}


def random(element: str, *shape: int) -> np.ndarray:
    rng, dtype = np.random.default_rng(0), np.dtype(TYPES[element])
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape)).astype(dtype) if dtype.kind == "c" else x.astype(dtype)


def tolerance(element: str) -> float:
    return 1e-4 if "32" in element else 1e-11


@pytest.mark.parametrize("kind", ["FFT", "IFFT", "RFFT", "IRFFT"])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("lengths", [(4, 6, 8), (3, 5, 7), (2, 1, 1)])
@together
def test_fft(kind: str, double: bool, rank: int, lengths: tuple[int, int, int]) -> Cases:
    real, complex_ = ("f64", "complex<f64>") if double else ("f32", "complex<f32>")
    size = lengths[-rank:]
    half = (*size[:-1], size[-1] // 2 + 1)
    x = random(real if kind == "RFFT" else complex_, 2, *(half if kind == "IRFFT" else size))
    axes = tuple(range(1, rank + 1))
    wide = x.astype(np.complex128 if kind != "RFFT" else np.float64)
    functions: dict[str, Callable[[], np.ndarray]] = {
        "FFT": lambda: np.fft.fftn(wide, axes=axes),
        "IFFT": lambda: np.fft.ifftn(wide, axes=axes),
        "RFFT": lambda: np.fft.rfftn(wide, axes=axes),
        "IRFFT": lambda: np.fft.irfftn(wide, s=size, axes=axes),
    }
    want = functions[kind]()
    text = f'"stablehlo.fft"(%0) {{fft_type = #stablehlo<fft_type {kind}>, fft_length = {ints(size)}}}'
    (got,) = yield Program(op(text, [x], (real if kind == "IRFFT" else complex_, want.shape)), [x])
    np.testing.assert_allclose(got, want, rtol=tolerance(real), atol=tolerance(real))


@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("batch", [(), (3,), (2, 0), (2, 3)])
@together
def test_cholesky_reads_one_triangle(element: str, lower: bool, batch: tuple[int, ...]) -> Cases:
    a = random(element, *batch, 4, 4)
    a = (a @ a.conj().swapaxes(-1, -2) + 4 * np.eye(4)).astype(a.dtype)
    spoiled = np.tril(a) + 99 * np.triu(np.ones((4, 4)), 1) if lower else np.triu(a) + 99 * np.tril(np.ones((4, 4)), -1)
    text = f'"stablehlo.cholesky"(%0) {{lower = {str(lower).lower()}}}'
    spoiled = spoiled.astype(a.dtype)
    (got,) = yield Program(op(text, [spoiled], (element, a.shape)), [spoiled])
    factor = np.tril(got) if lower else np.triu(got).conj().swapaxes(-1, -2)
    eps = tolerance(element) * 10
    np.testing.assert_allclose(factor @ factor.conj().swapaxes(-1, -2), a, rtol=eps, atol=eps)


def test_cholesky_of_what_has_none_is_nan_and_of_its_neighbours_is_not() -> None:
    a = np.stack([np.eye(3), -np.eye(3)]).astype(np.float32)
    (got,) = here(op('"stablehlo.cholesky"(%0) {lower = true}', [a], ("f32", a.shape)), a)
    np.testing.assert_array_equal(got[0], np.eye(3))
    assert np.isnan(got[1][np.tril_indices(3)]).all()


@together
@drawn(examples(60), data=st.data())
def test_triangular_solve(data: st.DataObject) -> Cases:
    element = data.draw(st.sampled_from(list(TYPES)))
    left, lower, unit = (data.draw(st.booleans()) for _ in range(3))
    transpose = data.draw(st.sampled_from(["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"]))
    batch = data.draw(st.sampled_from([(), (3,), (20,), (2, 10), (0,)]))
    size, width = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    a = random(element, *batch, size, size) + 4 * np.eye(size, dtype=TYPES[element])
    b = random(element, *batch, *((size, width) if left else (width, size)))
    flags = ", ".join(
        f"{k} = {str(v).lower()}" for k, v in {"left_side": left, "lower": lower, "unit_diagonal": unit}.items()
    )
    text = f'"stablehlo.triangular_solve"(%0, %1) <{{{flags}, transpose_a = #stablehlo<transpose {transpose}>}}>'
    (x,) = yield Program(op(text, [a, b], (element, b.shape)), [a, b])
    m = np.tril(a) if lower else np.triu(a)
    if unit:
        m = m - m * np.eye(size) + np.eye(size)
    m = {"NO_TRANSPOSE": m, "TRANSPOSE": m.swapaxes(-1, -2), "ADJOINT": m.conj().swapaxes(-1, -2)}[transpose]
    eps = tolerance(element) * 10
    np.testing.assert_allclose(m @ x if left else x @ m, b, rtol=eps, atol=eps * max(1, np.abs(x).max(initial=0)))


@pytest.mark.parametrize("feature", [0, 1, 2])
@pytest.mark.parametrize("name", ["inference", "training", "grad"])
@together
def test_batch_norm(feature: int, name: str) -> Cases:
    rng = np.random.default_rng(0)
    shape = (3, 4, 2)
    x, gradient = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    scale, offset, mean = (rng.standard_normal(shape[feature]).astype(np.float32) for _ in range(3))
    variance = rng.random(shape[feature]).astype(np.float32)
    arrays = {
        "inference": [x, scale, offset, mean, variance],
        "training": [x, scale, offset],
        "grad": [x, scale, mean, variance, gradient],
    }[name]
    whole, features = ("f32", shape), ("f32", (shape[feature],))
    names = ", ".join(f"%{k}" for k in range(len(arrays)))
    text = f'"stablehlo.batch_norm_{name}"({names}) {{epsilon = 1.0e-3 : f32, feature_index = {feature} : i64}}'
    results = [whole] if name == "inference" else [whole, features, features]
    got = yield Program(op(text, arrays, *results), arrays)
    for ours, theirs in zip(got, normalized(name, feature, *arrays), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


def normalized(name: str, feature: int, *arrays: np.ndarray) -> list[np.ndarray]:
    """The specification's formulas in f64, the feature last."""
    wide = [np.moveaxis(a.astype(np.float64), feature, -1) if a.ndim > 1 else a.astype(np.float64) for a in arrays]
    x, epsilon, axes = wide[0], 1e-3, (0, 1)
    if name == "inference":
        _, scale, offset, mean, variance = wide
        results = [scale * (x - mean) / np.sqrt(variance + epsilon) + offset]
    elif name == "training":
        _, scale, offset = wide
        mean, variance = x.mean(axes), x.var(axes)
        results = [scale * (x - mean) / np.sqrt(variance + epsilon) + offset, mean, variance]
    else:
        _, scale, mean, variance, gradient = wide
        count, deviation, centered = x.shape[0] * x.shape[1], np.sqrt(variance + epsilon), x - mean
        projected = (gradient * centered).sum(axes)
        inner = count * gradient - gradient.sum(axes) - projected * centered / (variance + epsilon)
        results = [scale / deviation / count * inner, (gradient * centered / deviation).sum(axes), gradient.sum(axes)]
    return [np.moveaxis(result, -1, feature) if result.ndim > 1 else result for result in results]


def test_batch_norm_of_narrow_floats_sums_in_wide_ones() -> None:
    import ml_dtypes

    x = np.full((4096, 2), 3, ml_dtypes.bfloat16)
    ones = np.ones(2, ml_dtypes.bfloat16)
    text = '"stablehlo.batch_norm_training"(%0, %1, %1) {epsilon = 1.0e-3 : f32, feature_index = 1 : i64}'
    text = op(text, [x, ones], ("bf16", x.shape), ("bf16", (2,)), ("bf16", (2,))).replace(
        "(tensor<4096x2xbf16>, tensor<2xbf16>) -> (", "(tensor<4096x2xbf16>, tensor<2xbf16>, tensor<2xbf16>) -> ("
    )
    _, mean, variance = here(text, x, ones)
    assert mean.tolist() == [3, 3]
    assert variance.tolist() == [0, 0]
