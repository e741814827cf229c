"""Processes that are MPI ranks: the communicator, its calls of MPI, and the watchdog between ranks.

`MpiCommunicator` is loaded when first used, since importing mpi4py starts MPI. Records of communications are in
``collectives.record``, what holds for every transport is in ``collectives``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectives.late_names import loaded_when_used as _loaded_when_used

if TYPE_CHECKING:
    from collectives.mpi.communicator import MpiCommunicator as MpiCommunicator

__all__ = ["MpiCommunicator"]

__getattr__ = _loaded_when_used(__name__, {"MpiCommunicator": "collectives.mpi.communicator"})
