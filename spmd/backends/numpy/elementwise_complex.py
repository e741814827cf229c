"""Complex functions with C99's branch cuts, on complex128.

NumPy's own loops call the C library's complex functions element by element: 25 to 110 ns each, for correct special
values and branch cuts along signed zeros. complex64 is computed in complex128 and rounded once
(spmd.backends.numpy.pointwise.widened_complex), which is also faster than the single-precision C functions.

Every function takes `out=`, which may be an operand.
"""

from __future__ import annotations

import numpy as np

from spmd.analysis.scalar.complex_range import EXPONENT_LIMIT, GROW, HUGE, SHRINK, TINY
from spmd.backends.numpy import elementwise_float as on_float
from spmd.backends.numpy.pointwise import keep
from spmd.support.arrays import Array


def join(real: Array, imaginary: Array) -> Array:
    """Return the complex array of two real ones of one dtype, without arithmetic, which would mix NaN and infinity."""
    shape = np.broadcast_shapes(np.shape(real), np.shape(imaginary))
    result = np.empty(shape, np.result_type(real, np.complex64))
    result.real = real
    result.imag = imaginary
    return result


def expm1(z: Array, out: Array | None = None) -> Array:
    """Return exp(z) - 1, accurate near zero; real for real z, including infinities."""
    x, y = z.real, z.imag
    half = np.sin(0.5 * y)
    far = x > EXPONENT_LIMIT
    exponential = np.exp(z)  # finite even if exp(x) overflows
    known = (np.isinf(x) & ~np.isfinite(y)) | (y == 0)  # the real part is independent of the angle
    near = np.where(far, exponential.real, np.expm1(x) * np.cos(y) - 2 * half * half)
    real = np.where(known, np.expm1(x), near)
    imaginary = np.where(y == 0, y, exponential.imag)
    return keep(join(real, np.where(known & (x < 0), np.copysign(0, y), imaginary)), out)


def log1p(z: Array, out: Array | None = None) -> Array:
    """Return log(1 + z), accurate in the real part near z = 0 and on the circle |1 + z| = 1."""
    x, y = z.real, z.imag
    squares = x * (2 + x) + y * y
    real = np.where(np.abs(squares) < 0.5, 0.5 * np.log1p(squares), _log_hypot(1 + x, y))
    return keep(join(real, np.arctan2(y, 1 + x)), out)


def log(z: Array, out: Array | None = None) -> Array:
    """Return log z, the real part from |z|^2 - 1 near |z| = 1, which is exact for complex64 values held
    in complex128.
    """
    x, y = z.real, z.imag
    magnitude = np.abs(x)
    excess = (magnitude - 1) * (magnitude + 1) + y * y
    real = np.where(np.abs(excess) < 0.5, 0.5 * np.log1p(excess), _log_hypot(x, y))
    return keep(join(real, np.arctan2(y, x)), out)


def _log_hypot(x: Array, y: Array) -> Array:
    """Return log sqrt(x^2 + y^2) without overflow."""
    scale = _scale(x, y)
    result: Array = np.log(np.hypot(x * scale, y * scale)) - np.log(scale)
    return result


def _scale(x: Array, y: Array) -> Array:
    """Return the scale that keeps sqrt(x^2 + y^2) normal: 1, or a power of two."""
    size = np.maximum(np.abs(x), np.abs(y))
    return np.where(size > HUGE, SHRINK, np.where(size < TINY, GROW, 1.0))


def logistic(z: Array, out: Array | None = None) -> Array:
    """Return 1 / (1 + exp(-z)), computed so that the exponential is small.

    Re(1 + exp(x + iy)) is the sum of 1 - exp(x) and 2 exp(x) cos(y/2)^2, both nonnegative.
    """
    left = z.real < 0
    w = np.where(left, z, -z)
    small, size, half = np.exp(w), np.exp(w.real), np.cos(0.5 * w.imag)
    divisor = np.where(size < 2.0**-60, 1 + small.real, 2 * size * half * half - np.expm1(w.real))
    result: Array = np.divide(np.where(left, small, 1), join(divisor, 0 + small.imag), out=out)
    return result


def rsqrt(z: Array, out: Array | None = None) -> Array:
    """Return 1 / sqrt(z); a zero for all infinities."""
    root = np.sqrt(z)
    infinite = np.isinf(root)
    if not infinite.any():
        return np.divide(1, root, out=out)
    zero = join(np.copysign(0.0, root.real), np.copysign(0.0, -root.imag))
    return keep(np.where(infinite, zero, 1 / root), out)


def cbrt(z: Array, out: Array | None = None) -> Array:
    """Return the principal cube root; huge and tiny numbers are scaled by 1/8 or 2^60."""
    x, y, angle = z.real, z.imag, np.angle(z) / 3
    largest = np.abs(x) + np.abs(y)
    scale = np.where(largest > HUGE, 0.125, np.where(largest < TINY, 2.0**60, 1.0))
    size = on_float.cbrt(np.hypot(x * scale, y * scale)) / np.cbrt(scale)
    return keep(join(size * np.cos(angle), size * np.sin(angle)), out)


def sign(z: Array, out: Array | None = None) -> Array:
    """Return z / |z|; 0 for 0, NaN in both parts if either is NaN or infinite."""
    x, y = z.real, z.imag
    scale = _scale(x, y)
    p, q = x * scale, y * scale
    size = np.hypot(p, q)
    rest = np.where(size == 0, 0.0, np.nan)
    parts = [np.divide(part, size, where=(size > 0) & np.isfinite(size), out=rest.copy()) for part in (p, q)]
    return keep(join(*parts), out)


def divide(z: Array, w: Array, out: Array | None = None) -> Array:
    """Return z / w without spurious overflow, with C99's infinities and zeros (spmd.analysis.scalar.complex_range)."""
    quotient = np.divide(z, w)
    scales = [_scale(each.real, each.imag) for each in (z, w)]
    odd = np.isnan(quotient.real) | np.isnan(quotient.imag) | (scales[0] != 1) | (scales[1] != 1) | (w == 0)
    if not odd.any():
        return keep(quotient, out)
    quotient = np.asarray(quotient)
    z, w, one, other = (np.broadcast_to(each, quotient.shape)[odd] for each in (z, w, *scales))
    quotient[odd] = _careful_quotient(z, w, one, other)
    return keep(quotient, out)


def _careful_quotient(z: Array, w: Array, scale: Array, other: Array) -> Array:
    zero = w == 0
    divided = join(z.real * scale, z.imag * scale) / join(w.real * other, w.imag * other)
    real = np.where(zero, z.real / w.real, divided.real * other / scale)
    imaginary = np.where(zero, z.imag / w.real, divided.imag * other / scale)
    lost = np.isnan(real) & np.isnan(imaginary)
    (a, b), (c, d) = (z.real, z.imag), (w.real, w.imag)
    endless_z, endless_w = (np.isinf(each.real) | np.isinf(each.imag) for each in (z, w))
    finite_z, finite_w = (np.isfinite(each.real) & np.isfinite(each.imag) for each in (z, w))
    for chosen, (e, f), (g, h), size in (
        (lost & endless_z & finite_w, _corner(z), (c, d), np.inf),
        (lost & finite_z & endless_w, (a, b), _corner(w), 0.0),
    ):
        real = np.where(chosen, (e * g + f * h) * size, real)
        imaginary = np.where(chosen, (f * g - e * h) * size, imaginary)
    return join(real, imaginary)


def _corner(z: Array) -> tuple[Array, Array]:
    """Return 1 for infinite parts and 0 for others, with their signs."""
    x, y = (np.copysign(np.isinf(part).astype(part.dtype), part) for part in (z.real, z.imag))
    return x, y


def power(z: Array, w: Array, out: Array | None = None) -> Array:
    """Return exp(w log z), as in C99; 1 for w = 0, and 0 for z = 0 if Re w > 0."""
    logarithm = log(z)
    exponent = join(
        w.real * logarithm.real - w.imag * logarithm.imag, w.real * logarithm.imag + w.imag * logarithm.real
    )
    result = np.where((z == 0) & (w.real > 0), 0, np.exp(exponent))
    return keep(np.where(w == 0, 1, result).astype(z.dtype), out)


def atan2(y: Array, x: Array, out: Array | None = None) -> Array:
    """Return -i log((x + iy) / sqrt(x^2 + y^2)) (reference interpreter; the specification leaves complex
    atan2 open).
    """
    turned = join(x.real - y.imag, x.imag + y.real)
    logarithm = log(turned / np.sqrt(x * x + y * y))
    return keep(join(logarithm.imag, -logarithm.real), out)


def remainder(x: Array, y: Array, out: Array | None = None) -> Array:
    """Return x - y q, where q is x / y with both parts rounded towards zero."""
    quotient = x / y
    rest: Array = np.subtract(x, y * join(np.trunc(quotient.real), np.trunc(quotient.imag)), out=out)
    return rest


def square(z: Array, out: Array | None = None) -> Array:
    """Return ((x - y)(x + y), 2xy)."""
    x, y = z.real, z.imag
    return keep(join((x - y) * (x + y), 2 * (x * y)), out)


def asin_acos_kernel(z: Array, out: Array | None = None) -> Array:
    """Return w with asin(z) = complex(atan2(x, w.real), sign(y) w.imag) (chlo._asin_acos_kernel)."""
    arcsine = np.arcsin(z)
    height = np.abs(arcsine.imag)
    return keep(join(np.cosh(height) * np.cos(arcsine.real), height), out)
