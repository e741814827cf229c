"""What is said of an op of a stacked program for those who watch it run: which process a row is of.

Attributes of no dialect, so that any tool reads them; they are there where a program is watched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collectives.grid import ProcessGrid
from spmd.ir import Op
from spmd.ir.attributes import DenseAttr, DictAttr, StringAttr
from spmd.types import I64, TensorType

#: Of an op whose results have a dimension of processes.
ROWS = "spmd_process_rows"
#: Of an op that computes for processes that do not come to it as well: nobody looks at its results.
UNSEEN = "spmd_unseen"


@dataclass(frozen=True)
class ProcessRows:
    """Of an op's results, `block` rows after another along `dimension` are those of each of the processes `ranks`.

    In the source the op is `name`.
    """

    name: str
    dimension: int
    block: int
    grid: ProcessGrid
    ranks: Sequence[int]

    def attribute(self) -> DictAttr:
        """As an op's attribute ROWS."""
        shape = self.grid.num_replicas, self.grid.num_partitions
        numbers = np.array([self.dimension, self.block, *shape, *self.ranks], np.int64)
        entries = {
            "name": StringAttr(self.name.encode()),
            "numbers": DenseAttr(numbers, TensorType(numbers.shape, I64)),
        }
        return DictAttr(entries)

    @classmethod
    def of(cls, op: Op | None) -> ProcessRows | None:
        """What the attribute of `op` says, if it has one."""
        attribute = None if op is None else op.discardable.get(ROWS)
        if not isinstance(attribute, DictAttr):
            return None
        name, numbers = attribute.entries["name"], attribute.entries["numbers"]
        assert isinstance(name, StringAttr) and isinstance(numbers, DenseAttr)
        dimension, block, replicas, partitions, *ranks = numbers.array.tolist()
        return cls(name.data.decode(), dimension, block, ProcessGrid(replicas, partitions), ranks)
