"""The checksum of a stretch of bytes: a CRC-32 of sums of its words.

Sums of 64 bits are added as fast as memory is read, a CRC is several times slower; the CRC is of one part in 32 of the
bytes. A change within one row of words always changes the sums, so each flipped bit does. Rows are no whole number of
pages or of a disk's sectors, so that such as come in another order, or twice, have other sums, too.
"""

from __future__ import annotations

import zlib

import numpy as np

from spmd.support.arrays import Array

#: Words of a row, and rows that are added to one.
_WORDS, _ROWS = 520, 32
_BLOCK = _WORDS * _ROWS * 8


def checksum(data: Array) -> int:
    """The checksum, of 32 bits, of bytes u8[n]: of the words of whole blocks the sums, then what is left as it is."""
    whole = len(data) // _BLOCK * _BLOCK
    words = data[:whole].view("<u8").reshape(-1, _ROWS, _WORDS)
    sums = np.add.reduce(words, axis=1, dtype="<u8")
    return zlib.crc32(data[whole:].data, zlib.crc32(sums.data))
