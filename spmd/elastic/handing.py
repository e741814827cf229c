"""Broadcasting a state from one rank to all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spmd.support.arrays import Tree

if TYPE_CHECKING:
    from mpi4py import MPI


def broadcast(comm: MPI.Intracomm, tree: object, root: int) -> Tree:
    """Return the tree of rank `root` on every rank of `comm`. Collective. Arrays are sent without pickling them."""
    from mpi4py.util import pkl5  # late: importing mpi4py starts MPI

    received = pkl5.Intracomm(comm).bcast(tree, root)
    return tree if comm.rank == root else received
