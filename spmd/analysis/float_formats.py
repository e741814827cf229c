"""Formats of floating-point types."""

from __future__ import annotations

#: (exponent bits, mantissa bits) of the floats with infinities, whose own bits reduce_precision rounds.
FLOAT_FORMATS = {
    "bf16": (8, 7),
    "f16": (5, 10),
    "f32": (8, 23),
    "f64": (11, 52),
    "f8E5M2": (5, 2),
    "f8E4M3": (4, 3),
    "f8E3M4": (3, 4),
}
