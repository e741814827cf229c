"""Train a convolutional network on handwritten digits with flax and optax, data-parallel over MPI ranks.

    spmd launch -n 4 -- python examples/jax/train.py

The losses are the same on 1, 2, 4 and 8 ranks, to rounding: every rank takes its share of the same global batches, and
an image's dropout follows from its number. Interrupted, the job resumes from its newest whole checkpoint.
"""

import argparse
import csv
from functools import partial
from pathlib import Path

import flax.linen as nn
import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
from mpi4py import MPI
from sklearn.datasets import load_digits
from tqdm import tqdm

import spmd.jax
from spmd import checkpoint

WORLD = MPI.COMM_WORLD
BATCH, HELD_OUT = 64, 360
STEPS = (1797 - HELD_OUT) // BATCH  # in an epoch


class Network(nn.Module):
    @nn.compact
    def __call__(self, image, train):
        """An image f32[8, 8, 1] to logits f32[10]."""
        x = nn.relu(nn.Conv(32, (3, 3))(image))
        x = nn.avg_pool(nn.relu(nn.Conv(64, (3, 3))(x)), (2, 2), (2, 2))
        x = nn.relu(nn.Dense(128)(nn.Dropout(0.25, deterministic=not train)(x.reshape(-1))))
        return nn.Dense(10)(nn.Dropout(0.5, deterministic=not train)(x))


def optimizer(epochs):
    steps = epochs * STEPS
    rate = optax.warmup_cosine_decay_schedule(0.0, 3e-3, steps // 15, steps)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, weight_decay=1e-3))


@spmd.jax.jit(static_argnums=0)
def initial(epochs, image):
    params = Network().init(jax.random.key(0), image, False)["params"]
    return {"params": params, "optimizer": optimizer(epochs).init(params), "step": 0, "key": jax.random.key(1)}


@spmd.jax.jit(static_argnums=0)
def train_step(epochs, state, batch):
    """One step on this rank's share of a global batch: the loss of all of it, and the state behind it."""

    def loss(params):
        keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.fold_in(state["key"], state["step"]), batch["row"])
        network = partial(Network().apply, {"params": params}, train=True)
        logits = jax.vmap(lambda image, key: network(image, rngs={"dropout": key}))(batch["image"], keys)
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()

    value, slopes = jax.lax.pmean(jax.value_and_grad(loss)(state["params"]), "processes")
    updates, moments = optimizer(epochs).update(slopes, state["optimizer"], state["params"])
    params = optax.apply_updates(state["params"], updates)
    return value, {**state, "params": params, "optimizer": moments, "step": state["step"] + 1}


@spmd.jax.jit
def evaluate(params, images, labels):
    """The share of right answers among the held-out images of all ranks."""
    logits = jax.vmap(lambda image: Network().apply({"params": params}, image, False))(images)
    return jax.lax.pmean(jnp.mean(jnp.argmax(logits, 1) == labels), "processes")


def main():
    parser = argparse.ArgumentParser(description="Train a convolutional network on digits over MPI ranks.")
    parser.add_argument("--epochs", type=int, default=30, help="default: %(default)s")
    parser.add_argument("--stop", type=int, help="after this epoch; the next job goes on from there")
    parser.add_argument("--folder", type=Path, default=Path("checkpoints/jax"), help="default: %(default)s")
    options = parser.parse_args()
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = (images[order] / 16).astype(np.float32).reshape(-1, 8, 8, 1), labels[order].astype(np.int32)
    held_out = [array[:HELD_OUT][WORLD.rank :: WORLD.size].copy() for array in (images, labels)]
    rows = range(HELD_OUT, HELD_OUT + STEPS * BATCH)
    source = [{"image": images[row], "label": labels[row], "row": np.int32(row)} for row in rows]

    state = initial(options.epochs, images[0])
    history = []  # a row an epoch: its number, mean loss, accuracy
    if (step := checkpoint.newest(options.folder)) is not None:
        tree = checkpoint.restore(options.folder, step, like={"state": state, "history": np.zeros((step, 3))})
        state, history = tree["state"], tree["history"].tolist()
    for epoch in range(len(history) + 1, (options.stop or options.epochs) + 1):
        shuffled = grain.MapDataset.source(source).seed(epoch).shuffle()
        batches = shuffled[WORLD.rank :: WORLD.size].batch(BATCH // WORLD.size)
        losses = []
        for batch in (bar := tqdm(batches, desc=f"epoch {epoch}/{options.epochs}", disable=WORLD.rank != 0)):
            loss, state = train_step(options.epochs, state, batch)
            losses.append(float(loss))
            bar.set_postfix(loss=f"{losses[-1]:.4f}", refresh=False)
        history.append([epoch, np.mean(losses), float(evaluate(state["params"], *held_out))])
        checkpoint.save(options.folder, epoch, {"state": state, "history": np.array(history)}, wait=False)
        if WORLD.rank == 0:
            with (options.folder / "metrics.csv").open("w", newline="") as file:
                csv.writer(file).writerows([["epoch", "loss", "accuracy"], *history])
    if WORLD.rank == 0:
        print(f"test accuracy {history[-1][2]:.2%}", flush=True)


if __name__ == "__main__":
    main()
