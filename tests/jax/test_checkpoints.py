"""Training states of JAX, flax and optax in checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spmd import checkpoint
from spmd.checkpoint import tree

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import spmd.jax as _  # noqa: E402, F401


@jax.tree_util.register_pytree_with_keys_class
class LabelledBox:
    def __init__(self, content: Any, label: str) -> None:
        self.content, self.label = content, label

    def tree_flatten_with_keys(self) -> Any:
        return [(jax.tree_util.GetAttrKey("content"), self.content)], self.label

    @classmethod
    def tree_unflatten(cls, label: str, children: Any) -> Any:
        return cls(*children, label)


def same(mine: Any, other: Any) -> None:
    assert jax.tree.structure(mine) == jax.tree.structure(other)
    jax.tree.map(np.testing.assert_array_equal, mine, other)


def test_keys_and_registered_nodes_come_back(tmp_path: Path) -> None:
    tree = {"key": jax.random.key(3, impl="rbg"), "keys": jax.random.split(jax.random.key(1), 3)}
    checkpoint.save(tmp_path, 1, tree)
    for restored in (checkpoint.restore(tmp_path), checkpoint.restore(tmp_path, like=tree)):
        for name, key in tree.items():
            assert jax.random.key_impl(restored[name]) == jax.random.key_impl(key)
            assert (restored[name] == key).all()
    box = LabelledBox(jnp.arange(3), "b")
    checkpoint.save(tmp_path, 2, [box])
    same(checkpoint.restore(tmp_path, like=[LabelledBox(jnp.zeros(3, int), "b")]), [box])
    with pytest.raises(checkpoint.CheckpointError, match="a LabelledBox, which is only restored with like="):
        checkpoint.restore(tmp_path)


def test_states_of_flax_and_optax_come_back(tmp_path: Path) -> None:
    optax, flax = pytest.importorskip("optax"), pytest.importorskip("flax")
    from flax.training.train_state import TrainState

    model = flax.linen.Dense(3)
    chain = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(0.1, 10)))
    state = TrainState.create(apply_fn=model.apply, params=model.init(jax.random.key(0), jnp.ones(2)), tx=chain)
    state = state.apply_gradients(grads=jax.tree.map(jnp.ones_like, state.params))
    checkpoint.save(tmp_path, 1, {"state": state, "frozen": flax.core.freeze({"a": jnp.ones(2, jnp.bfloat16)})})
    fresh = TrainState.create(apply_fn=model.apply, params=model.init(jax.random.key(1), jnp.ones(2)), tx=chain)
    like = {"state": fresh, "frozen": flax.core.freeze({"a": jnp.zeros(2, jnp.bfloat16)})}
    restored = checkpoint.restore(tmp_path, like=like)
    same(restored["state"], state.replace(tx=fresh.tx, apply_fn=fresh.apply_fn))
    assert type(restored["frozen"]) is flax.core.FrozenDict and restored["frozen"]["a"].dtype == jnp.bfloat16


@pytest.mark.parametrize("registered", [True, False], ids=["with spmd.jax", "with JAX alone"])
def test_a_nested_state_of_flax_has_the_structure_of_the_one_it_is_like(
    registered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nnx = pytest.importorskip("flax.nnx")
    if not registered:
        monkeypatch.setattr(tree, "_registered", {})

    class Model(nnx.Module):  # type: ignore[name-defined,misc]
        def __init__(self, seed: int) -> None:
            self.first, self.second = (nnx.Linear(2, 2, rngs=nnx.Rngs(seed + number)) for number in range(2))

    saved, fresh = nnx.state(Model(0)), nnx.state(Model(5))
    checkpoint.save(tmp_path, 1, saved)
    restored = checkpoint.restore(tmp_path, 1, like=fresh)
    assert jax.tree.structure(restored) == jax.tree.structure(saved)
    jax.tree.map(np.testing.assert_array_equal, restored, saved)
