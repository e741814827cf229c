"""Train the transformer of ``step.mlir`` for a few steps, laid out over MPI ranks as you like.

    spmd launch -n 8 -- python examples/sharded/train.py fully_sharded

One program serves all layouts; only the shardings put on its arguments differ. Rank 0 prints the loss of every step,
which is the same for all of them, then time, bytes and memory.
"""

import argparse
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import layouts
import numpy as np
from mpi4py import MPI

import partitioner
import spmd
from partitioner.report import total_bytes

Index = tuple[slice, ...]
Block = Callable[[Index], np.ndarray]


def parameter(seed: int, shape: tuple[int, ...]) -> Block:
    """A callback that makes any block of one initial parameter: rank 1 is a gain of ones, the others are random."""

    def block(index: Index) -> np.ndarray:
        if len(shape) == 1:
            return np.ones(shape, np.float32)[index]
        # Row by row, so that no rank makes more than its own rows and all agree on them.
        rows = range(shape[0])[index[0]]
        rows_of_array = [np.random.default_rng((seed, row)).standard_normal(shape[1:], np.float32) for row in rows]
        return (0.05 * np.stack(rows_of_array))[(slice(None), *index[1:])]

    return block


def zeros(shape: tuple[int, ...]) -> Block:
    return lambda index: np.zeros([len(range(size)[part]) for size, part in zip(shape, index, strict=True)], np.float32)


def tokens() -> tuple[np.ndarray, np.ndarray]:
    """Sequences that count upwards from a random word, and what follows each word."""
    starts = np.random.default_rng(7).integers(layouts.SIZES.vocabulary, size=(layouts.SIZES.batch, 1))
    words = (starts + np.arange(layouts.SIZES.sequence + 1)) % layouts.SIZES.vocabulary
    return words[:, :-1].astype(np.int32), words[:, 1:].astype(np.int32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("layout", choices=layouts.NAMES)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    world = MPI.COMM_WORLD
    chosen = layouts.layout(options.layout, world.size)
    step = spmd.load(Path(__file__).parent / "step.mlir")
    step = partitioner.with_shardings(step, chosen.mesh, chosen.arguments, chosen.results)
    exe = spmd.compile(step, spmd.ProcessGrid(1, world.size))
    shapes = layouts.PARAMETERS.values()
    initial: list[Block] = [parameter(seed, shape) for seed, shape in enumerate(shapes)]
    moments = [zeros(shape) for shape in shapes] * 2
    *state, words, targets = exe.shard(*initial, *moments, *tokens())
    spent = []
    for number in range(options.steps):
        last = number == options.steps - 1
        if last:
            tracemalloc.start()
        world.Barrier()
        began = time.perf_counter()
        loss, *state = exe(*state, words, targets)
        spent.append(time.perf_counter() - began)
        if world.rank == 0:
            print(f"step {number + 1}  loss {float(loss):.4f}", flush=True)
    peak = tracemalloc.get_traced_memory()[1]
    if world.rank == 0:
        # The last step is the one whose memory is traced: its time tells nothing.
        took = min(spent[1:-1] or spent)
        print(
            f"{options.layout} on {world.size}: {1e3 * took:.0f} ms a step, "
            f"{total_bytes(exe.module) / 1e6:.2f} MB sent by a rank, "
            f"{sum(array.nbytes for array in state) / 1e6:.2f} MB of state and "
            f"{peak / 1e6:.2f} MB at most beside it in a step"
        )


if __name__ == "__main__":
    main()
