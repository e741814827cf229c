"""Write Python with the GPT of a checkpoint, word by word, with a cache of keys and values.

    JAX_PLATFORMS=spmd python examples/gpt/write.py "def read(self, path):"
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from corpus import corpus
from model import CONTEXT, GPT

from spmd import checkpoint

MODEL = GPT(decode=True)


@jax.jit
def next_word(params, cache, word, position, key, temperature):
    """Return the cache behind one more word, and a word drawn from those that may follow."""
    variables = {"params": params, "cache": cache}
    logits, changed = MODEL.apply(variables, word[None, None], position[None], mutable=["cache"])
    return changed["cache"], jax.random.categorical(key, logits[0, 0] / temperature)


def main():
    parser = argparse.ArgumentParser(description="Write Python with a trained GPT.")
    parser.add_argument("begin", nargs="?", default="def read(self, path):", help="default: %(default)s")
    parser.add_argument("--words", type=int, default=120, help="default: %(default)s")
    parser.add_argument("--temperature", type=float, default=0.7, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("checkpoints/gpt"), help="default: %(default)s")
    options = parser.parse_args()
    vocabulary, _, _ = corpus()
    params = checkpoint.restore(options.folder, checkpoint.newest(options.folder))["params"]
    shapes = jax.eval_shape(MODEL.init, jax.random.key(0), jnp.zeros((1, CONTEXT), jnp.int32), jnp.arange(CONTEXT))
    cache = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes["cache"])

    words = vocabulary.encode(b"\0" + options.begin.encode()).tolist()
    keys = jax.random.split(jax.random.key(options.seed), CONTEXT)
    for position in range(min(len(words) + options.words, CONTEXT)):
        word, place = np.int32(words[position]), np.int32(position)
        cache, following = next_word(params, cache, word, place, keys[position], np.float32(options.temperature))
        if position + 1 == len(words):
            words.append(int(following))
    print(vocabulary.decode(words[1:]))


if __name__ == "__main__":
    main()
