"""Agreement of ranks on different processors: they compile for features that all have, for equal bits.

They compare processors when they first communicate, and when ranks join; programs compiled before, for a processor that
not all have, are compiled again at their next call.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from spmd.backends.native import NativeBackend, native_backend
from spmd.compiler.pipeline.options import default_backends
from spmd.support.processor import Processor, common, requested

if TYPE_CHECKING:
    from mpi4py import MPI


def agree(world: MPI.Comm) -> None:
    """Make this rank compile for what all ranks of `world`, an MPI communicator, can run. Collective.

    The first rank prints a line on stderr if some of the ranks have more features.
    """
    backend: NativeBackend | None = native_backend(default_backends())
    own = None if backend is None else (backend.processor(requested()), os.uname().nodename)
    everyone = [each for each in world.allgather(own) if each is not None]
    processors = [processor for processor, _ in everyone]
    if backend is None or len(everyone) < world.size:
        return
    shared = common(processors)
    backend.agree_on(shared or backend.processor(requested()))
    if world.rank == 0 and any(processor != processors[0] for processor in processors):
        print(_note(shared, everyone), file=sys.stderr, flush=True)


def _note(shared: Processor | None, everyone: list[tuple[Processor, str]]) -> str:
    if shared is None:
        families = ", ".join(sorted({processor.architecture for processor, _ in everyone}))
        return (
            f"spmd: ranks run on processors of several families ({families}), each with code of its own: elementwise "
            "results have the same bits on all of them, sums and products where the compilation is `reproducible`"
        )
    least = min(_extent(processor) for processor, _ in everyone)
    rank = next(rank for rank, (processor, _) in enumerate(everyone) if _extent(processor) == least)
    processor, host = everyone[rank]
    count = sum(_extent(each) == least for each, _ in everyone)
    others = f" and {count - 1} more" if count > 1 else ""
    return (
        f"spmd: ranks run on unlike processors: code is made for {shared}, which all of them have; "
        f"rank {rank} on {host}{others} has no more ({processor.name})"
    )


def _extent(processor: Processor) -> tuple[int, int]:
    """Return a key for the capability of a processor: vector width, then number of features."""
    return processor.vector_bits, sum(feature[0] == "+" for feature in processor.features)
