"""The examples of each step, and their division among the ranks.

The order of an epoch depends only on its number and the seed, and a global batch has the same examples for any number
of ranks: when ranks fail or join, only the division of a batch changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from spmd.errors import UsageError

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RankShare:
    """One rank's part of a global batch: `rows`, i64[n], are indices of examples; `weights`, f32[n], are 1 or 0.

    All ranks' parts have the same length, so that one program serves them. Where the batch does not fill a part, its
    last row is repeated with weight 0, so that a weighted sum excludes it.
    """

    rows: Rows
    weights: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Schedule:
    """The global batches of all epochs: `examples` per epoch, in batches of `batch`, the last of which may be smaller.

    :raises UsageError: if `examples`, `batch` or `epochs` is not a positive integer.
    """

    examples: int
    batch: int
    epochs: int
    seed: int = 0
    shuffle: bool = True

    def __post_init__(self) -> None:
        for name in ("examples", "batch", "epochs"):
            value: Any = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"{name} must be a positive integer, got {value!r}")

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.examples // self.batch)

    @property
    def steps(self) -> int:
        """The number of steps of all epochs."""
        return self.steps_per_epoch * self.epochs

    def place(self, step: int) -> tuple[int, int]:
        """Return the epoch of a step and the step's position in it, both from 0."""
        return divmod(step, self.steps_per_epoch)

    def rows(self, step: int) -> Rows:
        """Return the examples of a step's global batch, i64[n]."""
        epoch, index = self.place(step)
        return self._order(epoch)[index * self.batch : (index + 1) * self.batch]

    def cut(self, step: int, rank: int, ranks: int) -> RankShare:
        """Return the part of rank `rank` of `ranks`."""
        chosen = self.rows(step)
        length = self.length(ranks)
        positions = np.arange(rank * length, (rank + 1) * length)
        return RankShare(chosen[np.minimum(positions, len(chosen) - 1)], (positions < len(chosen)).astype(np.float32))

    def length(self, ranks: int) -> int:
        """Return the number of rows in each rank's part, for `ranks` ranks."""
        return -(-self.batch // ranks)

    def _order(self, epoch: int) -> Rows:
        return _order(self.examples, self.seed, epoch) if self.shuffle else np.arange(self.examples)


@lru_cache(maxsize=2)
def _order(examples: int, seed: int, epoch: int) -> Rows:
    return np.random.default_rng((seed, epoch)).permutation(examples)
