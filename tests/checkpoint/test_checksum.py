"""The checksum of bytes: what it is by definition, and that no small change leaves it as it was."""

import zlib

import numpy as np
import pytest

from spmd.checkpoint.checksum import checksum

BLOCK = 520 * 32 * 8
rng = np.random.default_rng(0)


def data(size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return rng.integers(0, 256, size, np.uint8)


@pytest.mark.parametrize("size", [0, 1, 9, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 4097])
def test_it_is_a_crc_of_sums_of_words_and_of_the_rest(size: int) -> None:
    content = data(size)
    crc = 0
    for start in range(0, size - BLOCK + 1, BLOCK):
        columns = [0] * 520
        for place, word in enumerate(np.frombuffer(content[start : start + BLOCK].tobytes(), "<u8").tolist()):
            columns[place % 520] += word
        crc = zlib.crc32(b"".join((column % 2**64).to_bytes(8, "little") for column in columns), crc)
    assert checksum(content) == zlib.crc32(content[size // BLOCK * BLOCK :].tobytes(), crc)


def test_every_flipped_bit_changes_it() -> None:
    content = data(2 * BLOCK + 100)
    whole = checksum(content)
    ends = [0, 1, BLOCK - 1, BLOCK, 2 * BLOCK - 1, 2 * BLOCK, len(content) - 1]
    for byte in [*ends, *rng.integers(0, len(content), 300).tolist()]:
        for bit in range(8):
            content[byte] ^= 1 << bit
            assert checksum(content) != whole
            content[byte] ^= 1 << bit
    assert checksum(content) == whole


@pytest.mark.parametrize("size", [512, 4096, 65536])
def test_sectors_and_pages_that_come_in_another_order_or_twice_or_not_at_all_change_it(size: int) -> None:
    content = data(5 * BLOCK)
    whole = checksum(content)
    pages = content[: len(content) // size * size].reshape(-1, size)
    for _ in range(50):
        one, other = rng.choice(len(pages), 2, replace=False)
        kept = pages[[one, other]]
        for told in (kept[::-1], kept[[0, 0]], kept * np.uint8([[1], [0]])):
            pages[[one, other]] = told
            assert checksum(content) != whole
        pages[[one, other]] = kept
    assert checksum(content) == whole


def test_bytes_need_no_alignment() -> None:
    content = data(2 * BLOCK + 11)
    shifted = np.empty(len(content) + 3, np.uint8)[3:]
    shifted[:] = content
    assert checksum(shifted) == checksum(content)
