"""Comparison of the whole arrays that ranks pass to a function of the global view."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from collectives.communicator import Communicator
from spmd.checkpoint.checksum import checksum
from spmd.errors import UsageError
from spmd.support.arrays import Array

_WHERE = "comparing the whole arguments of the first call"


def check_whole_values(
    arrays: Sequence[Array | None], names: Sequence[str], communicator: Communicator, count: int
) -> None:
    """Raise UsageError, on all ranks, for the first of `arrays` that differs among the `count` ranks. Collective.

    None stands for an argument that is not compared; `names` are the arguments as a user writes them.
    """
    if count == 1:
        return
    own = np.array([[0 if array is None else checksum(_bytes(array)) for array in arrays]], np.int64)
    everyone = communicator.group(range(count))
    summary = np.array([[own.size, zlib.crc32(own.tobytes())]], np.int64)
    summaries = everyone.all_gather(summary.shape, summary.dtype, 0, where=_WHERE)(summary)
    if (summaries == summaries[0]).all():
        return
    other = int(np.flatnonzero((summaries != summaries[0]).any(axis=1))[0])
    if (summaries[:, 0] != summaries[0, 0]).any():
        raise UsageError(f"rank 0 and rank {other} call the function with different numbers of arrays")
    sums = everyone.all_gather(own.shape, own.dtype, 0, where=_WHERE)(own)
    index = int(np.flatnonzero((sums != sums[0]).any(axis=0))[0])
    other = int(np.flatnonzero(sums[:, index] != sums[0, index])[0])
    raise UsageError(
        f"{names[index]} is not the same on rank 0 and rank {other}: at its first call a function of the global view "
        "takes whole arrays, the same on all ranks; blocks are given as "
        "spmd.jax.make_array_from_process_local_data(sharding, block)"
    )


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
