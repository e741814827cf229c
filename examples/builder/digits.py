"""The training step of the digits example, built by hand with XlaBuilder, on any number of MPI ranks that divides 8.

    spmd launch -n 4 -- python examples/builder/digits.py

The step is one program for each rank: AllReduce without groups adds up the loss and the gradients of all of them.
It gives the losses of the step that examples/digits exports from JAX.
"""

import argparse
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from mpi4py import MPI

import spmd
from spmd.builder import F32, LiteralUtil, Shape, XlaBuilder, XlaComputation, XlaOp, ops

sys.path.insert(0, str(Path(__file__).parents[1] / "digits"))
from train import LAYERS, SHARDS, TRAIN_BATCH, initial_state, load_data

MOMENTUM = 0.9


def scalar_function(name: str, operation: str) -> XlaComputation:
    """A computation of two f32 scalars."""
    builder = XlaBuilder(name)
    x, y = (builder.Parameter(number, Shape.array_shape(F32), name) for number, name in enumerate("xy"))
    getattr(builder, operation)(x, y)
    return builder.Build()


ADD, MAX = scalar_function("add", "Add"), scalar_function("max", "Max")


def total(operand: XlaOp, *dimensions: int) -> XlaOp:
    return ops.Reduce(operand, operand.builder.ConstantR0(0.0), ADD, dimensions)


def forward(parameters: Sequence[tuple[XlaOp, XlaOp]], images: XlaOp) -> tuple[list[XlaOp], XlaOp]:
    """The input of each layer, and the logits f32[n, 10]: layers of rectified linear units, the last one linear."""
    inputs = [images]
    for weights, biases in parameters[:-1]:
        inputs.append(ops.Max(ops.Add(inputs[-1] @ weights, biases, broadcast_dimensions=[1]), 0.0))
    weights, biases = parameters[-1]
    return inputs, ops.Add(inputs[-1] @ weights, biases, broadcast_dimensions=[1])


def cross_entropy(logits: XlaOp, labels: XlaOp) -> tuple[XlaOp, XlaOp]:
    """The loss, a sum over images divided by the size of the global batch, and its gradient at the logits."""
    builder = logits.builder
    lowest = builder.Constant(LiteralUtil.MinValue(F32))
    largest = ops.Reduce(logits, lowest, MAX, [1])
    shifted = ops.Sub(logits, largest, broadcast_dimensions=[0])
    exponentials = ops.Exp(shifted)
    sums = total(exponentials, 1)
    classes = builder.Iota(Shape.array_shape("s32", logits.shape.dimensions()), 1)
    chosen = ops.ConvertElementType(ops.Eq(classes, labels, broadcast_dimensions=[0]), F32)
    likelihoods = ops.Sub(shifted, ops.Log(sums), broadcast_dimensions=[0])
    loss = -total(likelihoods * chosen, 0, 1) / float(TRAIN_BATCH)
    return loss, (ops.Div(exponentials, sums, broadcast_dimensions=[0]) - chosen) / float(TRAIN_BATCH)


def backward(parameters: Sequence[tuple[XlaOp, XlaOp]], inputs: Sequence[XlaOp], gradient: XlaOp) -> list[XlaOp]:
    """The gradients of weights and biases, layer by layer, from that of the logits."""
    gradients: list[XlaOp] = []
    for (weights, _), activations in zip(reversed(parameters), reversed(inputs), strict=True):
        gradients[:0] = [ops.Transpose(activations) @ gradient, total(gradient, 0)]
        if activations is not inputs[0]:
            active = ops.ConvertElementType(ops.Gt(activations, 0.0), F32)
            gradient = (gradient @ ops.Transpose(weights)) * active
    return gradients


def train_step(batch: int) -> XlaComputation:
    """One step of SGD with momentum on this rank's part of a global batch, `batch` images.

    (parameters..., velocities..., rate, images f32[batch, 64], labels s32[batch]) ->
    (loss, parameters..., velocities...), where parameters are weights and biases of each layer.
    """
    builder = XlaBuilder("train_step")
    shapes = [shape for inputs, outputs in itertools.pairwise(LAYERS) for shape in ((inputs, outputs), (outputs,))]
    numbers = itertools.count()

    def parameter(shape: Sequence[int], name: str, type: str = "f32") -> XlaOp:
        return builder.Parameter(next(numbers), Shape.array_shape(type, shape), name)

    state = [parameter(shape, f"parameter_{i}") for i, shape in enumerate(shapes)]
    velocities = [parameter(shape, f"velocity_{i}") for i, shape in enumerate(shapes)]
    rate, images = parameter([], "rate"), parameter([batch, LAYERS[0]], "images")
    labels = parameter([batch], "labels", "s32")

    layers = list(zip(state[0::2], state[1::2], strict=True))
    inputs, logits = forward(layers, images)
    loss, gradient = cross_entropy(logits, labels)
    local = ops.Tuple([loss, *backward(layers, inputs, gradient)])
    reduced = ops.AllReduce(local, ADD)
    gradients = [reduced[1 + i] for i in range(len(state))]
    velocities = [v * MOMENTUM + g for v, g in zip(velocities, gradients, strict=True)]
    state = [p - rate * v for p, v in zip(state, velocities, strict=True)]
    return builder.Build(ops.Tuple([reduced[0], *state, *velocities]))


def main() -> None:
    world = MPI.COMM_WORLD
    parser = argparse.ArgumentParser(description="Train with a step that was built by hand.")
    parser.add_argument("--epochs", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate, default: %(default)s")
    options = parser.parse_args()
    if SHARDS % world.size:
        sys.exit(f"the data come in {SHARDS} shards, which {world.size} ranks cannot share evenly")
    data = load_data(world.rank, world.size)
    module = train_step(TRAIN_BATCH // world.size).to_stablehlo()
    step = spmd.compile(module, spmd.ProcessGrid(num_replicas=world.size))
    state, rate = initial_state(0), np.float32(options.rate)
    for epoch in range(options.epochs):
        losses = []
        for images, labels in data.batches(0, epoch, world.rank * SHARDS // world.size):
            loss, *state = step(*state, rate, images, labels)
            losses.append(float(loss))
        if world.rank == 0:
            print(f"epoch {epoch + 1}: loss {np.mean(losses):.4f}", flush=True)


if __name__ == "__main__":
    main()
