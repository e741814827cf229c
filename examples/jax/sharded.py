"""Train a small transformer on text, tensor- and data-parallel on a 2 x 2 grid, by jax.jit's shardings alone.

    spmd launch -n 4 -- python examples/jax/sharded.py

The step is written for whole arrays. Their shardings say that batches are cut over the axis "data", weights over the
axis "model"; each rank holds its blocks. The text is the README of this repository, one character a token.
"""

import argparse
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from mpi4py import MPI
from tqdm import tqdm

import spmd.jax
from spmd import checkpoint

WORLD = MPI.COMM_WORLD
MESH = AbstractMesh((2, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
LAYERS, WIDTH, HEADS, HIDDEN, LENGTH, BATCH = 2, 64, 4, 256, 64, 16

TEXT = np.frombuffer((Path(__file__).parents[2] / "README.md").read_bytes(), np.uint8).astype(np.int32)
OPTIMIZER = optax.adam(3e-3)

#: How the weights of a layer lie: heads and hidden units are cut over "model", so that each rank computes its own.
LAYER = {"qkv": P(None, None, "model"), "out": P("model"), "up": P(None, "model"), "down": P("model")}
SHAPES = {
    "qkv": (WIDTH, 3, HEADS, WIDTH // HEADS),
    "out": (HEADS, WIDTH // HEADS, WIDTH),
    "up": (WIDTH, HIDDEN),
    "down": (HIDDEN, WIDTH),
}
SPECS = {"embed": P(), "place": P(), "layers": [LAYER] * LAYERS}


def initial():
    """The same whole arrays on every rank."""
    rng = np.random.default_rng(0)

    def normal(*shape):
        return (rng.normal(size=shape) * 0.05).astype(np.float32)

    layers = [{name: normal(*shape) for name, shape in SHAPES.items()} for _ in range(LAYERS)]
    params = {"embed": normal(256, WIDTH), "place": normal(LENGTH, WIDTH), "layers": layers}
    return params, jax.tree.map(np.asarray, OPTIMIZER.init(params))


def norm(x):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)


def logits(params, tokens):
    """Tokens i32[batch, length] to the logits of what follows each, f32[batch, length, 256]."""
    x = params["embed"][tokens] + params["place"]
    for layer in params["layers"]:
        query, key, value = jnp.einsum("blw,wchd->cblhd", norm(x), layer["qkv"])
        heads = jax.nn.dot_product_attention(query, key, value, is_causal=True)
        x = x + jnp.einsum("blhd,hdw->blw", heads, layer["out"])
        x = x + jax.nn.gelu(norm(x) @ layer["up"]) @ layer["down"]
    return norm(x) @ params["embed"].T


def train_step(params, moments, tokens):
    def loss(params):
        predicted_logits = logits(params, tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(predicted_logits, tokens[:, 1:]).mean()

    value, slopes = jax.value_and_grad(loss)(params)
    updates, moments = OPTIMIZER.update(slopes, moments, params)
    return optax.apply_updates(params, updates), moments, value


def sharded_step():
    """`train_step` with its shardings: Adam's moments lie as the weights do."""
    everywhere, rows = NamedSharding(MESH, P()), NamedSharding(MESH, P("data"))
    params = jax.tree.map(partial(NamedSharding, MESH), SPECS, is_leaf=lambda leaf: isinstance(leaf, P))
    moments = optax.tree.map_params(
        OPTIMIZER, lambda _, where: where, initial()[1], params, transform_non_params=lambda _: everywhere
    )
    return jax.jit(train_step, in_shardings=(params, moments, rows), out_shardings=(params, moments, everywhere))


def batch(number):
    """The global batch of a step, the same on every rank: i32[batch, length + 1]."""
    starts = np.random.default_rng(number).integers(0, len(TEXT) - LENGTH, BATCH)
    return np.stack([TEXT[start : start + LENGTH + 1] for start in starts])


def main():
    parser = argparse.ArgumentParser(description="Train a small transformer, tensor- and data-parallel.")
    parser.add_argument("--steps", type=int, default=300, help="default: %(default)s")
    parser.add_argument("--folder", type=Path, default=Path("checkpoints/sharded"), help="default: %(default)s")
    options = parser.parse_args()
    step = spmd.jax.jit(sharded_step())
    params, moments = initial()
    step.executable(params, moments, batch(0))
    shardings = step.shardings((params, moments))
    done = checkpoint.newest(options.folder) or 0
    if done:
        params, moments = checkpoint.restore(options.folder, done, like=(params, moments), shardings=shardings)
    for number in (bar := tqdm(range(done, options.steps), disable=WORLD.rank != 0)):
        params, moments, loss = step(params, moments, batch(number))
        bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
        if number + 1 == options.steps or (number + 1) % 100 == 0:
            checkpoint.save(options.folder, number + 1, (params, moments), shardings)  # each rank its own blocks
    if done < options.steps and WORLD.rank == 0:
        print(f"loss {loss:.3f} after {options.steps} steps", flush=True)


if __name__ == "__main__":
    main()
