"""Write ``softmax.mlir``: softmax over rows and its gradient, as lowered by JAX. Needs the ``jax`` extra."""

from pathlib import Path

import jax

ROWS, COLUMNS = 1024, 1024


def softmax_and_gradient(x: jax.Array, upstream: jax.Array) -> tuple[jax.Array, jax.Array]:
    result, pull_back = jax.vjp(lambda values: jax.nn.softmax(values, axis=-1), x)
    return result, pull_back(upstream)[0]


def main() -> None:
    shape = jax.ShapeDtypeStruct((ROWS, COLUMNS), "float32")
    text = jax.jit(softmax_and_gradient).lower(shape, shape).as_text()
    Path(__file__).with_name("softmax.mlir").write_text(text)


if __name__ == "__main__":
    main()
