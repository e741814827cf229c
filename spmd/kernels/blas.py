"""Matrix products by the BLAS that SciPy carries.

`matmul` is np.matmul for the arrays of a contraction, sent to SciPy's gemm where that is worth it: its call costs
less than NumPy's, and its library is loaded late enough to be told which kernels to use. OpenBLAS does not recognize
every processor: on AMD's cores with AVX-512 it falls back to the AVX2 kernels, which take nearly twice the time.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_CORE = "OPENBLAS_CORETYPE"
#: What OpenBLAS's AVX-512 kernels need.
_AVX512 = {"avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512cd"}
#: Multiply-adds of one matrix below which a batch is left to NumPy's own loop.
_SMALL_IN_BATCH = 1 << 12


def _unrecognized_avx512() -> bool:
    """Whether this is a processor of AMD with AVX-512."""
    try:
        text = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    except OSError:
        return False
    return "AuthenticAMD" in text and set(text.split()) >= _AVX512


def _load() -> dict[np.dtype[Any], Callable[..., Array]]:
    """gemm by dtype, from a library that was told its kernels where it would choose worse ones."""
    told = _CORE not in os.environ and platform.machine() == "x86_64" and _unrecognized_avx512()
    if told:
        os.environ[_CORE] = "SkylakeX"
    try:
        from scipy.linalg import blas
    finally:
        if told:
            del os.environ[_CORE]
    names = {np.float32: blas.sgemm, np.float64: blas.dgemm, np.complex64: blas.cgemm, np.complex128: blas.zgemm}
    return {np.dtype(dtype): gemm for dtype, gemm in names.items()}


_GEMM = _load()


def matmul(x: Array, y: Array, out: Array | None = None) -> Array:
    """The matrix product over the last two dimensions of `x` and `y`, whose leading dimensions are equal.

    `out`, where given, is C-contiguous, of the result's dtype and shape, and shares no memory with the operands.
    """
    gemm = _GEMM.get(x.dtype)
    rows, depth = x.shape[-2:]
    columns = y.shape[-1]
    work = rows * depth * columns
    if gemm is None or work == 0 or rows == 1 or columns == 1 or (out is not None and not out.flags.c_contiguous):
        product: Array = np.matmul(x, y, out=out)
        return product
    if x.ndim == 2:
        return _product(gemm, x, y, out)
    if work < _SMALL_IN_BATCH:
        product = np.matmul(x, y, out=out)
        return product
    batch = x.shape[:-2]
    if out is None:
        out = np.empty((*batch, rows, columns), x.dtype)
    if len(batch) == 1:
        for left, right, target in zip(x, y, out, strict=True):
            _product(gemm, left, right, target)
        return out
    flat = out.reshape(prod(batch), rows, columns)
    for number, index in enumerate(np.ndindex(batch)):
        _product(gemm, x[index], y[index], flat[number])
    return out


def _product(gemm: Callable[..., Array], x: Array, y: Array, out: Array | None) -> Array:
    """gemm wants Fortran's order: the transposed product, of transposed operands, is C's."""
    left, turn_left = _fortran(y)
    right, turn_right = _fortran(x)
    if out is None:
        return gemm(1.0, left, right, 0.0, None, turn_left, turn_right).T
    gemm(1.0, left, right, 0.0, out.T, turn_left, turn_right, 1)
    return out


def _fortran(matrix: Array) -> tuple[Array, int]:
    """The transpose of `matrix` in Fortran's order, as (array, whether gemm has to transpose it)."""
    flags = matrix.flags
    if flags.c_contiguous:
        return matrix.T, 0
    if flags.f_contiguous:
        return matrix, 1
    return np.ascontiguousarray(matrix).T, 0
