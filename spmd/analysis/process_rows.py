"""Attributes that map rows of a stacked value to processes, for watched runs.

They belong to no dialect, so that any tool can parse them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collectives.grid import ProcessGrid
from spmd.ir import Op
from spmd.ir.attributes import DenseAttr, DictAttr, StringAttr
from spmd.types import I64, TensorType

#: On an op whose results have a dimension of processes.
ROWS = "spmd_process_rows"
#: On an op that also computes rows of processes that do not execute it: those rows are masked out.
UNSEEN = "spmd_unseen"


@dataclass(frozen=True)
class ProcessRows:
    """Rows of an op's results by process: `block` consecutive ones along `dimension` for each of `ranks`, in order.

    `name` is the op's name in the source program.
    """

    name: str
    dimension: int
    block: int
    grid: ProcessGrid
    ranks: Sequence[int]

    def attribute(self) -> DictAttr:
        """Return the rows as the attribute ROWS."""
        shape = self.grid.num_replicas, self.grid.num_partitions
        numbers = np.array([self.dimension, self.block, *shape, *self.ranks], np.int64)
        entries = {
            "name": StringAttr(self.name.encode()),
            "numbers": DenseAttr(numbers, TensorType(numbers.shape, I64)),
        }
        return DictAttr(entries)

    @classmethod
    def of(cls, op: Op | None) -> ProcessRows | None:
        """Return the rows that the attribute of `op` holds, or None."""
        attribute = None if op is None else op.discardable.get(ROWS)
        if not isinstance(attribute, DictAttr):
            return None
        name, numbers = attribute.entries["name"], attribute.entries["numbers"]
        assert isinstance(name, StringAttr) and isinstance(numbers, DenseAttr)
        dimension, block, replicas, partitions, *ranks = numbers.array.tolist()
        return cls(name.data.decode(), dimension, block, ProcessGrid(replicas, partitions), ranks)
