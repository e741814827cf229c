"""Ranks that are lost while others live: what MPI tells of them, where it tolerates faults.

Source: MPI Forum, "User-Level Failure Mitigation": a call that a lost rank has a part in raises MPI_ERR_PROC_FAILED; a
communicator that somebody has revoked raises MPI_ERR_REVOKED at every rank, so that all of them learn of the loss.
"""

from __future__ import annotations

import os
import time
from functools import cache

from mpi4py import MPI

#: What Open MPI's launcher sets for ranks that may outlive others.
_ENABLED = "OMPI_MCA_mpi_ft_enable"
#: Seconds that MPI may learn of a loss later than of its effect.
_MOMENT = 2.0
_CLASSES = ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED")


@cache
def _codes() -> frozenset[int]:
    return frozenset(getattr(MPI, name) for name in _CLASSES)


@cache
def tolerates_faults() -> bool:
    """Whether this job's MPI goes on when a rank is lost: Open MPI, started with ``mpirun --with-ft ulfm``."""
    if os.environ.get(_ENABLED, "").lower() not in ("1", "true", "yes", "enabled"):
        return False
    try:
        return not MPI.COMM_SELF.Is_revoked()
    except (MPI.Exception, NotImplementedError):
        return False


def is_loss(comm: MPI.Comm) -> bool:
    """Whether MPI has found ranks of ``comm`` lost, or somebody has revoked it for that."""
    if not tolerates_faults():
        return False
    return bool(comm.Is_revoked()) or comm.Get_failed().size > 0


def tells_of_loss(error: BaseException, comm: MPI.Comm, known: BaseException | None = None) -> bool:
    """Whether ``error`` was raised, at whatever remove, because ranks of ``comm`` are lost; where it was raised while
    the error ``known`` was dealt with, for another reason than that."""
    cause = _cause(error, known)
    return cause is not None and (cause.Get_error_class() in _codes() or is_loss(comm))


def comes_of_loss(error: BaseException, comm: MPI.Comm, known: BaseException | None = None) -> bool:
    """As `tells_of_loss`, where MPI may learn of the loss a moment later than of its effect: waits for that."""
    if not comes_of_mpi(error, known):
        return False
    deadline = time.monotonic() + _MOMENT
    while not (told := tells_of_loss(error, comm, known)) and tolerates_faults() and time.monotonic() < deadline:
        time.sleep(0.01)
    return told


def comes_of_mpi(error: BaseException, known: BaseException | None = None) -> bool:
    """Whether ``error`` was raised, at whatever remove, because a call of MPI failed; not the one ``known``."""
    return _cause(error, known) is not None


def _cause(error: BaseException | None, known: BaseException | None) -> MPI.Exception | None:
    seen = {id(known)}
    while error is not None and id(error) not in seen:
        if isinstance(error, MPI.Exception):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None
