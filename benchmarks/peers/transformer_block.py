"""A transformer block with causal attention: 8 heads, GELU by tanh, layer normalization before each half."""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
HEADS = 8
EPSILON = np.float32(1e-5)
MASKED = np.float32(-1e9)


def normalized(x: Array, scale: Array, shift: Array) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(centred).mean(axis=-1, keepdims=True)
    centred *= 1 / np.sqrt(variance + EPSILON)
    centred *= scale
    centred += shift
    return centred


def block(
    x: Array,
    queries: Array,
    keys: Array,
    values: Array,
    output: Array,
    expand: Array,
    contract: Array,
    scale: Array,
    shift: Array,
) -> tuple[Array]:
    """Apply the block to x f32[batch, length, width]; the result has the same shape."""
    batch, length, width = x.shape

    def heads(projection: Array) -> Array:
        flat = (y.reshape(-1, width) @ projection).reshape(batch, length, HEADS, width // HEADS)
        return flat.transpose(0, 2, 1, 3)

    y = normalized(x, scale, shift)
    scores = heads(queries) @ heads(keys).transpose(0, 1, 3, 2)
    scores /= np.sqrt(np.float32(width // HEADS))
    scores[:, :, ~np.tri(length, dtype=bool)] = MASKED
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    attended = (scores @ heads(values)).transpose(0, 2, 1, 3).reshape(-1, width)
    x = x + (attended @ output).reshape(x.shape)

    hidden = normalized(x, scale, shift).reshape(-1, width) @ expand
    inner = hidden * hidden
    inner *= hidden
    inner *= np.float32(0.044715)
    inner += hidden
    inner *= np.float32(0.7978845608)
    np.tanh(inner, out=inner)
    inner += 1
    inner *= 0.5
    inner *= hidden
    return (x + (inner @ contract).reshape(x.shape),)
