"""Which examples a step takes, and who of the ranks takes which.

The order of an epoch follows from its number and the seed alone, and a global batch is the same examples whoever
computes it: ranks that are lost, or join, change the cut of a batch and nothing else.
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
    """One rank's part of a global batch: `rows`, i64[n], are numbers of examples, `weights`, f32[n], 1 or 0.

    All ranks' parts are of one length, so that one program serves them: where the batch does not fill them, rows of
    weight 0 are repeated, which a sum with the weights leaves out.
    """

    rows: Rows
    weights: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Schedule:
    """The global batches of all epochs: `examples` an epoch, in batches of `batch`, the last of which may be smaller.

    UsageError for numbers that are no counts.
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
                raise UsageError(f"{name} is an integer from 1 on, got {value!r}")

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.examples // self.batch)

    @property
    def steps(self) -> int:
        """Of all epochs."""
        return self.steps_per_epoch * self.epochs

    def place(self, step: int) -> tuple[int, int]:
        """The epoch of a step, and which of the epoch it is; all from 0."""
        return divmod(step, self.steps_per_epoch)

    def rows(self, step: int) -> Rows:
        """The examples of a step's global batch, i64[n]."""
        epoch, index = self.place(step)
        return self._order(epoch)[index * self.batch : (index + 1) * self.batch]

    def cut(self, step: int, rank: int, ranks: int) -> RankShare:
        """The part of rank `rank` of `ranks`."""
        chosen = self.rows(step)
        length = self.length(ranks)
        positions = np.arange(rank * length, (rank + 1) * length)
        return RankShare(chosen[np.minimum(positions, len(chosen) - 1)], (positions < len(chosen)).astype(np.float32))

    def length(self, ranks: int) -> int:
        """Rows of each rank's part, of `ranks`."""
        return -(-self.batch // ranks)

    def _order(self, epoch: int) -> Rows:
        return _order(self.examples, self.seed, epoch) if self.shuffle else np.arange(self.examples)


@lru_cache(maxsize=2)
def _order(examples: int, seed: int, epoch: int) -> Rows:
    return np.random.default_rng((seed, epoch)).permutation(examples)
