"""Give every contestant the same processors, threads and instructions."""

import os
import sys

from launch.mpirun import CORE_VARIABLE
from spmd.runtime.thread_share import THREAD_VARIABLES


def limit(count: int) -> None:
    """Limit this process, and every numerical library loaded from now on, to ``count`` threads.

    XLA sizes its thread pools by the affinity; BLAS libraries read the environment variables.
    """
    if hasattr(os, "sched_setaffinity"):
        # The last processors: the first take most of the machine's interrupts.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-count:])
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(count)


def unbind() -> None:
    """Let BLAS use all instructions of the processor, as XLA and JAX do whatever the environment says."""
    held = os.environ.pop(CORE_VARIABLE, None)
    if held is not None:
        print(f"{CORE_VARIABLE}={held} is ignored, since XLA ignores it (--held keeps it)", file=sys.stderr)
