"""Throughput of one core by kind of work, to decide whether a unit is worth splitting into tasks.

Round figures of a server core; `spmd/predict/nominal.toml` has those that price whole steps. An order of magnitude is
enough here.
"""

from __future__ import annotations

#: Units of work per nanosecond, by kind.
RATES: dict[str, int] = {
    # Vectorized scalar operations of loop nests: rate `elementwise` of a machine file.
    "operations": 16,
    # Bytes of DRAM traffic: its bandwidths.
    "bytes": 16,
    # Bytes of operands of BLAS multiply-adds: its rate `product`, of 4-byte numbers.
    "product": 160,
    # Multiply-adds of tiled convolutions.
    "convolution": 32,
    # 8-bit integer multiplications: by vector dot-product instructions, and by matrix tiles (AMX).
    "integer pairs": 90,
    "integer tiles": 400,
    # Numbers processed by one stage of an FFT.
    "fft": 2,
    # Elements of prefix sums, a serial dependence.
    "scan": 1,
    # Elements scanned for top_k.
    "top_k": 8,
}


def nanoseconds(kind: str, amount: int) -> int:
    """Return the approximate time in nanoseconds of `amount` of work of `kind`, a key of `RATES`."""
    return amount // RATES[kind]
