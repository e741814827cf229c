"""The global view, simulated: whole arrays and stacked blocks of all processes, as on ranks of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import spmd

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.sharding import NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import spmd.jax  # noqa: E402
from tests.jax_meshes import abstract_mesh  # noqa: E402

MESH = abstract_mesh((2, 2), ("data", "model"))
X = np.arange(12, dtype=np.float32).reshape(6, 2)
W = np.arange(8, dtype=np.float32).reshape(2, 4)


def over(*axes: str | None) -> NamedSharding:
    return NamedSharding(MESH, P(*axes))


def affine() -> Any:
    """Of w cut by columns and x cut by rows: new ones, and their product's sum."""
    shardings = {"w": over(None, "model")}, over("data")

    def step(state: Any, x: Any) -> Any:
        return {"w": state["w"] + 1}, (x @ state["w"]).sum()

    return jax.jit(step, in_shardings=shardings, out_shardings=(shardings[0], over()))


def test_blocks_of_all_processes_are_stacked() -> None:
    many = spmd.jax.simulate(affine())
    state, total = many({"w": W}, X)
    assert state["w"].shape == (4, 2, 2) and total.tolist() == [(X @ W).sum()] * 4
    np.testing.assert_array_equal(state["w"][1], (W + 1)[:, 2:])
    np.testing.assert_array_equal(many.unshard(state)["w"], W + 1)
    assert many.unshard(total) == (X @ W).sum()


def test_results_and_cut_arguments_are_taken_as_they_are() -> None:
    many = spmd.jax.simulate(affine())
    state, _ = many({"w": W}, X)
    blocks = many.shard(X)
    assert blocks.shape == (4, 3, 2)
    for x in (X, blocks, jnp.asarray(blocks)):
        again, total = many(state, x)
        np.testing.assert_array_equal(many.unshard(again)["w"], W + 2)
        assert many.unshard(total) == (X @ (W + 1)).sum()
    np.testing.assert_array_equal(many.unshard(many.shard({"w": W}))["w"], W)
    np.testing.assert_array_equal(many.shard(blocks), blocks)


def test_uneven_blocks_are_padded_and_whole_again() -> None:
    odd = np.arange(7, dtype=np.float32)
    many = spmd.jax.simulate(jax.jit(lambda x: jax.lax.with_sharding_constraint(x * 2, over(("data", "model")))))
    blocks = many(odd)
    assert blocks.shape == (4, 2)
    np.testing.assert_array_equal(many.unshard(blocks), odd * 2)


def test_keys_may_be_cut() -> None:
    keys = jax.random.split(jax.random.key(3), 4)
    cut = over(("data", "model"))
    split = jax.jit(
        lambda keys: jax.vmap(lambda key: jax.random.split(key)[0])(keys), in_shardings=cut, out_shardings=cut
    )
    expected = jax.vmap(lambda key: jax.random.split(key)[0])(keys)
    many = spmd.jax.simulate(split)
    blocks = many(keys)
    assert blocks.shape == (4, 1) and (many.unshard(blocks) == expected).all()
    again = many.unshard(many(blocks))
    assert (again == jax.vmap(lambda key: jax.random.split(key)[0])(expected)).all()
    assert (many.unshard(many.shard(keys)) == keys).all()


def test_a_plain_function_that_maps_over_a_mesh_takes_no_axes() -> None:
    def step(x: Any) -> Any:
        mapped = jax.shard_map(
            lambda x: jax.lax.psum(x, "data"), mesh=MESH, in_specs=P("data", "model"), out_specs=P(None, "model")
        )
        return mapped(x)

    many = spmd.jax.simulate(step)
    np.testing.assert_array_equal(many.unshard(many(X)), X[:3] + X[3:])
    with pytest.raises(spmd.UsageError, match=r"step is of the global view, which has its mesh: give .* no axes"):
        spmd.jax.simulate(step, axes={"data": 2})(X[None])
    with pytest.raises(spmd.UsageError, match=r"step is of the global view, .* give spmd.jax.jit no axes"):
        spmd.jax.jit(step, axes={"data": 2}).lower(X)
    with pytest.raises(spmd.UsageError, match=r"step is of the global view, .* give spmd.jax.export no axes"):
        spmd.jax.export(step, X, axes={"data": 2})


def test_bad_use_gets_a_sentence() -> None:
    with pytest.raises(spmd.UsageError, match="needs the axes of the view of one process"):
        spmd.jax.simulate(lambda x: x)(X)
    many = spmd.jax.simulate(affine())
    with pytest.raises(spmd.UsageError, match="unshard needs a compiled program"):
        many.unshard(X)
    state, _ = many({"w": W}, X)
    wrong = (
        r"x is float32\[4,2,2\]: neither the global float32\[6,2\] nor each of 4 processes' block of it, .* \(3, 2\)"
    )
    with pytest.raises(spmd.UsageError, match=wrong):
        many(state, np.ones((4, 2, 2), np.float32))
    with pytest.raises(spmd.UsageError, match="this tree is none"):
        many.unshard({"other": np.ones(5)})


def test_an_axis_that_the_mesh_does_not_have_is_told_with_its_line() -> None:
    for checked, refused in ((True, "by an assertion: a collective"), (False, "a collective names the axis other; ")):
        mapped = jax.shard_map(
            lambda x: jax.lax.psum(x, "other"), mesh=MESH, in_specs=P("data"), out_specs=P(), check_vma=checked
        )
        with pytest.raises(spmd.UsageError, match=rf"^\S+test_global_view.py:\d+: .*{refused}"):
            spmd.jax.simulate(jax.jit(mapped))(X)


def test_an_assertion_of_the_user_stays_what_it_is() -> None:
    def step(x: Any) -> Any:
        assert x.shape == ()
        return x

    with pytest.raises(AssertionError):
        spmd.jax.simulate(step, axes={"data": 2})(X[:2])


def test_what_jax_refuses_tells_what_has_changed() -> None:
    many = spmd.jax.simulate(affine())
    many({"w": W}, X)
    with pytest.raises(
        spmd.UsageError, match=r"x is float32\[5,2\]: neither the global float32\[6,2\] nor each"
    ) as told:
        many({"w": W}, X[:5])
    assert isinstance(told.value.__cause__, ValueError)
    with pytest.raises((TypeError, ValueError)) as other:
        many({"other": W}, X)
    with pytest.raises(KeyError, match="rate") as missing:
        changed = spmd.jax.simulate(lambda t: t["rate"] if "rate" in t else t["other"]["rate"], axes={"data": 2})
        changed({"rate": X[:2]}), changed({"other": {"step": X[:2]}})
    assert "'step': *" in missing.value.__notes__[-1]
    assert "'other': *" in other.value.__notes__[-1] and "and were PyTreeDef((({'w': *}, *), {}))" in str(
        other.value.__notes__
    )


def test_in_the_view_of_one_process_trees_stay_as_they_are() -> None:
    many = spmd.jax.simulate(lambda x: jax.lax.psum(x, "i"), axes={"i": 3})
    total = many(np.ones((3, 2), np.float32))
    assert many.unshard(total).shape == many.shard(total).shape == (3, 2)
