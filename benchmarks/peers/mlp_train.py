"""One step of SGD on a multilayer perceptron 784-512-512-10 with cross-entropy: ``mlp_train``, ``dp2_mlp_train``."""

from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

Array = npt.NDArray[np.float32]
RATE = np.float32(0.1)


def gradients(parameters: list[Array], images: Array, targets: Array, into: list[Array]) -> np.float32:
    """Return the loss of a batch, and write its gradients ``into`` arrays shaped like the parameters.

    images f32[n, 784], targets f32[n, 10] (weights of the classes, one-hot for labels); the loss is the mean over n.
    """
    weights1, biases1, weights2, biases2, weights3, biases3 = parameters
    hidden1 = images @ weights1
    hidden1 += biases1
    np.maximum(hidden1, 0, out=hidden1)
    hidden2 = hidden1 @ weights2
    hidden2 += biases2
    np.maximum(hidden2, 0, out=hidden2)
    logits = hidden2 @ weights3
    logits += biases3

    logits -= logits.max(axis=1, keepdims=True)
    exponentials = np.exp(logits)
    sums = exponentials.sum(axis=1, keepdims=True)
    logits -= np.log(sums)
    count = np.float32(len(images))
    loss = -(logits * targets).sum() / count

    weight = targets.sum(axis=1, keepdims=True) / count
    upstream = exponentials * (weight / sums)
    upstream -= targets / count
    np.matmul(hidden2.T, upstream, out=into[4])
    upstream.sum(axis=0, out=into[5])
    upstream = upstream @ weights3.T
    upstream *= hidden2 > 0
    np.matmul(hidden1.T, upstream, out=into[2])
    upstream.sum(axis=0, out=into[3])
    upstream = upstream @ weights2.T
    upstream *= hidden1 > 0
    np.matmul(images.T, upstream, out=into[0])
    upstream.sum(axis=0, out=into[1])
    return loss


def step(*arguments: Array) -> tuple[Any, ...]:
    """Return the loss and the new parameters, as ``mlp_train`` does."""
    parameters, (images, targets) = list(arguments[:6]), arguments[6:]
    slopes = [np.empty_like(parameter) for parameter in parameters]
    loss = gradients(parameters, images, targets, slopes)
    for slope, parameter in zip(slopes, parameters, strict=True):
        slope *= -RATE
        slope += parameter
    return (loss, *slopes)


class DataParallelStep:
    """``dp2_mlp_train`` on this rank's half of the batch: one all-reduce of all gradients in one buffer."""

    def __init__(self, communicator: MPI.Comm, parameters: list[Array]) -> None:
        self._communicator = communicator
        sizes = [parameter.size for parameter in parameters]
        ends = np.cumsum(sizes)
        self._buffer = np.empty(int(ends[-1]) + 1, np.float32)
        self._slopes = [
            self._buffer[end - size : end].reshape(parameter.shape)
            for parameter, size, end in zip(parameters, sizes, ends, strict=True)
        ]

    def __call__(self, *arguments: Array) -> tuple[Any, ...]:
        parameters, (images, targets) = list(arguments[:6]), arguments[6:]
        self._buffer[-1] = gradients(parameters, images, targets, self._slopes)
        self._communicator.Allreduce(MPI.IN_PLACE, self._buffer)
        self._buffer[:-1] *= RATE / np.float32(self._communicator.size)
        loss = self._buffer[-1] / np.float32(self._communicator.size)
        return (loss, *[parameter - slope for parameter, slope in zip(parameters, self._slopes, strict=True)])
