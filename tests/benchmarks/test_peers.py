"""The hand-written peers compute what they are compared with."""

import itertools

import numpy as np
from mpi4py import MPI
from scipy import special

import spmd
from benchmarks.op_programs import WITHOUT, programs
from benchmarks.peers import elementwise_chain, mlp_train, softmax, transformer_block
from benchmarks.peers.run import OWN_PROGRAMS
from spmd.dialects import OPS
from spmd.io import arguments

RATE = float(mlp_train.RATE)


def mlp_arguments(count: int) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    sizes = (6, 5, 4, 3)
    arrays: list[np.ndarray] = []
    for rows, columns in itertools.pairwise(sizes):
        arrays += [generator.standard_normal((rows, columns)), generator.standard_normal(columns)]
    arrays.append(generator.standard_normal((count, sizes[0])))
    arrays.append(np.eye(sizes[-1])[generator.integers(0, sizes[-1], count)])
    return [array.astype(np.float32) for array in arrays]


def mlp_loss(arrays: list[np.ndarray]) -> float:
    """The same loss in double precision, by the definition."""
    *parameters, images, targets = (array.astype(np.float64) for array in arrays)
    for weights, biases in zip(parameters[0:4:2], parameters[1:4:2], strict=True):
        images = np.maximum(images @ weights + biases, 0)
    return float(-(special.log_softmax(images @ parameters[4] + parameters[5], axis=1) * targets).sum(1).mean())


def test_the_step_goes_down_the_slope_of_the_loss() -> None:
    arrays = mlp_arguments(7)
    loss, *updated = mlp_train.step(*arrays)
    assert np.isclose(loss, mlp_loss(arrays), rtol=1e-5)
    for position, after in enumerate(updated):
        slope = (arrays[position].astype(np.float64) - after) / RATE
        for index in np.ndindex(slope.shape):
            moved = [array.astype(np.float64) for array in arrays]
            moved[position][index] += 1e-6
            up = mlp_loss(moved)
            moved[position][index] -= 2e-6
            assert np.isclose(slope[index], (up - mlp_loss(moved)) / 2e-6, rtol=1e-2, atol=1e-4)


def test_the_data_parallel_step_of_one_process_is_the_step() -> None:
    arrays = mlp_arguments(7)
    parallel = mlp_train.DataParallelStep(MPI.COMM_SELF, arrays[:6])
    for mine, other in zip(parallel(*arrays), mlp_train.step(*arrays), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


def test_softmax_and_its_gradient_are_those_of_the_program() -> None:
    module = spmd.load(OWN_PROGRAMS / "softmax.mlir")
    arrays = arguments.make(module)
    for mine, other in zip(spmd.compile(module)(*arrays), softmax.softmax_and_gradient(*arrays), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-7)


def test_the_chain_is_the_formula() -> None:
    x, y = np.random.default_rng(0).standard_normal((2, 50)).astype(np.float32)
    (result,) = elementwise_chain.chain(x, y)
    inner = np.tanh(x) * y + np.exp(-(x**2))
    squashed = inner / (1 + abs(inner))
    np.testing.assert_allclose(result, np.maximum(squashed, 0.1 * squashed) + np.sqrt(abs(y)), rtol=1e-5)


def test_attention_sees_no_later_position() -> None:
    generator = np.random.default_rng(0)
    shapes = [(2, 6, 16), (16, 16), (16, 16), (16, 16), (16, 16), (16, 32), (32, 16), (16,), (16,)]
    arrays = [generator.standard_normal(shape).astype(np.float32) for shape in shapes]
    (before,) = transformer_block.block(*arrays)
    arrays[0] = arrays[0].copy()
    arrays[0][:, 4:] += 1
    (after,) = transformer_block.block(*arrays)
    np.testing.assert_array_equal(after[:, :4], before[:, :4])
    assert not np.allclose(after[:, 4:], before[:, 4:])


def test_every_op_has_a_program_or_a_reason() -> None:
    computed = {name for name in OPS if name.startswith(("stablehlo.", "chlo."))}
    assert computed == set(programs()) | set(WITHOUT)
