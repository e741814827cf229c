"""JAX functions on MPI ranks: JAX traces, this runtime compiles, computes and communicates.

    step = spmd.jax.jit(train_step, axes={"data": 4})    # every rank calls it with its own arrays
    params, loss = step(params, batch)

    many = spmd.jax.simulate(train_step, axes={"data": 4096})    # all processes stacked in this one
    spmd.jax.export(train_step, params, batch, axes={"data": 4}, path="step.mlir")    # runs without JAX

Only this package imports JAX (the extra ``jax``).
"""

from spmd.jax import _installed as _installed
from spmd.jax import trees as _trees  # noqa: F401  (checkpoints learn JAX's trees)
from spmd.jax.auto import AUTO
from spmd.jax.checking import CommunicationWarning
from spmd.jax.exporting import export
from spmd.jax.gradients import compare_gradient
from spmd.jax.jitting import jit
from spmd.jax.local_arrays import make_array_from_process_local_data
from spmd.jax.simulating import simulate

__all__ = [
    "AUTO",
    "CommunicationWarning",
    "compare_gradient",
    "export",
    "jit",
    "make_array_from_process_local_data",
    "simulate",
]
