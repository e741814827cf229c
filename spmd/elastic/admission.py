"""A communicator of old ranks and new ones.

A new rank is started from rank 0 alone, so that no other waits for it; the two have a communicator, `peer`, in which
the old one is rank 0 and the new one rank 1. By it the old ranks' communicator is widened, once for each new rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mpi4py import MPI

OLD, NEW = 0, 1
#: Tags: what the two say; that the new rank is not needed; how communicators are joined.
WORDS, DISMISSAL, _JOINING = 1, 2, 3


def tell(peer: MPI.Intracomm, words: object, tag: int = WORDS) -> None:
    """Tells the other of the two."""
    peer.send(words, _other(peer), tag)


def has_told(peer: MPI.Intracomm, tag: int = WORDS) -> bool:
    """Whether the other has said something; raises MPI's error when it is lost."""
    if peer.Get_failed().size:
        raise MPI.Exception(MPI.ERR_PROC_FAILED)
    return bool(peer.Iprobe(_other(peer), tag))


def hear(peer: MPI.Intracomm) -> object:
    """Waits for what the other says."""
    return peer.recv(source=_other(peer), tag=WORDS)


def _other(peer: MPI.Intracomm) -> int:
    return NEW if peer.rank == OLD else OLD


def widen(comm: MPI.Intracomm, peers: Sequence[MPI.Intracomm]) -> MPI.Intracomm:
    """Adds the ranks of `peers`, which rank 0 knows, behind those of `comm`; `comm` itself where there are none.

    Collective among the ranks of `comm`; each new rank calls `enter`. When it fails on one rank, it does on all.
    """
    number: int = comm.bcast(len(peers), 0)
    with _revoked_on_failure([comm, *peers]) as used:
        for index in range(number):
            peer = MPI.COMM_SELF
            if comm.rank == 0:
                peer = peers[index]
                tell(peer, number - 1 - index)
            comm = _join(comm, peer, NEW, used)
    return comm


def enter(peer: MPI.Intracomm, later: int) -> MPI.Intracomm:
    """The communicator that this new rank belongs to from now on; so many `later` ones follow it."""
    with _revoked_on_failure([peer]) as used:
        comm = _join(MPI.COMM_SELF, peer, OLD, used)
        for _ in range(later):
            comm = _join(comm, MPI.COMM_SELF, NEW, used)
    return comm


def _join(comm: MPI.Intracomm, peer: MPI.Intracomm, other: int, used: list[MPI.Intracomm]) -> MPI.Intracomm:
    """The ranks of `comm` and those behind rank `other` of `peer`; old ones come first."""
    both = comm.Create_intercomm(0, peer, other, _JOINING)
    wider = both.Merge(high=other == OLD)
    both.Free()
    used.append(wider)
    return wider


@contextmanager
def _revoked_on_failure(used: list[MPI.Intracomm]) -> Iterator[list[MPI.Intracomm]]:
    """Whoever waits in one of them gets an error when this rank has one."""
    try:
        yield used
    except BaseException:
        for comm in used:
            comm.Revoke()
        raise
