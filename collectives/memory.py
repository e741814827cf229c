"""How the C library deals with memory that arrays give back."""

import contextlib
import ctypes
from functools import cache


@cache
def keep_freed_memory() -> None:
    """Keeps glibc from giving large blocks back to the system whenever they are freed.

    Programs and MPI allocate call by call; fetching the pages anew each time makes a 4 MiB all-reduce several times
    slower, and a transformer block nearly twice. Other C libraries have no such call, and need none.
    """
    trim_threshold, mmap_threshold, largest = -1, -3, (1 << 31) - 1
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(trim_threshold, largest)
        mallopt(mmap_threshold, 1 << 30)
