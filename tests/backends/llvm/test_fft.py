"""Fourier transforms in native code: the definition's sums, whatever the factors of the length, in time and in
precision; no bit depends on the number of threads."""

import numpy as np
import pytest

import spmd
from spmd.backends.llvm.emit import math_library as functions
from spmd.backends.llvm.fft import transforms as native_fft
from spmd.backends.llvm.target import LlvmTarget
from tests.backends.modules import type_of
from tests.backends.together import Cases, Program, for_numpy, together

LENGTHS = [2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 16, 25, 30, 48, 64, 75, 96, 100, 128, 243, 250, 360, 512, 1000, 4096]
#: Factors of 7, 11 and 13, and those that no stage takes out.
LENGTHS += [56, 88, 104, 17, 34, 97, 1009, 2 * 1009]
LONG = 1 << 13


def fft(kind: str, length: int, rows: int, double: bool) -> tuple[str, np.ndarray]:
    """A program, and random numbers for it."""
    real, complex_ = ("f64", "complex<f64>") if double else ("f32", "complex<f32>")
    half, whole = (complex_, (rows, length // 2 + 1)), (complex_, (rows, length))
    operand = {"RFFT": (real, (rows, length)), "IRFFT": half}.get(kind, whole)
    result = {"IRFFT": (real, (rows, length)), "RFFT": half}.get(kind, whole)
    rng = np.random.default_rng(length)
    x = rng.standard_normal(operand[1])
    if kind != "RFFT":
        x = x + 1j * rng.standard_normal(operand[1])
    before, after = type_of(operand), type_of(result)
    text = f"""func.func @main(%x: {before}) -> {after} {{
      %r = stablehlo.fft %x, type = {kind}, length = [{length}] : ({before}) -> {after}
      return %r : {after}
    }}"""
    return text, x.astype(
        {"f32": np.float32, "f64": np.float64}.get(operand[0], np.complex128 if double else np.complex64)
    )


def in_f64(kind: str, x: np.ndarray, length: int) -> np.ndarray:
    wide = x.astype(np.float64 if kind == "RFFT" else np.complex128)
    functions = {"FFT": np.fft.fft, "IFFT": np.fft.ifft, "RFFT": np.fft.rfft, "IRFFT": np.fft.irfft}
    return functions[kind](wide, length)


@pytest.mark.sampled(33)
@pytest.mark.parametrize("kind", ["FFT", "IFFT", "RFFT", "IRFFT"])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
@together
def test_transforms_are_the_sums_of_the_definition(kind: str, double: bool, length: int) -> Cases:
    text, x = fft(kind, length, 3, double)
    complex_native = kind in ("FFT", "IFFT") or (length % 2 == 0 and length >= 4)
    (got,) = yield Program(text, [x])
    assert LlvmTarget().supports(spmd.parse(text).functions[0].body.ops[0]) is complex_native
    want = in_f64(kind, x, length)
    eps = np.finfo(got.real.dtype).eps * 2 * np.log2(2 * length)
    np.testing.assert_allclose(got, want, rtol=0, atol=eps * np.sqrt(np.mean(np.abs(want) ** 2)) * 2)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("kind", ["FFT", "IFFT", "RFFT", "IRFFT"])
@pytest.mark.parametrize("lengths", [(6, 10), (16, 30), (1, 4), (5, 1), (3, 4, 8), (7, 9)])
@pytest.mark.parametrize("element", ["f32", "f64"])
@together
def test_dimensions_are_transformed_one_after_another(kind: str, lengths: tuple[int, ...], element: str) -> Cases:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, *lengths))
    if kind == "IRFFT":  # of what is the transform of real numbers
        x = np.fft.rfftn(x, axes=range(1, x.ndim))
    elif kind != "RFFT":
        x = x + 1j * rng.standard_normal(x.shape)
    axes = tuple(range(1, x.ndim))
    want = {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn, "IRFFT": np.fft.irfftn}[kind](
        x, lengths, axes
    )
    before, after = (
        type_of((element if array.dtype.kind == "f" else f"complex<{element}>", array.shape)) for array in (x, want)
    )
    text = f"""func.func @main(%x: {before}) -> {after} {{
      %r = stablehlo.fft %x, type = {kind}, length = {list(lengths)} : ({before}) -> {after}
      return %r : {after}
    }}"""
    narrow = {"f32": {"f": np.float32, "c": np.complex64}, "f64": {"f": np.float64, "c": np.complex128}}[element]
    x = x.astype(narrow[x.dtype.kind])
    results = yield Program(text, [x], {"backends": ("llvm", "numpy")}), for_numpy(text, x)
    for (got,) in results:
        assert got.dtype == narrow[want.dtype.kind]
        np.testing.assert_allclose(got, want, rtol=0, atol=np.abs(want).max() * (1e-6 if element == "f32" else 1e-14))


@pytest.mark.parametrize("length", [1, 7, 22, 1001, 1 << 17])
def test_other_lengths_have_no_native_form_and_still_a_value(length: int) -> None:
    text, x = fft("FFT", length, 1, False)
    module = spmd.parse(text)
    assert not LlvmTarget().supports(module.functions[0].body.ops[0])
    got, want = spmd.compile(module)(x)[0], in_f64("FFT", x, length)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("kind", ["FFT", "IRFFT"])
def test_no_bit_depends_on_the_number_of_threads(kind: str) -> None:
    for length, rows in ((1024, 64), (1010, 40), (LONG, 9), (2 * LONG, 5)):
        text, x = fft(kind, length, rows, False)
        one, two, three = (spmd.compile(spmd.parse(text), threads=threads)(x)[0] for threads in (1, 2, 3))
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)


def test_the_imaginary_parts_of_both_ends_of_half_a_spectrum_do_not_count() -> None:
    text, x = fft("IRFFT", 16, 2, False)
    other = x.copy()
    other[:, [0, -1]] += 5j
    executable = spmd.compile(spmd.parse(text))
    np.testing.assert_array_equal(executable(x)[0], executable(other)[0])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", ["FFT", "IFFT", "RFFT", "IRFFT"])
@pytest.mark.parametrize(("length", "double"), [(96, False), (34, False), (250, True)])
def test_no_bit_depends_on_where_the_steps_stand(
    kind: str, length: int, double: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, x = fft(kind, length, 2, double)
    results = []
    for least in (0, 1 << 40):
        monkeypatch.setattr(native_fft, "_LEAST_OUTLINED", least)
        results.append(spmd.compile(spmd.parse(text))(x)[0])
    np.testing.assert_array_equal(results[0].view(np.uint8), results[1].view(np.uint8))


def test_transforms_of_other_lengths_share_their_steps() -> None:
    spmd.compile(spmd.parse(fft("FFT", 1 << 12, 1, False)[0]))
    before = set(functions._LIBRARIES)
    spmd.compile(spmd.parse(fft("FFT", 1 << 14, 3, False)[0]))
    assert set(functions._LIBRARIES) == before
