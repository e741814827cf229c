"""Stacking: the programs of all processes of a grid as one program without collectives.

A value that differs between processes has a leading axis of all of them there, in rank order (rank =
replica_id * num_partitions + partition_id); one that is the same everywhere stands once. Collectives are operations
on the leading axis. The outcome is an ordinary program, to be verified, printed, compiled and run like any other.

Rules stand by family, as the declarations do. What no rule serves is run process by process, in a loop.
"""

from __future__ import annotations

from spmd.compiler.stack.program import Stacked, stack, stack_region
from spmd.compiler.stack.several import StackedPrograms, stack_several

__all__ = ["Stacked", "StackedPrograms", "stack", "stack_region", "stack_several"]
