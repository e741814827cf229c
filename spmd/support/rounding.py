"""Conversion to narrower types, rounded once from the operand itself.

ml_dtypes converts to its types through f32, which rounds f64 and wide integers twice. Here the step to f32 rounds to
odd: of the two neighbours in f32 it takes the one whose last bit is set. This keeps the side of a tie on which the
number lies, which the last rounding needs (Boldo and Melquiond, "Emulation of a FMA and correctly rounded
sums: proved algorithms using rounding to odd", 2008).
"""

from __future__ import annotations

import numpy as np

from spmd.support.arrays import Array, DType

_F32 = np.dtype(np.float32)
#: Bits of a 64-bit integer beyond those of an f64.
_SPARE = 11


def rounds_twice(source: DType, target: DType) -> bool:
    """Whether NumPy's conversion goes through an f32 that may have to round."""
    ours = target.isbuiltin != 1 and target.kind not in "biu" and not target.name.startswith(("int", "uint"))
    return ours and (source == np.float64 or (source.kind in "iu" and source.itemsize >= 4))


def round_to(values: Array, target: DType) -> Array:
    """`values`, f64 or integers of 32 or 64 bits, in `target`, a type of ml_dtypes."""
    wide = np.asarray(values) if values.dtype.kind == "f" else _to_odd_double(values)
    return np.asarray(_to_odd_single(wide).astype(target))


def narrowed(values: Array, dtype: DType) -> Array:
    """`values` in `dtype`, rounded once."""
    return round_to(values, dtype) if rounds_twice(values.dtype, dtype) else np.asarray(values.astype(dtype))


def _to_odd_single(values: Array) -> Array:
    """f64 to f32, rounded to odd."""
    with np.errstate(over="ignore"):
        near = values.astype(_F32)
    wide = near.astype(np.float64)
    inexact = (wide != values) & (values == values)
    beyond = np.abs(wide) > np.abs(values)
    bits = (near.view(np.uint32) - (beyond & inexact)) | inexact
    return np.asarray(bits).astype(np.uint32, copy=False).view(_F32)


def _to_odd_double(values: Array) -> Array:
    """Integers to f64, those of more than 53 bits rounded to odd."""
    values = np.asarray(values)
    if values.dtype.itemsize < 8:
        return np.asarray(values.astype(np.float64))
    limit = values.dtype.type(1 << 53)
    large = values >= limit
    if values.dtype.kind == "i":
        large |= values <= -limit
    if not large.any():
        return np.asarray(values.astype(np.float64))
    spare = values.dtype.type(_SPARE)
    lost = (values & values.dtype.type((1 << _SPARE) - 1)) != 0
    kept = (values >> spare) | lost
    return np.asarray(np.where(large, kept.astype(np.float64) * float(1 << _SPARE), values.astype(np.float64)))
