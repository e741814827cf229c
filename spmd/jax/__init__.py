"""JAX functions on MPI ranks: JAX traces them, spmd compiles, computes and communicates.

    step = spmd.jax.jit(train_step, axes={"data": 4})    # every rank calls it with its own arrays
    params, loss = step(params, batch)

    many = spmd.jax.simulate(train_step, axes={"data": 4096})    # all processes stacked in this one
    spmd.jax.export(train_step, params, batch, axes={"data": 4}, path="step.mlir")    # runs without JAX

Only this package imports JAX (the extra ``jax``). Names are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectives.late_names import loaded_when_used as _loaded_when_used
from spmd.jax import _installed as _installed

if TYPE_CHECKING:
    from spmd.jax.auto import AUTO as AUTO
    from spmd.jax.checking import CommunicationWarning as CommunicationWarning
    from spmd.jax.exporting import export as export
    from spmd.jax.gradients import compare_gradient as compare_gradient
    from spmd.jax.jitting import jit as jit
    from spmd.jax.local_arrays import make_array_from_process_local_data as make_array_from_process_local_data
    from spmd.jax.simulating import simulate as simulate

_HOMES = {
    "AUTO": "auto",
    "CommunicationWarning": "checking",
    "compare_gradient": "gradients",
    "export": "exporting",
    "jit": "jitting",
    "make_array_from_process_local_data": "local_arrays",
    "simulate": "simulating",
}

__all__ = [*_HOMES]

__getattr__ = _loaded_when_used(__name__, {name: f"spmd.jax.{home}" for name, home in _HOMES.items()})


def __dir__() -> list[str]:
    return sorted(__all__)
