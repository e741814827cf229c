"""Train a classifier of handwritten digits, data-parallel over MPI ranks.

    spmd launch -n 4 -- python examples/digits/train.py

The training step and the evaluation are the StableHLO programs beside this file, exported from JAX by ``export.py``;
no JAX is needed to run them. The data are scikit-learn's 1,797 images of 8x8 pixels. Each rank holds its part of them.
"""

import argparse
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mpi4py import MPI
from sklearn.datasets import load_digits
from tqdm import tqdm

import spmd
from spmd import checkpoint

FOLDER = Path(__file__).parent
RANKS = (1, 2, 4, 8)
# A global batch takes as many images from each of these shards of the data, and a rank holds whole shards. So the
# global batches, and with them the loss, do not depend on the number of ranks.
SHARDS = 8
TRAIN_BATCH, HELD_OUT = 64, 360
LAYERS = (64, 128, 128, 10)

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Data:
    """One rank's part: training images and labels by shard, and its part of the held-out images and labels."""

    shards: list[tuple[np.ndarray, np.ndarray]]
    held_out: tuple[np.ndarray, np.ndarray]

    def batches(self, seed: int, epoch: int, first_shard: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """This rank's part of each global batch of an epoch, in an order that only seed and epoch decide."""
        orders = [
            np.random.default_rng((seed, epoch, first_shard + index)).permutation(len(labels))
            for index, (_, labels) in enumerate(self.shards)
        ]
        size = TRAIN_BATCH // SHARDS
        for start in range(0, steps_per_epoch() * size, size):
            chosen = [order[start : start + size] for order in orders]
            pairs = list(zip(self.shards, chosen, strict=True))
            images = np.concatenate([images[rows] for (images, _), rows in pairs])
            yield images, np.concatenate([labels[rows] for (_, labels), rows in pairs])


def steps_per_epoch() -> int:
    """Whole batches that the smallest shard can fill."""
    return (1797 - HELD_OUT) // SHARDS // (TRAIN_BATCH // SHARDS)


def load_data(rank: int, ranks: int) -> Data:
    """This rank's part of the data: images f32[n, 64] in 0..1, labels i32[n]."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = (images[order] / 16).astype(np.float32), labels[order].astype(np.int32)
    mine = range(rank * SHARDS // ranks, (rank + 1) * SHARDS // ranks)
    shards = [(images[HELD_OUT + shard :: SHARDS].copy(), labels[HELD_OUT + shard :: SHARDS].copy()) for shard in mine]
    part = slice(rank * HELD_OUT // ranks, (rank + 1) * HELD_OUT // ranks)
    return Data(shards, (images[:HELD_OUT][part].copy(), labels[:HELD_OUT][part].copy()))


def initial_state(seed: int) -> Arrays:
    """Weights and biases of each layer (He initialization), then their velocities; the same on every rank."""
    generator = np.random.default_rng(seed)
    parameters: Arrays = []
    for inputs, outputs in itertools.pairwise(LAYERS):
        parameters.append((generator.standard_normal((inputs, outputs)) * np.sqrt(2 / inputs)).astype(np.float32))
        parameters.append(np.zeros(outputs, np.float32))
    return parameters + [np.zeros_like(parameter) for parameter in parameters]


def resume(folder: Path, seed: int) -> tuple[int, Arrays, list[float]]:
    """Epochs done, state and losses so far: from the newest whole checkpoint, if there is one."""
    step = checkpoint.newest(folder)
    if step is None:
        return 0, initial_state(seed), []
    state = checkpoint.restore(folder, step)
    if state["seed"] != seed:
        sys.exit(f"{folder} holds checkpoints of another seed; give --checkpoints another folder or --fresh")
    losses = state["losses"].tolist()
    return len(losses) // steps_per_epoch(), state["state"], losses


def save(folder: Path, seed: int, state: Arrays, losses: list[float]) -> None:
    """Every rank has the same state: each writes some of it, while training goes on."""
    tree = {"seed": seed, "state": state, "losses": np.array(losses, np.float32)}
    checkpoint.save(folder, len(losses), tree, wait=False)


def train(options: argparse.Namespace, world: MPI.Comm) -> float:
    """Train to the end and return the accuracy on the held-out images, 0..1."""
    data = load_data(world.rank, world.size)
    step = spmd.compile(spmd.load(FOLDER / f"train_step_{world.size}.mlir"))
    evaluate = spmd.compile(spmd.load(FOLDER / f"evaluate_{world.size}.mlir"))
    epoch, state, losses = resume(options.checkpoints, options.seed)
    if epoch and world.rank == 0:
        print(f"resumed after epoch {epoch} from {options.checkpoints}", flush=True)
    rate = np.array(options.rate, np.float32)
    first_shard = world.rank * SHARDS // world.size
    half = len(state) // 2
    accuracy = int(evaluate(*state[:half], *data.held_out)[0]) / HELD_OUT
    while epoch < options.epochs:
        with tqdm(
            data.batches(options.seed, epoch, first_shard),
            desc=f"epoch {epoch + 1}/{options.epochs}",
            total=steps_per_epoch(),
            unit=" images",
            unit_scale=TRAIN_BATCH,
            disable=world.rank != 0,
        ) as bar:
            for images, labels in bar:
                loss, *state = step(*state, rate, images, labels)
                losses.append(float(loss))
                bar.set_postfix(loss=f"{losses[-1]:.4f}", refresh=False)
            accuracy = int(evaluate(*state[:half], *data.held_out)[0]) / HELD_OUT
            bar.set_postfix(loss=f"{np.mean(losses[-steps_per_epoch() :]):.4f}", accuracy=f"{accuracy:.1%}")
        epoch += 1
        save(options.checkpoints, options.seed, state, losses)
    return accuracy


def main() -> None:
    world = MPI.COMM_WORLD
    parser = argparse.ArgumentParser(description="Train a classifier of handwritten digits over MPI ranks.")
    parser.add_argument("--epochs", type=int, default=30, help="default: %(default)s")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate, default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of weights and batches, default: %(default)s")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints/digits"), help="default: %(default)s")
    parser.add_argument("--fresh", action="store_true", help="begin anew, without the checkpoints that are there")
    options = parser.parse_args()
    if world.size not in RANKS:
        sys.exit(f"the programs are exported for {RANKS} ranks, not for {world.size}")
    if options.fresh and world.rank == 0:
        for step in checkpoint.steps(options.checkpoints):
            checkpoint.remove(options.checkpoints, step)
    accuracy = train(options, world)
    if world.rank == 0:
        print(f"test accuracy {accuracy:.2%}", flush=True)


if __name__ == "__main__":
    main()
