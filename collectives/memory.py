"""Configuration of the C library's allocator."""

import contextlib
import ctypes
from functools import cache


@cache
def keep_freed_memory() -> None:
    """Keep glibc from returning large blocks to the system when they are freed.

    Programs and MPI allocate on every call; faulting the pages in again makes a 4 MiB all-reduce several times slower,
    and a transformer block nearly twice as slow. No effect with other C libraries.
    """
    trim_threshold, mmap_threshold, largest = -1, -3, (1 << 31) - 1
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(trim_threshold, largest)
        mallopt(mmap_threshold, 1 << 30)
