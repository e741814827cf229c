"""Stacking: the programs of all processes of a grid as one program without collectives.

A value that differs between processes has a leading axis over all of them, in rank order (rank = replica_id *
num_partitions + partition_id); a value that is the same everywhere is stored once. Collectives become operations on the
leading axis. The result is an ordinary program that can be verified, printed, compiled and run.

Rules are grouped by op family, as the declarations are. An op without a rule is run process by process, in a loop.
"""

from __future__ import annotations

from spmd.compiler.stack.program import Stacked, stack, stack_region
from spmd.compiler.stack.several import StackedPrograms, stack_several

__all__ = ["Stacked", "StackedPrograms", "stack", "stack_region", "stack_several"]
