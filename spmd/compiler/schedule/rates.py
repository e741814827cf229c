"""How much work of one kind a core does in a nanosecond: what decides whether a unit is worth cutting for threads.

Round figures of one core of a server, beside those of `spmd/predict/nominal.toml`, which price what a whole step takes.
They decide between one task and many alone, for which an order of magnitude is enough.
"""

from __future__ import annotations

#: By kind of work, so much of it a nanosecond.
RATES: dict[str, int] = {
    # Operations of loop nests in vectors: a machine file's rate `elementwise`.
    "operations": 16,
    # Bytes to and from memory beyond the caches: its bandwidths.
    "bytes": 16,
    # Bytes' worth of numbers that BLAS multiplies and adds: its rate `product`, of numbers of 4 bytes.
    "product": 160,
    # Multiplications and additions of convolutions in tiles.
    "convolution": 32,
    # Multiplications of 8-bit integers: in pairs by vector instructions, and by the processor's tiles.
    "integer pairs": 90,
    "integer tiles": 400,
    # Numbers that one stage of a transform goes over.
    "fft": 2,
    # Elements of running totals, each of which waits for the one before.
    "scan": 1,
    # Elements that are looked through for the largest.
    "top_k": 8,
}


def nanoseconds(kind: str, amount: int) -> int:
    """How long so much work of one kind takes, roughly."""
    return amount // RATES[kind]
