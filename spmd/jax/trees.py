"""JAX's trees for spmd.checkpoint: typed PRNG keys, and nodes registered with JAX."""

from __future__ import annotations

import jax
import numpy as np

from spmd.checkpoint import tree
from spmd.checkpoint.tree import Key, Node
from spmd.support.arrays import Tree


def _key(value: object) -> Node | None:
    """Return a typed PRNG key as a node: its data, and the name of its implementation."""
    if not isinstance(value, jax.Array) or not jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        return None
    entries = [("impl", str(jax.random.key_impl(value))), ("data", np.asarray(jax.random.key_data(value)))]
    return Node("prng_key", "key", entries, lambda parts: jax.random.wrap_key_data(parts[1], impl=parts[0]))


def _make_key(parts: dict[Key, Tree]) -> Tree:
    return jax.random.wrap_key_data(parts["data"], impl=parts["impl"])


def _registered(value: Tree) -> Node | None:
    return tree.registered_node(value, jax.tree_util)


tree.register("prng_key", _key, _make_key)
tree.register("pytree", _registered)
