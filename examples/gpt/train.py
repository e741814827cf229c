"""Teach a GPT Python from the standard library's sources, data-parallel over all devices.

    JAX_PLATFORMS=spmd spmd launch -n 2 -- python examples/gpt/train.py

A program of JAX, flax and optax: it runs as well on any other platform. The losses are the same on 1, 2 and 4 devices,
to rounding. Interrupted, it goes on from its newest whole checkpoint.
"""

import argparse
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from corpus import corpus
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from model import CONTEXT, GPT, logits_of
from tqdm import tqdm

from spmd import checkpoint

BATCH, STEPS = 8, 800


def optimizer(steps):
    rate = optax.warmup_cosine_decay_schedule(0.0, 2e-3, steps // 20, steps, 1e-4)
    adam = optax.adamw(rate, b2=0.98, weight_decay=0.05, mask=partial(jax.tree.map, lambda leaf: leaf.ndim > 1))
    return optax.chain(optax.clip_by_global_norm(1.0), adam)


def initial(steps):
    params = GPT().init(jax.random.key(0), jnp.zeros((1, CONTEXT), jnp.int32), jnp.arange(CONTEXT))["params"]
    return {"params": params, "optimizer": optimizer(steps).init(params)}


def losses(params, words):
    """Return the nats of each word but the first, by those before it."""
    return optax.softmax_cross_entropy_with_integer_labels(logits_of(params, words[:, :-1]), words[:, 1:])


def train_step(steps, state, words):
    """Return the mean loss of a batch, and the state behind it."""
    value, slopes = jax.value_and_grad(lambda params: losses(params, words).mean())(state["params"])
    updates, moments = optimizer(steps).update(slopes, state["optimizer"], state["params"])
    return value, {"params": optax.apply_updates(state["params"], updates), "optimizer": moments}


def batch_of(words, step):
    """Return the batch of a step, the same on all processes: BATCH drawn contexts, each with the word behind it."""
    starts = np.random.default_rng(step).integers(0, len(words) - CONTEXT - 1, BATCH)
    return words[starts[:, None] + np.arange(CONTEXT + 1)]


def main():
    parser = argparse.ArgumentParser(description="Teach a GPT Python from the standard library's sources.")
    parser.add_argument("--steps", type=int, default=STEPS, help="default: %(default)s")
    parser.add_argument("--every", type=int, default=100, help="steps between two checkpoints, default: %(default)s")
    parser.add_argument("--folder", type=Path, default=Path("checkpoints/gpt"), help="default: %(default)s")
    options = parser.parse_args()
    vocabulary, learned, held_out = corpus()

    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))
    whole, cut = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    own = slice(jax.process_index(), None, jax.process_count())

    def place(words):
        return jax.make_array_from_process_local_data(cut, words[own], words.shape)

    is_first = jax.process_index() == 0

    state, begun = jax.jit(initial, static_argnums=0)(options.steps), 0
    if (newest := checkpoint.newest(options.folder)) is not None:
        state, begun = checkpoint.restore(options.folder, newest, like=state), newest
    state = jax.tree.map(lambda leaf: jax.make_array_from_callback(leaf.shape, whole, leaf.__getitem__), state)
    if is_first:
        count = sum(leaf.size for leaf in jax.tree.leaves(state["params"]))
        print(f"{count:,} parameters, {len(learned):,} words to learn from, from step {begun}", flush=True)

    step = jax.jit(train_step, static_argnums=0, donate_argnums=1)
    evaluate = jax.jit(lambda params, words: losses(params, words).sum())
    began = time.perf_counter()
    numbers = range(begun, options.steps)
    for number in (bar := tqdm(numbers, initial=begun, total=options.steps, disable=not is_first)):
        value, state = step(options.steps, state, place(batch_of(learned, number)))
        bar.set_postfix(loss=f"{float(value):.3f}", refresh=False)
        if (number + 1) % options.every == 0 or number + 1 == options.steps:
            checkpoint.save(options.folder, number + 1, jax.tree.map(np.asarray, state))
    # Contexts of the held-out sources, side by side: their first words are given.
    rows = np.stack([held_out[first : first + CONTEXT + 1] for first in range(0, len(held_out) - CONTEXT, CONTEXT)])
    rows = rows[: len(rows) // BATCH * BATCH].reshape(-1, BATCH, CONTEXT + 1)[:40]
    nats = sum(float(evaluate(state["params"], place(words))) for words in rows)
    if is_first:
        letters = vocabulary.sizes[rows[:, :, 1:]].sum()
        print(f"{nats / letters:.3f} nats a byte on held-out sources, {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
