"""Detection of failed ranks, as a fault-tolerant MPI reports them.

Source: MPI Forum, "User-Level Failure Mitigation": a call that involves a failed rank raises MPI_ERR_PROC_FAILED; calls
on a revoked communicator raise MPI_ERR_REVOKED at every rank, which notifies all of them of the failure.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from mpi4py import MPI

#: Open MPI's launcher sets this variable when fault tolerance is enabled.
_ENABLED = "OMPI_MCA_mpi_ft_enable"
#: Seconds by which MPI may report a failure later than its effects.
_MOMENT = 2.0
_CLASSES = ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED")


@cache
def _codes() -> frozenset[int]:
    return frozenset(getattr(MPI, name) for name in _CLASSES)


@cache
def tolerates_faults() -> bool:
    """Return whether this job's MPI continues when a rank fails: Open MPI, started with ``mpirun --with-ft ulfm``."""
    if os.environ.get(_ENABLED, "").lower() not in ("1", "true", "yes", "enabled"):
        return False
    try:
        return not MPI.COMM_SELF.Is_revoked()
    except (MPI.Exception, NotImplementedError):
        return False


def is_loss(comm: MPI.Comm) -> bool:
    """Return whether MPI reports failed ranks of ``comm``, or a rank has revoked it."""
    if not tolerates_faults():
        return False
    return bool(comm.Is_revoked()) or comm.Get_failed().size > 0


def has_failed(comm: MPI.Comm, rank: int) -> bool:
    """Return whether MPI reports that process ``rank`` of ``comm`` has failed."""
    if not tolerates_faults():
        return False
    failed, every = comm.Get_failed(), comm.Get_group()
    found = failed.size > 0 and every.Translate_ranks([rank], failed)[0] != MPI.UNDEFINED
    failed.Free()
    every.Free()
    return bool(found)


def is_soon_lost(comm: MPI.Comm) -> bool:
    """Return as `is_loss`, but poll for `_MOMENT` seconds, since MPI may report a failure after its effects."""
    deadline = time.monotonic() + _MOMENT
    while not (lost := is_loss(comm)) and tolerates_faults() and time.monotonic() < deadline:
        time.sleep(0.01)
    return lost


@contextmanager
def garbage_is_loss(comm: MPI.Comm) -> Iterator[None]:
    """Raise MPI_ERR_PROC_FAILED for any other error of a block that receives objects while ranks of ``comm`` fail.

    A collective in which ranks fail may return without an error on others, which then unpickle what never arrived.
    """
    try:
        yield
    except MPI.Exception:
        raise
    except Exception as error:
        if not is_soon_lost(comm):
            raise
        raise MPI.Exception(MPI.ERR_PROC_FAILED) from error


def tells_of_loss(error: BaseException, comm: MPI.Comm, known: BaseException | None = None) -> bool:
    """Return whether ``error``, or an error in its chain of causes, was raised because ranks of ``comm`` failed.
    ``known``, an error that is being handled already, does not count as a cause.
    """
    cause = _cause(error, known)
    return cause is not None and (cause.Get_error_class() in _codes() or is_loss(comm))


def comes_of_loss(error: BaseException, comm: MPI.Comm, known: BaseException | None = None) -> bool:
    """Return as `tells_of_loss`, but poll for `_MOMENT` seconds, since MPI may report a failure after its effects."""
    if not comes_of_mpi(error, known):
        return False
    deadline = time.monotonic() + _MOMENT
    while not (recognized := tells_of_loss(error, comm, known)) and tolerates_faults() and time.monotonic() < deadline:
        time.sleep(0.01)
    return recognized


def comes_of_mpi(error: BaseException, known: BaseException | None = None) -> bool:
    """Return whether ``error``, or an error in its chain of causes other than ``known``, was raised by an MPI call."""
    return _cause(error, known) is not None


def _cause(error: BaseException | None, known: BaseException | None) -> MPI.Exception | None:
    seen = {id(known)}
    while error is not None and id(error) not in seen:
        if isinstance(error, MPI.Exception):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None
