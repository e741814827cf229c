"""JAX functions on MPI ranks: the view of one process and the global view, against JAX itself in one process."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import spmd
from spmd import checkpoint

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import spmd.jax  # noqa: E402
from tests import jax_global_trainers  # noqa: E402
from tests.effort import some_slow  # noqa: E402
from tests.jax.global_callbacks import FUNCTIONS, NOTES, X, global_view, on_one_device  # noqa: E402
from tests.jax_meshes import abstract_mesh  # noqa: E402
from tests.jax_trainers import trained  # noqa: E402
from tests.mpi.ranks import meet  # noqa: E402

pytestmark = pytest.mark.mpi
RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size


def close(mine: Any, other: Any) -> None:
    assert jax.tree.structure(mine) == jax.tree.structure(other)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), mine, other)


def normal(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def loss(params: Any, batch: Any) -> Any:
    hidden = jnp.tanh(batch["x"] @ params["w"] + params["b"])
    return jnp.mean((hidden @ params["v"] - batch["y"]) ** 2)


def params() -> dict[str, np.ndarray[Any, Any]]:
    return {"w": normal(6, 8, seed=1), "b": np.zeros(8, np.float32), "v": normal(8, 2, seed=2)}


def batch(rows: int) -> dict[str, np.ndarray[Any, Any]]:
    return {"x": normal(rows, 6, seed=3), "y": normal(rows, 2, seed=4)}


def sgd(params: Any, slopes: Any) -> Any:
    return jax.tree.map(lambda parameter, slope: parameter - 0.1 * slope, params, slopes)


def test_data_parallel_training_is_that_of_one_process() -> None:
    @spmd.jax.jit
    def step(params: Any, batch: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(params, batch)
        value, slopes = lax.pmean((value, slopes), "processes")
        return sgd(params, slopes), value

    @jax.jit
    def alone(params: Any, batch: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(params, batch)
        return sgd(params, slopes), value

    whole = batch(4 * SIZE)
    mine = {name: array[RANK * 4 : RANK * 4 + 4] for name, array in whole.items()}
    state, other = params(), params()
    for _ in range(5):
        state, value = step(state, mine)
        other, expected = alone(other, whole)
        close((state, value), (other, expected))


def test_each_rank_is_where_vmap_has_it() -> None:
    axes = {"a": 2, "b": SIZE // 2} if SIZE % 2 == 0 else {"a": 1, "b": SIZE}

    def function(x: Any) -> Any:
        index = lax.axis_index("a") * 100 + lax.axis_index("b")
        return (
            index,
            lax.psum(x, "b"),
            jax.grad(lambda x: (lax.all_gather(x, "a") ** 2).sum())(x),
            lax.pmax(x, ("a", "b")),
        )

    whole = normal(SIZE, 3)
    mapped = jax.vmap(jax.vmap(function, axis_name="b"), axis_name="a")
    expected = jax.jit(mapped)(whole.reshape(*axes.values(), 3))
    expected = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[RANK], expected)
    close(spmd.jax.jit(function, axes=axes)(whole[RANK]), expected)


def mesh() -> jax.sharding.AbstractMesh:
    return abstract_mesh((2, SIZE // 2) if SIZE % 2 == 0 else (1, SIZE), ("data", "model"))


def cut(*axes: str | None) -> NamedSharding:
    return NamedSharding(mesh(), P(*axes))


LAYOUT = {"w": P(None, "model"), "b": P("model"), "v": P("model")}


def global_step() -> Any:
    state = {name: NamedSharding(mesh(), spec) for name, spec in LAYOUT.items()}
    data = {"x": cut("data"), "y": cut("data")}

    def step(params: Any, batch: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(params, batch)
        return sgd(params, slopes), value

    return jax.jit(step, in_shardings=(state, data), out_shardings=(state, cut()))


def test_the_global_view_takes_whole_arrays_and_blocks(tmp_path: Any) -> None:
    step, whole = spmd.jax.jit(global_step()), batch(4 * SIZE)
    alone = jax.jit(lambda params, batch: (sgd(params, jax.grad(loss)(params, batch)), loss(params, batch)))
    other = params()
    state, value = step(params(), whole)
    assert state["w"].shape == (6, 8 // mesh().shape["model"])
    other, expected = alone(other, whole)
    close(step.unshard((state, value)), (other, expected))
    blocks = step.shard(whole)
    assert blocks["x"].shape == (4 * SIZE // mesh().shape["data"], 6)
    for data in (whole, blocks, {"x": whole["x"], "y": blocks["y"]}):
        state, value = step(state, data)
        other, expected = alone(other, whole)
        close(step.unshard(state), other)
        close(value, expected)
    close(step.shard(step.unshard(state)), state)
    close(step.unshard({"batch": blocks, "state": state})["batch"], whole)
    folder = MPI.COMM_WORLD.bcast(str(tmp_path))
    checkpoint.save(folder, 1, state, step.shardings(state))
    close(checkpoint.restore(folder, like=state, shardings=step.shardings(state)), state)
    close(checkpoint.restore(folder), other)


def test_shard_map_is_the_global_view() -> None:
    def inner(x: Any, w: Any) -> Any:
        return lax.psum(x @ w, "model")

    mapped = jax.shard_map(inner, mesh=mesh(), in_specs=(P("data", "model"), P("model")), out_specs=P("data"))
    step = spmd.jax.jit(lambda x, w: mapped(x, w) + 1)
    x, w = normal(2 * SIZE, 2 * SIZE), normal(2 * SIZE, 3)
    close(step.unshard(step(x, w)), x @ w + 1)


def test_bad_use_gets_a_sentence() -> None:
    with pytest.raises(
        spmd.UsageError, match=rf"data={SIZE + 1} make {SIZE + 1} processes, and there are {SIZE} ranks"
    ):
        spmd.jax.jit(lambda x: x, axes={"data": SIZE + 1})(np.ones(2))
    step = spmd.jax.jit(global_step())
    with pytest.raises(spmd.UsageError, match="shard needs a compiled program"):
        step.shard(params())
    state, _ = step(params(), batch(4 * SIZE))
    with pytest.raises(spmd.UsageError, match=r"batch\['x'\] is float32\[7,6\]: neither the global float32"):
        step(state, {"x": normal(7, 6), "y": normal(7, 2)})
    with pytest.raises(spmd.UsageError, match="this tree is none"):
        step.unshard({"other": [state, state]})


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_callback_of_the_global_view_is_issued_by_the_first_rank(name: str) -> None:
    expected, notes = on_one_device(name)
    step = spmd.jax.jit(global_view(name, SIZE))
    NOTES.clear()
    results = step.unshard(step(X))
    assert (notes if RANK == 0 else []) == NOTES
    jax.tree.map(np.testing.assert_array_equal, results, expected)


def test_blocks_are_not_taken_for_whole_arrays() -> None:
    """At the first call arguments are whole, the same on all ranks, or are said to be blocks."""
    cut = NamedSharding(abstract_mesh((SIZE,), ("data",)), P("data"))
    whole = {"x": np.arange(2 * SIZE * SIZE, dtype=np.float32), "scale": np.float32(3)}
    own = {"x": whole["x"][2 * SIZE * RANK : 2 * SIZE * (RANK + 1)], "scale": whole["scale"]}

    def step() -> Any:
        return spmd.jax.jit(
            jax.jit(lambda tree: (tree["x"] * tree["scale"]).sum(), in_shardings=({"x": cut, "scale": None},))
        )

    if SIZE > 1:
        with pytest.raises(spmd.UsageError, match=r"tree\['x'\] is not the same on rank 0 and rank 1: .*whole arrays"):
            step()(own)
        with pytest.raises(spmd.UsageError, match=r"tree\['scale'\] is not the same on rank 0 and rank"):
            step()(whole | {"scale": np.float32(RANK == SIZE - 1)})
    total = 3 * whole["x"].sum()
    assert step()(whole) == total
    given = spmd.jax.make_array_from_process_local_data(cut, own["x"])
    assert given.shape == whole["x"].shape and given.dtype == np.float32
    blocks = step()
    for tree in ({"x": given, "scale": whole["scale"]}, own, whole):
        assert blocks(tree) == total
    doubled = spmd.jax.jit(lambda x: x * 2)  # its sharding is that of its argument
    close(doubled(given), own["x"] * 2)
    close(doubled.unshard(doubled(given)), whole["x"] * 2)
    taken = spmd.jax.make_array_from_process_local_data(cut, whole["x"], whole["x"].shape)
    np.testing.assert_array_equal(taken.block, own["x"])


def test_blocks_of_two_axes_are_those_of_the_program() -> None:
    two = mesh()
    x = normal(4 * SIZE, 4 * SIZE)
    for spec in (P("data", "model"), P("model", "data"), P(("model", "data")), P(None, "data"), P(("data", "model"))):
        cut = NamedSharding(two, spec)
        step = spmd.jax.jit(jax.jit(lambda x: (x + 1, x.sum()), in_shardings=cut, out_shardings=(cut, None)))
        step.executable(x)
        given = spmd.jax.make_array_from_process_local_data(cut, step.shard(x))
        close(step.unshard(step(given)[0]), x + 1)
    if two.shape["data"] > 1 and two.shape["model"] > 1:
        other = spmd.jax.jit(jax.jit(lambda x: x.sum(), in_shardings=NamedSharding(two, P("data", "model"))))
        given = spmd.jax.make_array_from_process_local_data(NamedSharding(two, P("model", "data")), np.ones((4, 4)))
        with pytest.raises(spmd.UsageError, match=r"x is given cut as .*so that rank \d holds .* takes it cut as"):
            other(given)


def test_a_mesh_of_this_process_s_devices_is_explained() -> None:
    own = jax.sharding.Mesh(jax.devices()[:1], ("data",))
    step = spmd.jax.jit(jax.jit(lambda x: x + 1, in_shardings=NamedSharding(own, P("data"))))
    if SIZE > 1:
        with pytest.raises(spmd.UsageError, match=r"a mesh of jax\.devices\(\) .* jax\.sharding\.AbstractMesh\("):
            step(np.zeros(4))


def test_a_layout_that_is_searched_for_is_the_same_on_all_ranks_and_right() -> None:
    def step(w: Any, x: Any) -> Any:
        value, slope = jax.value_and_grad(lambda w, x: jnp.mean((x @ w - 1) ** 2))(w, x)
        return w - 0.1 * slope, value

    w, x = params()["w"], batch(8 * SIZE)["x"]
    auto = spmd.jax.jit(step, mesh={"x": SIZE}, in_shardings="auto") if SIZE > 1 else spmd.jax.jit(step)
    given, _ = auto(w, x)
    given, _ = auto(given, x)  # the state comes back as it was given
    alone = jax.jit(step)
    close(auto.unshard(given) if SIZE > 1 else given, alone(alone(w, x)[0], x)[0])
    if SIZE > 1:
        plans = MPI.COMM_WORLD.allgather(auto.plan.explain())
        assert set(plans) == {plans[0]}


@pytest.fixture(scope="module")
def trainers() -> dict[str, jax_global_trainers.Trainer]:
    pytest.importorskip("optax")
    return jax_global_trainers.trainers(SIZE, abstract_mesh)


@pytest.mark.parametrize("name", some_slow(jax_global_trainers.ON_RANKS, 1))
def test_ranks_train_what_a_simulation_of_them_does(
    name: str, trainers: dict[str, jax_global_trainers.Trainer]
) -> None:
    """The simulation trains what JAX does on its own devices: tests.jax.test_trainers."""
    state, step, batches = trainers[name]
    simulated = None
    if RANK == 0:
        simulated = trained(jax_global_trainers.made_whole(spmd.jax.simulate(step)), state, batches)
    mine = trained(jax_global_trainers.made_whole(spmd.jax.jit(step)), state, batches)
    meet(MPI.COMM_WORLD)
    for left, right in zip(mine, MPI.COMM_WORLD.bcast(simulated), strict=True):
        np.testing.assert_allclose(left, right, rtol=2e-5, atol=2e-5, strict=True)  # in another order of sums


def test_functions_run_op_by_op_in_python_where_jit_is_disabled() -> None:
    """Python branches on this rank's values and place; collectives communicate, in branches of some ranks, too."""
    axes = {"a": 2, "b": SIZE // 2} if SIZE % 2 == 0 else {"a": 1, "b": SIZE}

    def function(x: Any) -> Any:
        if jax.config.jax_disable_jit and lax.axis_index("a") == 0:
            assert x.tolist() == [RANK + 1, RANK + 2]
        summed = lax.cond(lax.axis_index("a") == 0, lambda: lax.psum(x, "b"), lambda: -x)
        slope = jax.grad(lambda x: lax.psum((lax.all_gather(x, "b") ** 3).sum(), "a"))(x)
        return summed, slope, lax.ppermute(x, "b", [(0, axes["b"] - 1)]), lax.pmean(x, ("a", "b"))

    step = spmd.jax.jit(function, axes=axes)
    x = np.array([RANK + 1, RANK + 2], np.float32)
    want = step(x)
    with jax.disable_jit():
        close(step(x), want)


def test_collectives_that_differ_op_by_op_give_no_value() -> None:
    """Whether they were called before or not."""
    x = np.ones(3, np.float32)

    def function(x: Any, turned: bool) -> Any:
        first, second = (lax.pmax, lax.psum) if turned else (lax.psum, lax.pmax)
        return first(x, "processes"), second(x, "processes")

    step = spmd.jax.jit(function, static_argnums=1)
    with jax.disable_jit():
        step(x, False)
        with pytest.raises(spmd.CollectiveError, match=r"test_jax_functions(?s:.*)add of 3(?s:.*)maximum of 3"):
            step(x, RANK == 1)


def test_nan_on_one_rank_is_an_error_there() -> None:
    """Under jax_debug_nans, which names the line."""
    step = spmd.jax.jit(lambda x: (jnp.log(x), lax.psum(x, "processes")))
    x = np.array([-1 if RANK == SIZE - 1 else 1], np.float32)
    with jax.debug_nans(True):
        if RANK == SIZE - 1:
            place = r"test_jax_functions.py:\d+: invalid value \(nan\) encountered in log"
            with pytest.raises(FloatingPointError, match=place):
                step(x)
        else:
            assert step(x)[1].tolist() == [SIZE - 2]


def test_each_rank_has_its_own_ref() -> None:
    """Given as an argument, or taken from outside; what is written is communicated before."""
    calls, ref = jax.new_ref(jnp.zeros(())), jax.new_ref(jnp.full(2, RANK, jnp.float32))

    def function(ref: Any, x: Any) -> Any:
        calls[...] += 1

        def body(total: Any, each: Any) -> Any:
            ref[...] += lax.psum(each, "processes")
            return total + ref[0], None

        return lax.scan(body, 0.0, x)[0]

    step = spmd.jax.jit(function)
    for call in range(1, 3):
        step(ref, np.ones(3, np.float32))
        assert calls[...] == call and ref[...].tolist() == [RANK + 3 * call * SIZE] * 2


def test_a_static_object_gives_the_same_program_on_all_ranks() -> None:
    class Model:
        @functools.partial(jax.jit, static_argnames=("self", "scale"))
        def summed(self, x: Any, scale: int) -> Any:
            return lax.psum(x, "processes") * scale

    x = np.full(2, RANK + 1, np.float32)
    assert spmd.jax.jit(Model().summed)(x, scale=2).tolist() == [SIZE * (SIZE + 1)] * 2
