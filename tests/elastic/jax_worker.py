"""Least squares as a function of JAX; one of three ranks is killed in step 11. Rank 0 prints how it ended.

Beside the step that is built for each number of ranks there are two that are made once: one takes the ranks as they
are, although its arguments keep their forms, one is for three.
"""

import os
import signal
from typing import Any

import jax
import numpy as np

import spmd.elastic
import spmd.jax
from spmd.errors import UsageError

rng = np.random.default_rng(0)
INPUTS = rng.standard_normal((512, 8)).astype(np.float32)
WANTED = rng.standard_normal((8, 1)).astype(np.float32)
OUTPUTS = INPUTS @ WANTED
BATCH = 64


def build(ranks: int) -> Any:
    @spmd.jax.jit(axes={"data": ranks})
    def step(parameters: Any, inputs: Any, outputs: Any, weights: Any) -> Any:
        def loss(parameters: Any) -> Any:
            return (((inputs @ parameters - outputs) ** 2)[:, 0] * weights).sum()

        value, slope = jax.lax.psum(jax.value_and_grad(loss)(parameters), "data")
        return value / BATCH, parameters - 0.05 * slope / BATCH

    return step


def squares(x: Any, axis: str) -> Any:
    return jax.lax.psum(x * x, axis)


as_they_are = spmd.jax.jit(lambda x: squares(x, "processes"))
for_three = spmd.jax.jit(lambda x: squares(x, "data"), axes={"data": 3})


def main() -> None:
    training = spmd.elastic.Training(np.zeros((8, 1), np.float32), examples=512, batch=BATCH, epochs=5, build=build)
    for step in training:
        with step:
            if step.number == 11 and step.rank == 1 and step.ranks == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            assert as_they_are(np.float32(2)) == 4 * step.ranks
            if step.number < 11:
                assert for_three(np.float32(2)) == 12
            _, parameters = step.program(step.state, INPUTS[step.rows], OUTPUTS[step.rows], step.weights)
            step.commit(parameters)
    try:
        for_three(np.float32(2))
    except UsageError as error:
        told = str(error)
    if training.rank == 0:
        print(told)
        print(f"{training.ranks} ranks, off by {np.abs(training.state - WANTED).max():.3f}", flush=True)


if __name__ == "__main__":
    main()
