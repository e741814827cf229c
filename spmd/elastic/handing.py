"""Handing a state from one rank to all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spmd.support.arrays import Tree

if TYPE_CHECKING:
    from mpi4py import MPI


def broadcast(comm: MPI.Intracomm, tree: object, root: int) -> Tree:
    """The tree of rank `root`, on every rank of `comm`: a collective call. Its arrays are sent as they lie."""
    from mpi4py.util import pkl5  # late: importing mpi4py starts MPI

    received = pkl5.Intracomm(comm).bcast(tree, root)
    return tree if comm.rank == root else received
