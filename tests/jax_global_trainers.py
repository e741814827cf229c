"""Training steps in the global view: whole arrays and shardings, and what they give on JAX's own devices.

``python tests/jax_global_trainers.py N FILE NAMES`` writes the states and metrics of JAX on N devices for steps named
with commas between; with ``ranks`` as a fourth word, each MPI rank writes those that it has made whole. It runs by
itself, since JAX takes the number of devices when loaded.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.jax_meshes import abstract_mesh
from tests.jax_trainers import on_devices, trained

TURNS = 3
#: Those of an ordinary run, and those that are tried only in a long one.
FEW = ["two_axes", "fully_sharded"]
REST = [
    "data_parallel", "transformer", "mapped", "partly_mapped", "dropout", "vocabulary", "experts", "accumulated",
    "analysis", "doubles", "named_arguments", "mapped_ring", "convolution",
]  # fmt: skip
#: Those that `tests/mpi` trains, too, since ranks have something of their own in them: a mesh of two axes and moments,
#: a state that is given away, and shifts inside shard_map.
ON_RANKS = ["fully_sharded", "two_axes", "mapped_ring"]

#: A state, a jitted step of (state, batch) to (state, metrics), and the global batch of each turn.
Trainer = tuple[Any, Callable[[Any, Any], Any], list[Any]]


def trainers(count: int, mesh_of: Callable[..., Any]) -> dict[str, Trainer]:
    """The steps for a number of devices, even or one; `mesh_of(sizes, names)` makes their meshes."""
    import jax
    import jax.numpy as jnp
    import optax
    from jax import lax
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    minor = 2 if count % 2 == 0 else 1
    flat, grid = mesh_of((count,), ("data",)), mesh_of((count // minor, minor), ("data", "model"))
    rng = np.random.default_rng(0)
    by_name: dict[str, Trainer] = {}

    def normal(*shape: int) -> np.ndarray[Any, Any]:
        return rng.normal(size=shape).astype(np.float32)

    def on(mesh: Any, specs: Any) -> Any:
        return jax.tree.map(partial(NamedSharding, mesh), specs, is_leaf=lambda spec: isinstance(spec, P))

    def trainer(
        state: Any, shape: tuple[int, ...], mesh: Any, state_specs: Any, spec: Any, **options: Any
    ) -> Callable[..., Any]:
        """Files the step, jitted: its state and batch lie as the specs say, and its metrics everywhere."""

        def add(step: Callable[..., Any]) -> Callable[..., Any]:
            shardings = {"in_shardings": on(mesh, (state_specs, spec)), "out_shardings": on(mesh, (state_specs, P()))}
            jitted = jax.jit(step, **(shardings | options))
            by_name[step.__name__] = state, jitted, [normal(*shape) for _ in range(TURNS)]
            return step

        return add

    def first_moments(optimizer: Any, weights: Any) -> Any:
        """Return what `optimizer`, all of zeros, begins with; JAX would compile the zeros of each shape."""
        shapes = jax.eval_shape(optimizer.init, weights)
        return jax.tree.map(lambda shape: np.zeros(shape.shape, shape.dtype), shapes)

    def descend(loss: Callable[[Any], Any], weights: Any, rate: float = 0.1) -> tuple[Any, Any]:
        value, slopes = jax.value_and_grad(loss)(weights)
        return jax.tree.map(lambda weight, slope: weight - rate * slope, weights, slopes), value

    def mlp(weights: Any, x: Any) -> Any:
        return jax.nn.gelu(x @ weights["in"] + weights["bias"]) @ weights["out"]

    weights = {"in": normal(8, 16) / 3, "bias": np.zeros(16, np.float32), "out": normal(16, 8) / 4}

    @trainer(weights, (16, 8), flat, P(), P("data"))
    def data_parallel(state: Any, x: Any) -> Any:
        return descend(lambda weights: ((mlp(weights, x) - x) ** 2).mean(), state)

    adam = optax.adamw(1e-2)
    specs = {"in": P(None, "model"), "bias": P("model"), "out": P("model", None)}
    of_state = optax.tree.map_params(
        adam, lambda _, spec: spec, jax.eval_shape(adam.init, weights), specs, transform_non_params=lambda _: P()
    )

    @trainer((weights, first_moments(adam, weights)), (16, 8), grid, (specs, of_state), P("data"))
    def two_axes(state: Any, x: Any) -> Any:
        weights, moments = state
        value, slopes = jax.value_and_grad(lambda weights: ((mlp(weights, x) - x) ** 2).mean())(weights)
        updates, moments = adam.update(slopes, moments, weights)
        return (optax.apply_updates(weights, updates), moments), {"loss": value, "norm": optax.global_norm(slopes)}

    @trainer(
        weights, (16, 8), flat, {"in": P("data"), "bias": P("data"), "out": P("data")}, P("data"), donate_argnums=0
    )
    def fully_sharded(state: Any, x: Any) -> Any:
        def loss(weights: Any) -> Any:
            whole = jax.tree.map(lambda weight: lax.with_sharding_constraint(weight, NamedSharding(flat, P())), weights)
            hidden = lax.with_sharding_constraint(jax.nn.relu(x @ whole["in"]), NamedSharding(flat, P("data", None)))
            return ((hidden @ whole["out"]) ** 2).mean() + (whole["bias"] ** 2).sum()

        return descend(loss, state)

    layers = {"qkv": normal(3, 8, 3, 2, 4) / 3, "out": normal(3, 2, 4, 8) / 3, "scale": np.ones((3, 8), np.float32)}
    of_layers = {"qkv": P(None, None, None, "model"), "out": P(None, "model"), "scale": P()}

    @trainer(layers, (8, 6, 8), grid, of_layers, P("data"))
    def transformer(state: Any, x: Any) -> Any:
        @partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable)
        def layer(x: Any, weights: Any) -> Any:
            q, k, v = jnp.einsum("blw,wchd->cblhd", jax.nn.standardize(x) * weights["scale"], weights["qkv"])
            mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
            return x + jnp.einsum("blhd,hdw->blw", mixed, weights["out"]), jnp.abs(mixed).max()

        def loss(layers: Any) -> Any:
            last, largest = lax.scan(layer, x, layers)
            return (last**2).mean(), largest

        (value, largest), slopes = jax.value_and_grad(loss, has_aux=True)(state)
        return jax.tree.map(lambda weight, slope: weight - 0.1 * slope, state, slopes), (value, largest)

    @trainer(weights, (16, 8), flat, P(), P("data"))
    @partial(jax.shard_map, mesh=flat, in_specs=(P(), P("data")), out_specs=(P(), P()))
    def mapped(state: Any, x: Any) -> Any:
        def loss(weights: Any) -> Any:
            return lax.pmean(((mlp(weights, x) - x) ** 2).mean(), "data")

        return descend(loss, state)

    @trainer(weights, (16, 8), grid, specs, P("data"))
    def partly_mapped(state: Any, x: Any) -> Any:
        @partial(jax.shard_map, mesh=grid, in_specs=(P(), P("data")), out_specs=P(), axis_names={"data"})
        def loss(weights: Any, x: Any) -> Any:
            return lax.pmean(((mlp(weights, x) - x) ** 2).mean(), "data")

        return descend(lambda weights: loss(weights, x), state)

    @trainer(normal(4, 4) / 2, (8, 4), flat, P(), P("data"))
    def mapped_ring(state: Any, x: Any) -> Any:
        @partial(jax.shard_map, mesh=flat, in_specs=(P(), P("data")), out_specs=(P(), P("data")), check_vma=False)
        def scores(weight: Any, x: Any) -> Any:
            order = [(i, (i + 1) % count) for i in range(count)]

            def turn(carry: Any, _: Any) -> Any:
                keys, total = carry
                return (lax.ppermute(keys, "data", order), total + jnp.tanh(x @ weight @ keys.T).sum(1)), None

            (_, total), _ = lax.scan(turn, (x, jnp.zeros(x.shape[0])), None, length=count)
            return lax.psum(total.sum(), "data"), total

        value, totals = scores(state, x)
        return state - 0.01 * jax.grad(lambda weight: scores(weight, x)[0])(state), (value, jnp.sort(totals))

    images = {"kernel": normal(3, 3, 1, 4) / 2, "scale": np.ones(4, np.float32), "mean": np.zeros(4, np.float32)}

    @trainer(images, (8, 6, 6, 1), flat, P(), P("data"))
    def convolution(state: Any, x: Any) -> Any:
        def loss(trained: Any) -> Any:
            y = lax.conv_general_dilated(x, trained[0], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            mean = y.mean((0, 1, 2))
            y = jax.nn.relu((y - mean) * lax.rsqrt(y.var((0, 1, 2)) + 1e-5) * trained[1])
            y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
            return (y**2).mean() + (y.sum((1, 2, 3)) ** 2).mean() / 100, mean

        (value, mean), slopes = jax.value_and_grad(loss, has_aux=True)((state["kernel"], state["scale"]))
        kernel, scale = state["kernel"] - 0.1 * slopes[0], state["scale"] - 0.1 * slopes[1]
        return {"kernel": kernel, "scale": scale, "mean": 0.9 * state["mean"] + 0.1 * mean}, value

    @trainer({**weights, "key": jax.random.key(3)}, (16, 8), flat, P(), P("data"))
    def dropout(state: Any, x: Any) -> Any:
        key, own = jax.random.split(state.pop("key"))
        kept = jax.random.bernoulli(own, 0.8, x.shape)
        new, value = descend(lambda weights: ((mlp(weights, jnp.where(kept, x / 0.8, 0)) - x) ** 2).mean(), state)
        return {**new, "key": key}, (value, jax.random.permutation(own, 8))

    adafactor = optax.adafactor(1e-2, min_dim_size_to_factor=4)
    table = normal(16, 8)

    @trainer((table, first_moments(adafactor, table)), (8, 5), grid, (P("model", None), P()), P("data"))
    def vocabulary(state: Any, x: Any) -> Any:
        table, moments = state
        tokens = jnp.clip(jnp.round(x * 4 + 8), 0, 15).astype(jnp.int32)

        def loss(table: Any) -> Any:
            logits = table[tokens[:, :-1]] @ table.T
            return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

        value, slopes = jax.value_and_grad(loss)(table)
        updates, moments = adafactor.update(slopes, moments, table)
        counts = jnp.zeros(16, jnp.int32).at[tokens].add(1)
        return (optax.apply_updates(table, updates), moments), (value, counts, lax.top_k(counts, 3)[1])

    choices = {"gate": normal(8, count), "experts": normal(count, 8, 8) / 3}

    @trainer(choices, (16, 8), flat, {"gate": P(), "experts": P("data")}, P("data"))
    def experts(state: Any, x: Any) -> Any:
        def loss(weights: Any) -> Any:
            gate = jax.nn.softmax(x @ weights["gate"])
            chosen = jax.nn.one_hot(gate.argmax(-1), count) * gate.max(-1, keepdims=True)
            sent = jnp.einsum("tn,td->ntd", chosen, x)
            sent = lax.with_sharding_constraint(sent, NamedSharding(flat, P("data")))
            done = jnp.einsum("ntd,nde->nte", sent, weights["experts"])
            return ((jnp.einsum("nte,tn->te", done, chosen) - x) ** 2).mean()

        return descend(loss, state)

    @trainer({"weights": weights, "mean": weights}, (4, 16, 8), flat, P(), P(None, "data"))
    def accumulated(state: Any, x: Any) -> Any:
        def loss(weights: Any, part: Any) -> Any:
            narrow = jax.tree.map(lambda weight: weight.astype(jnp.bfloat16), weights)
            return ((mlp(narrow, part.astype(jnp.bfloat16)).astype(jnp.float32) - part) ** 2).mean()

        def add(total: Any, part: Any) -> Any:
            value, slopes = jax.value_and_grad(loss)(state["weights"], part)
            return jax.tree.map(jnp.add, total, slopes), value

        total, values = lax.scan(add, jax.tree.map(jnp.zeros_like, state["weights"]), x)
        new = jax.tree.map(lambda weight, slope: weight - 0.02 * slope, state["weights"], total)
        mean = jax.tree.map(lambda old, weight: 0.9 * old + 0.1 * weight, state["mean"], new)
        return {"weights": new, "mean": mean}, values

    @trainer(normal(8, 8), (16, 8), flat, P(), P("data"))
    def analysis(state: Any, x: Any) -> Any:
        gram = x.T @ x + jnp.eye(8)
        values, vectors = jnp.linalg.eigh(gram)
        spectrum = jnp.abs(jnp.fft.rfft(x, axis=0))
        told = values, spectrum, jnp.cumsum(x, 0)[-1], jnp.sort(x, 0), jnp.argmax(x, 0), jnp.quantile(x, 0.3)
        return jnp.linalg.solve(gram, state) + jnp.abs(vectors).mean(), told

    @trainer(np.float64(1.0) * weights["in"], (16, 8), flat, P(), P("data"))
    def doubles(state: Any, x: Any) -> Any:
        new, value = descend(lambda weight: (jnp.tanh(x.astype(state.dtype) @ weight) ** 2).mean(), state)
        return new, (value, jnp.arange(3), x.sum(dtype=jnp.int32))

    @partial(jax.jit, in_shardings=(on(flat, P()), None), static_argnames="power")
    def named(state: Any, batch: Any, power: int = 2, *, rate: Any = 0.1) -> Any:
        x = lax.with_sharding_constraint(batch["x"], NamedSharding(flat, P("data")))
        return descend(lambda weights: (mlp(weights, x) ** power).mean(), state, rate)

    def named_arguments(state: Any, x: Any) -> Any:
        return named(state, {"x": x, "none": None})

    by_name["named_arguments"] = weights, jax.jit(named_arguments), [normal(16, 8) for _ in range(TURNS)]
    return by_name


def made_whole(step: Any) -> Callable[[Any, Any], Any]:
    """`step`, of spmd.jax, with whole results."""

    def whole(state: Any, batch: Any) -> Any:
        state, metrics = step(state, batch)
        return step.unshard(state), step.unshard(metrics)

    return whole


def _main() -> None:
    count, file, names = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3].split(",")
    results: dict[str, list[np.ndarray[Any, Any]]] = {}
    if sys.argv[4:] == ["ranks"]:
        from mpi4py import MPI

        import spmd.jax

        made = trainers(count, abstract_mesh)
        for name, (state, step, batches) in ((name, made[name]) for name in names):
            results[name] = trained(made_whole(spmd.jax.jit(step)), state, batches)
        file = file.with_name(f"{file.name}-{MPI.COMM_WORLD.rank}")
    else:
        on_devices(count)
        import jax

        def mesh_of(sizes: tuple[int, ...], names: tuple[str, ...]) -> Any:
            return jax.make_mesh(sizes, names, axis_types=(jax.sharding.AxisType.Auto,) * len(names))

        made = trainers(count, mesh_of)
        for name, (state, step, batches) in ((name, made[name]) for name in names):
            results[name] = trained(step, state, batches)
    file.write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    _main()
