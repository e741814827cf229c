"""Which operating system this is: nobody else looks.

What only Linux has is used where `IS_LINUX`, each in one module with a way beside it that any POSIX system has.
$SPMD_PORTABLE, if it is set to anything but 0, has Linux taken for any other: tests run the portable ways so.
"""

from __future__ import annotations

import os
import sys

#: Has Linux taken for any POSIX system.
VARIABLE = "SPMD_PORTABLE"
IS_PORTABLE = os.environ.get(VARIABLE, "0") not in ("", "0")
IS_LINUX = sys.platform == "linux" and not IS_PORTABLE
IS_MACOS = sys.platform == "darwin"


def usable_processors() -> set[int]:
    """The logical processors that this process may run on."""
    if IS_LINUX:
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))
