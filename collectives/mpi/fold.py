"""Reductions as a left fold in group order, over MPI: custom folds, and reproducible reductions.

Small operands are all-gathered and folded redundantly by every process. Large ones are split into one slice per process
and exchanged (all-to-all), each process folds its slice, and the results are all-gathered: each process sends about
twice the operand's bytes whatever the number of processes, as in MPI's bandwidth-optimal all-reduces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from math import prod

import numpy as np
from mpi4py import MPI

from collectives import layout
from collectives.arrays import Array
from collectives.element_types import element
from collectives.mpi import large
from collectives.mpi.transfer import Transfer
from collectives.operations import CollectiveReduce, ReduceScatter, ReducingOperation

_SMALL = 1 << 15  # bytes: the largest all-gathered result; beyond it operands are exchanged in slices


def folded(comm: MPI.Intracomm, operation: ReducingOperation) -> Transfer:
    """Return the steps of a blocking reduction that MPI must not reorder."""
    match operation:
        case ReduceScatter():
            fold = _scattered(comm, operation)
        case _ if prod(operation.shape) > large.MOST:
            fold = _in_pieces(comm, operation)
        case _ if prod(operation.shape) * operation.dtype.itemsize * comm.size <= _SMALL:
            fold = _gathered(comm, operation)
        case _:
            fold = _by_parts(comm, operation)
    fill = None
    if isinstance(operation, CollectiveReduce) and operation.root != comm.rank:
        fill = element(operation.dtype, operation.fill)

    def post(send: Array, receive: Array) -> None:
        total = fold(send)
        np.copyto(receive, total.reshape(receive.shape) if fill is None else fill)

    return Transfer(layout.contiguous, lambda out: out, post, in_place=post)


def _in_pieces(comm: MPI.Intracomm, operation: ReducingOperation) -> Callable[[Array], Array]:
    """Split an operand whose counts and displacements exceed MPI's integers; the reduction is elementwise."""
    parts = large.slices(prod(operation.shape))
    pieces = [_by_parts(comm, replace(operation, shape=(part.stop - part.start,))) for part in parts]

    def steps(array: Array) -> Array:
        flat, total = array.reshape(-1), np.empty(array.size, operation.dtype)
        for part, piece in zip(parts, pieces, strict=True):
            total[part] = piece(flat[part])
        return total

    return steps


def _gathered(comm: MPI.Intracomm, operation: ReducingOperation) -> Callable[[Array], Array]:
    stacked, dtype, plain = (comm.size, *operation.shape), operation.dtype, layout.wire_dtype(operation.dtype)

    def steps(array: Array) -> Array:
        slabs = np.empty(stacked, plain)
        comm.Allgather(array.view(plain), slabs)
        return operation.arithmetic.fold(layout.rows(slabs.view(dtype)))

    return steps


def _by_parts(comm: MPI.Intracomm, operation: ReducingOperation) -> Callable[[Array], Array]:
    n, rank, dtype, plain = comm.size, comm.rank, operation.dtype, layout.wire_dtype(operation.dtype)
    count = prod(operation.shape)
    ends = [count * i // n for i in range(n + 1)]
    counts = [b - a for a, b in pairwise(ends)]
    mine, spread = counts[rank], (counts, ends[:-1])
    root = operation.root if isinstance(operation, CollectiveReduce) else None

    def steps(array: Array) -> Array:
        slabs = np.empty((n, mine), plain)
        comm.Alltoallv([array.view(plain), spread], [slabs, ([mine] * n, [mine * i for i in range(n)])])
        part = operation.arithmetic.fold(layout.rows(slabs.view(dtype))).view(plain)
        total = np.empty(count, plain)
        if root is None:
            comm.Allgatherv(part, [total, spread])
        else:
            comm.Gatherv(part, [total, spread] if rank == root else None, root)
        return total.view(dtype)

    return steps


def _scattered(comm: MPI.Intracomm, operation: ReduceScatter) -> Callable[[Array], Array]:
    n, dtype, plain = comm.size, operation.dtype, layout.wire_dtype(operation.dtype)
    split = layout.splitter(operation.shape, operation.dim, n)
    part = prod(operation.shape) // n

    def steps(array: Array) -> Array:
        slabs = np.empty((n, part), plain)
        comm.Alltoall(split(array).view(plain), slabs)
        return operation.arithmetic.fold(layout.rows(slabs.view(dtype)))

    return steps
