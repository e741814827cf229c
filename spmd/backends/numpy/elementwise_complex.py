"""Complex functions with C99's branch cuts, on complex128.

NumPy's own loops call the C library's complex functions one element at a time: 25 to 110 ns an element, in return for
right special values and cuts along signed zeros. complex64 computes in complex128 and rounds once
(spmd.backends.numpy.pointwise.widened_complex), which is also quicker than the single-precision C functions.
Every function takes `out=`, which may be an operand.
"""

from __future__ import annotations

import numpy as np

from spmd.backends.numpy import elementwise_float as on_float
from spmd.backends.numpy.pointwise import keep
from spmd.support.arrays import Array


def join(real: Array, imaginary: Array) -> Array:
    """The complex array of two real ones of one dtype, without arithmetic (which would mix NaN and infinity up)."""
    shape = np.broadcast_shapes(np.shape(real), np.shape(imaginary))
    result = np.empty(shape, np.result_type(real, np.complex64))
    result.real = real
    result.imag = imaginary
    return result


def expm1(z: Array, out: Array | None = None) -> Array:
    """exp(z) - 1, accurate near zero; real where z is, infinity included."""
    x, y = z.real, z.imag
    half = np.sin(0.5 * y)
    known = np.isinf(x) & ~np.isfinite(y)  # the real part, whatever the angle
    real = np.where(known, np.expm1(x), np.expm1(x) * np.cos(y) - 2 * half * half)
    imaginary = np.where(y == 0, y, np.exp(x) * np.sin(y))
    return keep(join(real, np.where(known & (x < 0), np.copysign(0, y), imaginary)), out)


def log1p(z: Array, out: Array | None = None) -> Array:
    """log(1 + z); the real part keeps its accuracy near z = 0 and on the circle |1 + z| = 1."""
    x, y = z.real, z.imag
    squares = x * (2 + x) + y * y
    real = np.where(np.abs(squares) < 0.5, 0.5 * np.log1p(squares), np.log(np.hypot(1 + x, y)))
    return keep(join(real, np.arctan2(y, 1 + x)), out)


def log(z: Array, out: Array | None = None) -> Array:
    """log z, the real part by |z|^2 - 1 near |z| = 1, which is exact of complex64 values held in complex128."""
    x, y = z.real, z.imag
    magnitude = np.abs(x)
    excess = (magnitude - 1) * (magnitude + 1) + y * y
    real = np.where(np.abs(excess) < 0.5, 0.5 * np.log1p(excess), np.log(np.hypot(x, y)))
    return keep(join(real, np.arctan2(y, x)), out)


def logistic(z: Array, out: Array | None = None) -> Array:
    """1 / (1 + exp(-z)), from the side on which the exponential stays small."""
    left = z.real < 0
    small = np.exp(np.where(left, z, -z))
    result: Array = np.divide(np.where(left, small, 1), 1 + small, out=out)
    return result


def rsqrt(z: Array, out: Array | None = None) -> Array:
    """1 / sqrt(z); a zero for all infinities."""
    root = np.sqrt(z)
    infinite = np.isinf(root)
    if not infinite.any():
        return np.divide(1, root, out=out)
    zero = join(np.copysign(0.0, root.real), np.copysign(0.0, -root.imag))
    return keep(np.where(infinite, zero, 1 / root), out)


def cbrt(z: Array, out: Array | None = None) -> Array:
    """The principal cube root."""
    modulus, angle = np.abs(z), np.angle(z) / 3
    size = on_float.cbrt(modulus.astype(np.float64)).astype(modulus.dtype)
    return keep(join(size * np.cos(angle), size * np.sin(angle)), out)


def sign(z: Array, out: Array | None = None) -> Array:
    """z / |z|; 0 for 0, NaN in both parts if either is NaN or infinite."""
    size = np.abs(z)
    ordinary = (size > 0) & (size < np.inf)
    result = join(
        np.divide(z.real, size, where=ordinary, out=0 * size), np.divide(z.imag, size, where=ordinary, out=0 * size)
    )
    return keep(result.astype(z.dtype), out)


def power(z: Array, w: Array, out: Array | None = None) -> Array:
    """exp(w log z), as C99 has it; 1 for w = 0, and 0 for z = 0 where Re w > 0."""
    logarithm = log(z)
    exponent = join(
        w.real * logarithm.real - w.imag * logarithm.imag, w.real * logarithm.imag + w.imag * logarithm.real
    )
    result = np.where((z == 0) & (w.real > 0), 0, np.exp(exponent))
    return keep(np.where(w == 0, 1, result).astype(z.dtype), out)


def atan2(y: Array, x: Array, out: Array | None = None) -> Array:
    """-i log((x + iy) / sqrt(x^2 + y^2)) (reference interpreter; the specification leaves complex atan2 open)."""
    turned = join(x.real - y.imag, x.imag + y.real)
    logarithm = log(turned / np.sqrt(x * x + y * y))
    return keep(join(logarithm.imag, -logarithm.real), out)


def remainder(x: Array, y: Array, out: Array | None = None) -> Array:
    """x - y q, where q is x / y with both parts rounded towards zero."""
    quotient = x / y
    rest: Array = np.subtract(x, y * join(np.trunc(quotient.real), np.trunc(quotient.imag)), out=out)
    return rest


def square(z: Array, out: Array | None = None) -> Array:
    """((x - y)(x + y), 2xy)."""
    x, y = z.real, z.imag
    return keep(join((x - y) * (x + y), 2 * (x * y)), out)


def asin_acos_kernel(z: Array, out: Array | None = None) -> Array:
    """w with asin(z) = complex(atan2(x, w.real), sign(y) w.imag) (chlo._asin_acos_kernel)."""
    arcsine = np.arcsin(z)
    height = np.abs(arcsine.imag)
    return keep(join(np.cosh(height) * np.cos(arcsine.real), height), out)
