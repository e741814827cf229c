"""The same processors and threads for every contestant."""

import os

from launch.mpirun import THREAD_VARIABLES


def limit(count: int) -> None:
    """Keep this process, and every numerical library it loads from now on, to ``count`` threads.

    The affinity is what XLA's thread pools take their size from, the variables are what BLAS libraries read.
    """
    if hasattr(os, "sched_setaffinity"):
        # The last processors: the first take most of the machine's interrupts.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-count:])
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(count)
