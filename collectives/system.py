"""The operating system; the only module that tests for it.

Linux-specific code is used where `IS_LINUX` is set, each in one module with a fallback for any POSIX system.
$SPMD_PORTABLE, if set to anything but 0, disables it, so that tests can run the fallbacks.
"""

from __future__ import annotations

import os
import sys

#: Makes the package treat Linux as any POSIX system.
VARIABLE = "SPMD_PORTABLE"
IS_PORTABLE = os.environ.get(VARIABLE, "0") not in ("", "0")
IS_LINUX = sys.platform == "linux" and not IS_PORTABLE


def usable_processors() -> set[int]:
    """Return the logical processors that this process may run on."""
    if IS_LINUX:
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))
