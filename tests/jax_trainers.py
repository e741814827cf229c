"""Training steps written for the view of one process, and what they give on JAX's own devices.

``python tests/jax_trainers.py N FILE NAMES`` writes the states and metrics that `jax.pmap` gives on N devices for steps
named with commas between; with ``ranks`` as a fourth word, each MPI rank writes its own. It runs by itself, since JAX
takes the number of devices when loaded.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

AXIS = "processes"
TURNS = 2
#: Those of an ordinary run, and those that are tried only in a long one.
FEW = ["flax_network", "experts", "control_flow", "narrow_numbers"]
REST = [
    "attention", "keys_threefry2x32", "keys_rbg", "keys_unsafe_rbg", "ring", "linear_algebra", "two_players",
    "low_rank", "accumulated", "adafactor", "dataclasses", "doubles", "scattered_state", "called_back",
]  # fmt: skip
#: Those that are run on as many ranks.
ON_RANKS = ["attention", "keys_rbg", "scattered_state", "ring", "control_flow", "accumulated", "doubles"]

#: A state, a step of (state, batch) to (state, metrics), and how many numbers a process's batch has.
Trainer = tuple[Any, Callable[[Any, Any], Any], tuple[int, ...]]


def batches(shape: tuple[int, ...], count: int) -> list[np.ndarray[Any, Any]]:
    """The batches of each turn, all processes' stacked."""
    rng = np.random.default_rng(5)
    return [rng.normal(size=(count, *shape)).astype(np.float32) for _ in range(TURNS)]


def trainers(count: int, names: list[str]) -> dict[str, Trainer]:
    """The steps of these names for a number of processes."""
    import dataclasses
    from functools import partial

    import jax
    import jax.numpy as jnp
    from jax import lax

    rng = np.random.default_rng(0)
    by_name: dict[str, Trainer] = {}

    def normal(*shape: int) -> np.ndarray[Any, Any]:
        return rng.normal(size=shape).astype(np.float32)

    def trainer(state: Any, shape: tuple[int, ...], name: str = "") -> Callable[..., Any]:
        def add(step: Callable[..., Any]) -> Callable[..., Any]:
            by_name[name or step.__name__] = state, step, shape
            return step

        return add

    def descend(loss: Callable[[Any], Any], weights: Any) -> tuple[Any, Any]:
        value, slopes = lax.pmean(jax.value_and_grad(loss)(weights), AXIS)
        return jax.tree.map(lambda weight, slope: weight - 0.1 * slope, weights, slopes), value

    if "flax_network" in names:
        by_name["flax_network"] = _flax_network()

    layers = {"qkv": normal(2, 8, 24) / 3, "out": normal(2, 8, 8) / 3}

    @trainer(layers, (2, 5, 8))
    def attention(state: Any, x: Any) -> Any:
        @jax.checkpoint
        def layer(x: Any, weights: Any) -> Any:
            q, k, v = (part.reshape(2, 5, 2, 4) for part in jnp.split(x @ weights["qkv"], 3, -1))
            mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape)
            return jax.nn.standardize(x + mixed @ weights["out"]), None

        return descend(lambda weights: (lax.scan(layer, x, weights)[0] ** 3).mean(), state)

    def keyed(state: Any, x: Any) -> Any:
        one, two, three, four = jax.random.split(jax.random.fold_in(state["key"], lax.axis_index(AXIS)), 4)
        kept = jax.random.bernoulli(one, 0.7, x.shape)
        value = lax.pmean(((x + jax.random.normal(two, x.shape)) * kept).sum(), AXIS)
        drawn = jax.random.bits(three, (5,)), jax.random.permutation(four, 6), jax.random.randint(one, (4,), -9, 9)
        return {"key": jax.random.split(state["key"])[1], "sum": state["sum"] + value}, drawn

    for implementation in ("threefry2x32", "rbg", "unsafe_rbg"):
        key = jax.random.key(7, impl=implementation)
        trainer({"key": key, "sum": np.float32(0)}, (2, 3), f"keys_{implementation}")(keyed)

    @trainer((normal(2 * count, 4), None), (3, 2 * count))
    def scattered_state(state: Any, x: Any) -> Any:
        whole, none = state
        value, slope = jax.value_and_grad(lambda whole: ((x @ whole) ** 2).mean())(whole)
        part = lax.psum_scatter(slope, AXIS, scatter_dimension=0, tiled=True) / count
        mine = lax.dynamic_slice_in_dim(whole, lax.axis_index(AXIS) * 2, 2) - 0.1 * part
        return (lax.all_gather(mine, AXIS, tiled=True), none), lax.pmean(value, AXIS)

    @trainer({"gate": normal(4, count), "expert": normal(4, 4)}, (3, 4))
    def experts(state: Any, x: Any) -> Any:
        def loss(weights: Any) -> Any:
            parts = jnp.einsum("tn,td->ntd", jax.nn.softmax(x @ weights["gate"]), x)
            there = lax.all_to_all(parts, AXIS, 0, 0, tiled=True)
            done = jnp.tanh(there @ weights["expert"] * (1 + lax.axis_index(AXIS)))
            return (lax.all_to_all(done, AXIS, 0, 0, tiled=True).sum(0) ** 2).mean()

        return descend(loss, state)

    @trainer(normal(4, 4) / 2, (3, 4))
    def ring(state: Any, x: Any) -> Any:
        def loss(weight: Any) -> Any:
            def pass_on(carry: Any, _: Any) -> Any:
                passed = lax.ppermute(jnp.tanh(carry[0] @ weight), AXIS, [(i, (i + 1) % count) for i in range(count)])
                return (passed, carry[1] + passed), passed.sum()

            (_, total), sums = lax.scan(pass_on, (x, x), None, length=3)
            return (total**2).mean() + sums.mean()

        return descend(loss, state)

    @trainer(normal(3), (3,))
    def control_flow(state: Any, x: Any) -> Any:
        def large(carry: Any) -> Any:
            return (carry[1] < 20) & (lax.pmax(jnp.abs(carry[0]).max(), AXIS) > 0.5)

        last, turns = lax.while_loop(large, lambda carry: (carry[0] * 0.8, carry[1] + 1), (state + x, 0))
        value = lax.cond(lax.psum(last.sum(), AXIS) > 0, lambda: lax.pmean(last, AXIS), lambda: lax.psum(-last, AXIS))
        return lax.pmean(last, AXIS), (value, turns)

    @trainer({"weight": normal(4, 4), "sum": np.eye(4, dtype=np.float32)}, (5, 4))
    def linear_algebra(state: Any, x: Any) -> Any:
        slope = lax.pmean(jax.grad(lambda weight: ((x @ weight) ** 2).mean())(state["weight"]), AXIS)
        total = state["sum"] + slope @ slope.T
        values, vectors = jnp.linalg.eigh(total)
        weight = state["weight"] - 0.1 * (vectors * values**-0.25) @ vectors.T @ slope
        told = jnp.linalg.solve(total, slope), jnp.linalg.cholesky(total), jnp.abs(jnp.fft.rfft(weight))
        return {"weight": weight, "sum": total}, told

    @jax.custom_vjp
    def rounded(x: Any) -> Any:
        return jnp.round(x * 16).astype(jnp.int8).astype(jnp.float32) / 16

    rounded.defvjp(lambda x: (rounded(x), None), lambda _, slope: (slope,))

    @trainer(normal(8, 4), (3, 8))
    def narrow_numbers(state: Any, x: Any) -> Any:
        def loss(weight: Any) -> Any:
            narrow = (x.astype(jnp.float8_e4m3fn), weight.astype(jnp.float8_e4m3fn), (((1,), (0,)), ((), ())))
            product = lax.dot_general(*narrow, preferred_element_type=jnp.float32)
            return (rounded(weight) ** 2).mean() + (product**2).mean()

        eighths = (x * 8).astype(jnp.int8)
        whole = lax.dot(eighths, eighths.T, preferred_element_type=jnp.int32)
        state, value = descend(loss, state)
        return state, (value, lax.psum(whole, AXIS), lax.pmax(eighths, AXIS), lax.psum(x.astype(jnp.bfloat16), AXIS))

    @partial(jax.tree_util.register_dataclass, data_fields=["weight", "turn", "flag"], meta_fields=["name"])
    @dataclasses.dataclass
    class TrainerState:
        weight: Any
        turn: Any
        flag: Any
        name: str = "static"

    @trainer(TrainerState(normal(3), 0, np.bool_(False)), (3,), "dataclasses")
    def of_dataclasses(state: Any, x: Any) -> Any:
        bad = lax.pmax((jnp.abs(x).max() > 1.5).astype(jnp.int32), AXIS) > 0
        moved = jnp.where(bad, state.weight, state.weight - 0.1 * lax.pmean(x, AXIS))
        return TrainerState(moved, state.turn + 1, state.flag | bad), {"none": None, "turn": state.turn * 2.0}

    import optax

    critic_rule, maker_rule = optax.rmsprop(1e-2), optax.chain(optax.clip(0.5), optax.lion(1e-3))
    players = {"maker": normal(3, 4) / 2, "critic": normal(4, 1) / 2}
    players |= {
        "maker_moments": maker_rule.init(players["maker"]),
        "critic_moments": critic_rule.init(players["critic"]),
    }

    @trainer(jax.tree.map(np.asarray, players), (6, 4))
    def two_players(state: Any, x: Any) -> Any:
        noise = x[:, :3] - x[:, 1:]

        def score(maker: Any, critic: Any) -> Any:
            drawn = jnp.tanh(noise @ maker) @ critic
            return jax.nn.softplus(-(x @ critic)).mean() + jax.nn.softplus(drawn).mean()

        own = score(state["maker"], state["critic"])
        slopes = jax.grad(score, (0, 1))(state["maker"], state["critic"])
        up, down = lax.pmean(slopes, AXIS)
        moved, kept = maker_rule.update(-up, state["maker_moments"], state["maker"])
        judged, held = critic_rule.update(down, state["critic_moments"], state["critic"])
        new = {"maker": state["maker"] + moved, "critic": state["critic"] + judged}
        return {**new, "maker_moments": kept, "critic_moments": held}, lax.psum(own, AXIS)

    adapters = {"down": normal(2, 8, 2) / 3, "up": np.zeros((2, 2, 8), np.float32)}
    frozen = normal(2, 8, 8) / 3

    @trainer(adapters, (4, 8))
    def low_rank(state: Any, x: Any) -> Any:
        @partial(jax.checkpoint, policy=jax.checkpoint_policies.nothing_saveable)
        def layer(x: Any, weights: Any) -> Any:
            fixed, own = weights
            return jax.nn.silu(x @ lax.stop_gradient(fixed) + x @ own["down"] @ own["up"]), None

        return descend(lambda own: ((lax.scan(layer, x, (frozen, own))[0] - x) ** 2).mean(), state)

    @trainer({"weight": normal(8, 8) / 3, "mean": np.zeros((8, 8), np.float32), "scale": np.float32(64)}, (3, 4, 8))
    def accumulated(state: Any, x: Any) -> Any:
        def loss(weight: Any, part: Any) -> Any:
            narrow = jax.nn.relu(part.astype(jnp.bfloat16) @ weight.astype(jnp.bfloat16))
            return (narrow.astype(jnp.float32) ** 2).mean() * state["scale"]

        def add(total: Any, part: Any) -> Any:
            value, slope = jax.value_and_grad(loss)(state["weight"], part)
            return total + slope / state["scale"], value

        total, values = lax.scan(add, jnp.zeros((8, 8)), x)
        total = lax.pmean(total, AXIS)
        finite = jnp.isfinite(total).all()
        weight = jnp.where(finite, state["weight"] - 0.02 * total, state["weight"])
        scale = jnp.where(finite, state["scale"] * 2, state["scale"] / 2)
        return {"weight": weight, "mean": optax.incremental_update(weight, state["mean"], 0.1), "scale": scale}, values

    factored = optax.multi_transform(
        {"large": optax.adafactor(1e-2, min_dim_size_to_factor=4), "small": optax.sgd(1e-2, momentum=0.9)},
        {"table": "large", "bias": "small"},
    )
    table = {"table": normal(8, 6), "bias": np.zeros(6, np.float32)}

    @trainer((table, jax.tree.map(np.asarray, factored.init(table))), (4, 5))
    def adafactor(state: Any, x: Any) -> Any:
        weights, moments = state
        tokens = jnp.clip(jnp.round(x * 2 + 4), 0, 7).astype(jnp.uint8)

        def loss(weights: Any) -> Any:
            hidden = weights["table"][tokens] + weights["bias"]
            logits = jnp.einsum("btd,vd->btv", jax.nn.standardize(hidden), weights["table"])
            return optax.losses.safe_softmax_cross_entropy(logits, jax.nn.one_hot(tokens, 8)).mean()

        value, slopes = lax.pmean(jax.value_and_grad(loss)(weights), AXIS)
        updates, moments = factored.update(slopes, moments, weights)
        return (optax.apply_updates(weights, updates), moments), (value, jnp.bincount(tokens.ravel(), length=8))

    @trainer(normal(4), (3, 4))
    def called_back(state: Any, x: Any) -> Any:
        scaled = jax.ShapeDtypeStruct((3, 4), np.float32)
        rows = jax.pure_callback(lambda rows: np.asarray(rows) * 2, scaled, x, vmap_method="sequential")
        slope = jax.grad(lambda weight: ((rows @ weight) ** 2).mean())(state)
        return state - 0.01 * lax.pmean(slope, AXIS), rows.sum()

    @trainer(normal(4, 4).astype(np.float64), (3, 4))
    def doubles(state: Any, x: Any) -> Any:
        state, value = descend(lambda weight: jnp.sin(x @ weight).mean(), state)
        return state, (
            value,
            jnp.arange(3) + lax.axis_index(AXIS),
            x.sum(dtype=jnp.float64),
            jnp.complex128(value * 1j),
        )

    return {name: by_name[name] for name in names}


def _flax_network() -> Trainer:
    """A convolutional network of flax: dropout, statistics of all processes' batches, a schedule and clipped slopes."""
    import jax
    import jax.numpy as jnp
    import optax
    from flax import linen as nn
    from jax import lax

    class TrainedNetwork(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.Conv(4, (3, 3), use_bias=False)(x)
            x = nn.max_pool(nn.gelu(nn.BatchNorm(use_running_average=False, axis_name=AXIS)(x)), (2, 2), (2, 2))
            return nn.Dense(3)(nn.Dropout(0.3, deterministic=False)(x.reshape(x.shape[0], -1)))

    network = TrainedNetwork()
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    # jitted, so that one small program is compiled in place of very many
    init = jax.vmap(lambda x: network.init(keys, x), axis_name=AXIS)
    initial = jax.jit(init)(np.ones((1, 2, 6, 6, 1), np.float32))
    variables = jax.tree.map(lambda leaf: np.asarray(leaf[0]), initial)
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 1e-2, 2, 10))
    )
    start = {**variables, "optimizer": jax.jit(optimizer.init)(variables["params"]), "key": jax.random.key(3)}

    def step(state: Any, x: Any) -> Any:
        key, own = jax.random.split(state["key"])

        def loss(params: Any) -> Any:
            variables_in = {"params": params, "batch_stats": state["batch_stats"]}
            dropout = jax.random.fold_in(own, lax.axis_index(AXIS))
            out, new = network.apply(variables_in, x, rngs={"dropout": dropout}, mutable=["batch_stats"])
            return optax.softmax_cross_entropy_with_integer_labels(out, jnp.arange(2)).mean(), new

        (value, new), slopes = jax.value_and_grad(loss, has_aux=True)(state["params"])
        updates, kept = optimizer.update(lax.pmean(slopes, AXIS), state["optimizer"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, **lax.pmean(new, AXIS), "optimizer": kept, "key": key}, lax.pmean(value, AXIS)

    return start, step, (2, 6, 6, 1)


def arrays(tree: Any) -> list[np.ndarray[Any, Any]]:
    """The leaves, of keys their words."""
    import jax

    def array(leaf: Any) -> np.ndarray[Any, Any]:
        is_key = isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(leaf) if is_key else leaf)

    return [array(leaf) for leaf in jax.tree.leaves(tree)]


def stacked(tree: Any, count: int) -> Any:
    """`tree` as every one of `count` processes has it."""
    import jax
    import jax.numpy as jnp

    def stack(leaf: Any) -> Any:
        return jnp.stack([leaf] * count) if isinstance(leaf, jax.Array) else np.stack([np.asarray(leaf)] * count)

    return jax.tree.map(stack, tree)


def trained(step: Callable[..., Any], state: Any, batches_in: list[Any]) -> list[np.ndarray[Any, Any]]:
    """The metrics of each turn, and the state after the last; with x64 where the state has doubles."""
    import jax

    told = []
    with jax.enable_x64(has_doubles(state)):
        for batch in batches_in:
            state, metrics = step(state, batch)
            told += arrays(metrics)
        return told + arrays(state)


def has_doubles(state: Any) -> bool:
    return any(array.dtype == np.float64 for array in arrays(state))


def on_devices(count: int) -> None:
    """Has JAX take `count` devices; before it is loaded."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
    os.environ |= {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}


def _main() -> None:
    count, file, names = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3].split(",")
    by_name: dict[str, list[np.ndarray[Any, Any]]] = {}
    if sys.argv[4:] == ["ranks"]:
        from mpi4py import MPI

        import spmd.jax

        rank = MPI.COMM_WORLD.rank
        for name, (state, step, shape) in trainers(count, names).items():
            by_name[name] = trained(spmd.jax.jit(step), state, [batch[rank] for batch in batches(shape, count)])
        file = file.with_name(f"{file.name}-{rank}")
    else:
        on_devices(count)
        import jax

        place = jax.pmap(lambda state: state, axis_name=AXIS)
        for name, (state, step, shape) in trainers(count, names).items():
            # On the devices from the first turn on: the step would be compiled anew for a state that has come there.
            with jax.enable_x64(has_doubles(state)):
                placed = place(stacked(state, count))
            by_name[name] = trained(jax.pmap(step, axis_name=AXIS), placed, batches(shape, count))
    file.write_bytes(pickle.dumps(by_name))


if __name__ == "__main__":
    _main()
