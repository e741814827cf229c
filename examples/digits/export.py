"""Write the training step and the evaluation of the digits classifier as StableHLO, for 1, 2, 4 and 8 processes.

Needs the ``jax`` extra; running the programs needs no JAX. From the repository's root::

    python examples/digits/export.py
"""

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

PROCESSES = (1, 2, 4, 8)
PIXELS, HIDDEN, CLASSES = 64, 128, 10
TRAIN_BATCH, HELD_OUT = 64, 360
MOMENTUM = 0.9
FOLDER = Path(__file__).parent

Parameters = list[tuple[jax.Array, jax.Array]]


def logits(parameters: Parameters, images: jax.Array) -> jax.Array:
    """Two hidden layers of rectified linear units: images f32[n, 64] in 0..1 to logits f32[n, 10]."""
    activations = images
    for weights, biases in parameters[:-1]:
        activations = jax.nn.relu(activations @ weights + biases)
    weights, biases = parameters[-1]
    return activations @ weights + biases


def cross_entropy(parameters: Parameters, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Sum over the images of the negative log likelihood, divided by the size of the global batch."""
    likelihoods = jax.nn.log_softmax(logits(parameters, images))
    chosen = likelihoods * jax.nn.one_hot(labels, CLASSES, dtype=likelihoods.dtype)
    return -jnp.sum(chosen) / TRAIN_BATCH


def train_step(
    parameters: Parameters, velocities: Parameters, rate: jax.Array, images: jax.Array, labels: jax.Array
) -> tuple[jax.Array, Parameters, Parameters]:
    """One step of SGD with momentum on a global batch, of which each process holds its part."""
    local = jax.value_and_grad(cross_entropy)(parameters, images, labels)
    loss, gradients = jax.lax.psum(local, "data")
    velocities = jax.tree.map(lambda velocity, gradient: MOMENTUM * velocity + gradient, velocities, gradients)
    parameters = jax.tree.map(lambda parameter, velocity: parameter - rate * velocity, parameters, velocities)
    return loss, parameters, velocities


def evaluate(parameters: Parameters, images: jax.Array, labels: jax.Array) -> jax.Array:
    """The number of held-out images, over all processes, whose most likely class is their label."""
    correct = jnp.argmax(logits(parameters, images), axis=1) == labels
    return jax.lax.psum(jnp.sum(correct, dtype=jnp.int32), "data")


def shapes(*dimensions: int, dtype: type = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dimensions, dtype)


def lower(function: Callable, mesh: Mesh, in_specs: tuple, out_specs: object, arguments: tuple) -> str:
    # Without the check of varying axes, gradients are reduced by the psum that is written above, and by it alone.
    program = jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
    return jax.jit(program).lower(*arguments).as_text()


def main() -> None:
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", max(PROCESSES))
    sizes = (PIXELS, HIDDEN, HIDDEN, CLASSES)
    parameters = [(shapes(rows, columns), shapes(columns)) for rows, columns in itertools.pairwise(sizes)]
    everywhere, split = PartitionSpec(), PartitionSpec("data")
    labels = partial(shapes, dtype=jnp.int32)
    step_arguments = (parameters, parameters, shapes(), shapes(TRAIN_BATCH, PIXELS), labels(TRAIN_BATCH))
    evaluation_arguments = (parameters, shapes(HELD_OUT, PIXELS), labels(HELD_OUT))
    for processes in PROCESSES:
        mesh = Mesh(np.array(jax.devices()[:processes]), ("data",))
        step_specs = (everywhere, everywhere, everywhere, split, split)
        step = lower(train_step, mesh, step_specs, everywhere, step_arguments)
        evaluation = lower(evaluate, mesh, (everywhere, split, split), everywhere, evaluation_arguments)
        (FOLDER / f"train_step_{processes}.mlir").write_text(step)
        (FOLDER / f"evaluate_{processes}.mlir").write_text(evaluation)


if __name__ == "__main__":
    main()
