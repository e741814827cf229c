"""Builds a communicator that contains the running ranks and the new ones.

Rank 0 alone spawns each new rank, so that the other ranks do not block. The two share a communicator, `peer`, with the
old process as rank 0 and the new one as rank 1. `widen` uses it to merge each new rank into the job's communicator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mpi4py import MPI

OLD, NEW = 0, 1
#: Message tags: an object; a request that the new process exit; the leader exchange of Create_intercomm.
MESSAGE, DISMISSAL, _JOINING = 1, 2, 3


def send(peer: MPI.Intracomm, message: object, tag: int = MESSAGE) -> None:
    """Send a pickled object to the other process of `peer`."""
    peer.send(message, _other(peer), tag)


def has_message(peer: MPI.Intracomm, tag: int = MESSAGE) -> bool:
    """Return whether a message with `tag` is pending on `peer`; raise MPI.Exception if the other
    process has failed.
    """
    if peer.Get_failed().size:
        raise MPI.Exception(MPI.ERR_PROC_FAILED)
    return bool(peer.Iprobe(_other(peer), tag))


def receive(peer: MPI.Intracomm) -> object:
    """Block until the other process of `peer` sends an object, and return it."""
    return peer.recv(source=_other(peer), tag=MESSAGE)


def _other(peer: MPI.Intracomm) -> int:
    return NEW if peer.rank == OLD else OLD


def widen(comm: MPI.Intracomm, peers: Sequence[MPI.Intracomm]) -> MPI.Intracomm:
    """Append the new rank of each communicator in `peers` to `comm`; return `comm` itself if `peers` is empty.

    Only rank 0's `peers` is read. Collective over `comm`; each new rank calls `enter`. A failure on one rank revokes
    the communicators, so the call fails on all ranks.
    """
    number: int = comm.bcast(len(peers), 0)
    with _revoked_on_failure([comm, *peers]) as used:
        for index in range(number):
            peer = MPI.COMM_SELF
            if comm.rank == 0:
                peer = peers[index]
                send(peer, number - 1 - index)
            comm = _join(comm, peer, NEW, used)
    return comm


def enter(peer: MPI.Intracomm, later: int) -> MPI.Intracomm:
    """Return the widened communicator on a new rank, after whose own merge `later` more ranks are merged."""
    with _revoked_on_failure([peer]) as used:
        comm = _join(MPI.COMM_SELF, peer, OLD, used)
        for _ in range(later):
            comm = _join(comm, MPI.COMM_SELF, NEW, used)
    return comm


def _join(comm: MPI.Intracomm, peer: MPI.Intracomm, other: int, used: list[MPI.Intracomm]) -> MPI.Intracomm:
    """Merge `comm` with the communicator led by rank `other` of `peer`; the old ranks come first."""
    both = comm.Create_intercomm(0, peer, other, _JOINING)
    wider = both.Merge(high=other == OLD)
    both.Free()
    used.append(wider)
    return wider


@contextmanager
def _revoked_on_failure(used: list[MPI.Intracomm]) -> Iterator[list[MPI.Intracomm]]:
    """Revoke the communicators in `used` if the block raises, so that ranks blocked on them get an error."""
    try:
        yield used
    except BaseException:
        for comm in used:
            comm.Revoke()
        raise
