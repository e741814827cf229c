"""The same processors, threads and instructions for every contestant."""

import os
import sys

from launch.mpirun import CORE_VARIABLE
from spmd.runtime.thread_share import THREAD_VARIABLES


def limit(count: int) -> None:
    """Keep this process, and every numerical library it loads from now on, to ``count`` threads.

    The affinity is what XLA's thread pools take their size from, the variables are what BLAS libraries read.
    """
    if hasattr(os, "sched_setaffinity"):
        # The last processors: the first take most of the machine's interrupts.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-count:])
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(count)


def unbind() -> None:
    """Let BLAS take the instructions this processor has, as XLA and JAX do whatever the environment says."""
    held = os.environ.pop(CORE_VARIABLE, None)
    if held is not None:
        print(f"{CORE_VARIABLE}={held} is set aside, for XLA is not held to it (--held keeps it)", file=sys.stderr)
