"""What MPI raises in a collective, told as what this process was doing.

MPI compares nothing: where processes come with other shapes, element types, reductions or collectives, one of them may
hear of a message that is too long, another go on with what came.
"""

from __future__ import annotations

from mpi4py import MPI

from collectives.activity import Waiting
from collectives.errors import CommunicationError
from collectives.mpi_losses import tells_of_loss
from collectives.settings import CHECK_VARIABLE


def fault_of(
    error: MPI.Exception, waiting: Waiting, comm: MPI.Intracomm, process: int
) -> CommunicationError | MPI.Exception:
    """What to raise for ``error``, which MPI raised for ``process`` in a collective; itself where ranks are lost."""
    if tells_of_loss(error, comm):
        return error
    return CommunicationError(
        f"{waiting.text}: process {process} is told by MPI: {error.Get_error_string()}; another process may have come "
        f"with another shape, element type, reduction or collective: {CHECK_VARIABLE}=1 in the environment (or "
        "check_collectives=True, --check-collectives) has the processes compare them, and name both"
    )
