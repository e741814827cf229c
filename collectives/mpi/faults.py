"""Converts errors that MPI raises in a collective to errors that name the collective.

MPI does not compare arguments: if processes pass different shapes, element types, reductions or collectives, one may
get an error about a message that is too long, while another continues with the data it received.
"""

from __future__ import annotations

from mpi4py import MPI

from collectives.errors import CommunicationError
from collectives.mpi.losses import tells_of_loss
from collectives.record.activity import Waiting
from collectives.settings import CHECK_VARIABLE


def fault_of(
    error: MPI.Exception, waiting: Waiting, comm: MPI.Intracomm, process: int
) -> CommunicationError | MPI.Exception:
    """Return the exception to raise for ``error``, which MPI raised in a collective of ``process``; ``error`` itself if
    it was caused by a rank failure.
    """
    if tells_of_loss(error, comm):
        return error
    return CommunicationError(
        f"{waiting.text}: MPI reports to process {process}: {error.Get_error_string()}; another process may have "
        "passed another shape, element type or reduction, or called another collective: "
        f"{CHECK_VARIABLE}=1 in the environment (or check_collectives=True, --check-collectives) has the processes "
        "compare them, and name both"
    )
