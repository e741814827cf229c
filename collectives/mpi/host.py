"""All-reduces of large arrays among ranks of one host, through shared memory.

An operand passes through the memory in chunks. Of each chunk, a rank publishes the slices that other ranks fold and
folds its own slice of all operands, in group order; then every rank collects the other slices. Chunks stay in cache,
and two are in flight at a time, so that each costs one barrier: while the slices of one are collected, the next one is
folded and the one after it published. Measured on two ranks with a core each, it takes 0.85 of MPI_Allreduce's time for
4 MiB, 0.6 to 0.75 for 16 MiB and more; in a training step, whose operands are not in cache, 0.96 to 1.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from math import prod
from typing import TypeGuard
from zlib import crc32

import numpy as np
from mpi4py import MPI

from collectives import layout, shared_memory
from collectives.arrays import Array, DType
from collectives.errors import CommunicationError
from collectives.mpi.transfer import Transfer
from collectives.operations import AllReduce, Operation, describe

#: Minimum bytes of an operand for shared memory: below, steps are as fast with MPI's own calls.
LEAST = 1 << 22
#: Maximum number of ranks: each needs chunks of its own.
MOST_RANKS = 16
#: Bytes of a chunk.
CHUNK = 1 << 19
_PAGE = 4096


def goes_through_memory(operation: Operation, size: int) -> TypeGuard[AllReduce]:
    """Return whether ``operation`` among ``size`` ranks uses shared memory if they are on one host."""
    nbytes = prod(operation.shape) * operation.dtype.itemsize
    return isinstance(operation, AllReduce) and 1 < size <= MOST_RANKS and nbytes >= LEAST


@dataclass(frozen=True)
class HostMemory:
    """Memory shared by all ranks of ``comm``: two operand chunks per rank, and two chunks for results."""

    comm: MPI.Intracomm
    calls: Array
    operands: Array
    folded: Array

    @classmethod
    def of(cls, comm: MPI.Intracomm) -> HostMemory | None:
        """Return the shared memory of ``comm``. Collective.

        None on all ranks if they are on several hosts or it cannot be allocated.
        """
        size = comm.size
        length = _PAGE + (2 * size + 2) * CHUNK
        path, key, descriptor = "", b"", -1
        if comm.rank == 0:
            with suppress(OSError, ImportError):
                descriptor, path = shared_memory.create(length)
                key = os.urandom(16)
                mmap.mmap(descriptor, length)[: len(key)] = key
        path, content = comm.bcast((path, key))
        if comm.rank and content:
            with suppress(OSError, ImportError):
                descriptor = shared_memory.attach(path)
        memory = np.frombuffer(mmap.mmap(descriptor, length), np.uint8) if descriptor >= 0 else None
        # Another host may have memory of that name, but not with that content.
        is_there = bool(content) and memory is not None and memory[: len(content)].tobytes() == content
        if not comm.allreduce(is_there, MPI.LAND):
            memory = None
        if comm.rank == 0 and content:
            shared_memory.forget(path)
        if descriptor >= 0:
            os.close(descriptor)
        if memory is None:
            return None
        chunks = memory[_PAGE:].reshape(2 * size + 2, CHUNK)
        return cls(comm, memory[:_PAGE].view(np.uint64), chunks[:-2].reshape(size, 2, CHUNK), chunks[-2:])

    def all_reduce(self, operation: AllReduce) -> Transfer:
        """Return the steps of ``operation``."""
        rank, barrier, fold = self.comm.rank, self.comm.Barrier, operation.arithmetic.fold_into
        chunks = self._chunks(prod(operation.shape), operation.dtype)
        calls, text = self.calls[: self.comm.size], describe(operation)
        token = np.uint64(crc32(text.encode()))

        def post(operand: Array, out: Array) -> None:
            flat, result = operand.reshape(-1), out.reshape(-1)
            calls[rank] = token
            chunks[0].publish(flat)
            barrier()
            if (calls != token).any():
                others = np.flatnonzero(calls != token).tolist()
                raise CommunicationError(
                    f"position {rank} of a process group is in {text}, {others} are in another call"
                )
            last: _Chunk | None = None
            for chunk, following in zip_longest(chunks, chunks[1:]):
                if last is not None:
                    last.collect(result)
                slabs = chunk.slabs.copy()
                slabs[rank] = flat[chunk.own]
                fold(slabs, chunk.total)
                result[chunk.own] = chunk.total
                if following is not None:
                    following.publish(flat)
                barrier()
                last = chunk
            assert last is not None
            last.collect(result)

        return Transfer(layout.contiguous, lambda out: out, post, in_place=post)

    def _chunks(self, count: int, dtype: DType) -> list[_Chunk]:
        """Return the chunks of an operand of ``count`` elements."""
        rank, size, largest = self.comm.rank, self.comm.size, self.folded.shape[1] // dtype.itemsize
        operands, folded = self.operands.view(dtype), self.folded.view(dtype)
        chunks = []
        for number, start in enumerate(range(0, count, largest)):
            end = min(start + largest, count)
            first, stop = ((end - start) * part // size for part in (rank, rank + 1))
            slots, total = operands[:, number & 1, : end - start], folded[number & 1, : end - start]
            chunks.append(
                _Chunk(
                    before=slice(start, start + first),
                    own=slice(start + first, start + stop),
                    after=slice(start + stop, end),
                    mine_before=slots[rank, :first],
                    mine_after=slots[rank, stop:],
                    slabs=[slot[first:stop] for slot in slots],
                    total_before=total[:first],
                    total=total[first:stop],
                    total_after=total[stop:],
                )
            )
        return chunks


@dataclass(frozen=True)
class _Chunk:
    """A chunk: the ranges of the operand before, in and after the rank's own slice, and their views in shared memory.

    The rank publishes the first and the last for the others; ``slabs`` are the views of its own slice in all operands.
    """

    before: slice
    own: slice
    after: slice
    mine_before: Array
    mine_after: Array
    slabs: list[Array]
    total_before: Array
    total: Array
    total_after: Array

    def publish(self, operand: Array) -> None:
        """Copy the slices that other ranks fold to shared memory."""
        self.mine_before[...] = operand[self.before]
        self.mine_after[...] = operand[self.after]

    def collect(self, result: Array) -> None:
        """Copy the slices that other ranks have folded from shared memory."""
        result[self.before] = self.total_before
        result[self.after] = self.total_after
