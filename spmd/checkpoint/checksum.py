"""The checksum of bytes: a CRC-32 of sums of 64-bit words.

Sums are computed at memory speed, a CRC several times slower; the CRC covers 1/32 of the bytes. A change within a
single row of words always changes the sums, and so does each flipped bit. The row length is not a multiple of pages or
disk sectors, so that reordered or duplicated ones change the sums as well.
"""

from __future__ import annotations

import zlib

import numpy as np

from spmd.support.arrays import Array

#: Words per row, and rows per sum.
_WORDS, _ROWS = 520, 32
_BLOCK = _WORDS * _ROWS * 8


def checksum(data: Array) -> int:
    """Return the 32-bit checksum of bytes u8[n]: of the sums of whole blocks, then of the remaining bytes."""
    whole = len(data) // _BLOCK * _BLOCK
    words = data[:whole].view("<u8").reshape(-1, _ROWS, _WORDS)
    sums = np.add.reduce(words, axis=1, dtype="<u8")
    return zlib.crc32(data[whole:].data, zlib.crc32(sums.data))
