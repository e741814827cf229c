"""A GPT of ten million parameters, in flax."""

import flax.linen as nn
import jax.numpy as jnp
from corpus import VOCABULARY

LAYERS, WIDTH, HEADS, CONTEXT = 8, 320, 5, 256


class Block(nn.Module):
    decode: bool

    @nn.compact
    def __call__(self, x, mask):
        attention = nn.MultiHeadDotProductAttention(HEADS, use_bias=False, decode=self.decode, name="attention")
        normal = nn.LayerNorm(use_bias=False)(x)
        x = x + attention(normal, normal, mask=mask)
        hidden = nn.gelu(nn.Dense(4 * WIDTH, use_bias=False)(nn.LayerNorm(use_bias=False)(x)))
        return x + nn.Dense(WIDTH, use_bias=False, kernel_init=nn.initializers.normal(0.02 / LAYERS**0.5))(hidden)


class GPT(nn.Module):
    """Words i32[batch, length] at `positions` to logits f32[batch, length, vocabulary].

    With `decode`, a word at a time: the collection "cache" holds the keys and values of those before it.
    """

    decode: bool = False

    @nn.compact
    def __call__(self, words, positions):
        embed = nn.Embed(VOCABULARY, WIDTH, embedding_init=nn.initializers.normal(0.02), name="words")
        places = nn.Embed(CONTEXT, WIDTH, embedding_init=nn.initializers.normal(0.02), name="positions")
        x = embed(words) + places(positions)
        mask = None if self.decode else nn.make_causal_mask(words)
        for layer in range(LAYERS):
            x = Block(self.decode, name=f"block_{layer}")(x, mask)
        return embed.attend(nn.LayerNorm(use_bias=False)(x))


def logits_of(params, words):
    """Return the logits of whole contexts."""
    return GPT().apply({"params": params}, words, jnp.arange(words.shape[1]))
