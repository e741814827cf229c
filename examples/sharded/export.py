"""Write one training step of a small transformer as StableHLO, without any sharding: ``step.mlir``.

Needs the ``jax`` extra; running the step needs no JAX. From the repository's root::

    python examples/sharded/export.py

The step is a decoder of two blocks with Adam: it takes the parameters, both moments, the tokens and the targets, and
gives the loss, the new parameters and the new moments, in the order of ``layouts.PARAMETERS``.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
from layouts import SIZES, Sizes

RATE, FIRST, SECOND, SMALL = 1e-3, 0.9, 0.99, 1e-8

Parameters = dict[str, jax.Array]


def normalize(x: jax.Array, gain: jax.Array) -> jax.Array:
    """Layer normalization over features."""
    centered = x - x.mean(-1, keepdims=True)
    return centered * jax.lax.rsqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * gain


def attention(parameters: Parameters, block: int, x: jax.Array) -> jax.Array:
    """Causal self-attention: f32[batch, sequence, width] to the same."""
    sequence, head = x.shape[1], parameters[f"block{block}.q"].shape[2]
    queries, keys, values = (jnp.einsum("bsd,dhk->bshk", x, parameters[f"block{block}.{n}"]) for n in "qkv")
    scores = jnp.einsum("bqhk,bshk->bhqs", queries, keys) / head**0.5
    visible = jnp.tril(jnp.ones((sequence, sequence), bool))
    weights = jax.nn.softmax(jnp.where(visible, scores, -1e9), -1)
    mixed = jnp.einsum("bhqs,bshk->bqhk", weights, values)
    return jnp.einsum("bqhk,hkd->bqd", mixed, parameters[f"block{block}.o"])


def logits(parameters: Parameters, tokens: jax.Array) -> jax.Array:
    """Tokens i32[batch, sequence] to logits f32[batch, sequence, vocabulary]."""
    x = parameters["embedding"][tokens] + parameters["position"]
    for block in range(2):
        x = x + attention(parameters, block, normalize(x, parameters[f"block{block}.norm1"]))
        hidden = normalize(x, parameters[f"block{block}.norm2"]) @ parameters[f"block{block}.up"]
        x = x + jax.nn.gelu(hidden) @ parameters[f"block{block}.down"]
    return normalize(x, parameters["norm"]) @ parameters["output"]


def loss(parameters: Parameters, tokens: jax.Array, targets: jax.Array) -> jax.Array:
    """Mean cross-entropy of the next token."""
    likelihoods = jax.nn.log_softmax(logits(parameters, tokens))
    return -jnp.take_along_axis(likelihoods, targets[..., None], -1).mean()


def step(names: Sequence[str], *arrays: jax.Array) -> tuple[jax.Array, ...]:
    """One step of Adam on the parameters `names`."""
    count = len(names)
    flat = [arrays[index * count : (index + 1) * count] for index in range(3)]
    parameters, first, second = (dict(zip(names, part, strict=True)) for part in flat)
    value, gradients = jax.value_and_grad(loss)(parameters, *arrays[3 * count :])
    for name, gradient in gradients.items():
        first[name] = FIRST * first[name] + (1 - FIRST) * gradient
        second[name] = SECOND * second[name] + (1 - SECOND) * gradient**2
        parameters[name] -= RATE * first[name] / (jnp.sqrt(second[name]) + SMALL)
    return (value, *parameters.values(), *first.values(), *second.values())


def program(sizes: Sizes) -> str:
    """The step's text, for a transformer of these sizes."""
    shapes = sizes.parameters()
    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes.values()] * 3
    arrays += [jax.ShapeDtypeStruct((sizes.batch, sizes.sequence), jnp.int32)] * 2
    return jax.jit(partial(step, tuple(shapes))).lower(*arrays).as_text()


def main() -> None:
    (Path(__file__).parent / "step.mlir").write_text(program(SIZES))


if __name__ == "__main__":
    main()
