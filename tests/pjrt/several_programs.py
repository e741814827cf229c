"""Programs for several devices, as their authors would write them: of one process or on ranks; run as a script.

`python several_programs.py OUT.npz COUNT` keeps what each of them gives for COUNT devices, on the platform of
JAX_PLATFORMS. Of several processes each keeps the same, in OUT.npz.RANK.
"""

import sys
import traceback

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, shard_map
from jax.experimental import multihost_utils
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def values(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def mesh_of(count, *names, order=None):
    devices = np.array(jax.devices()[:count])[slice(None) if order is None else order]
    shape = (count,) if len(names) == 1 else (2, count // 2)
    return jax.sharding.Mesh(devices.reshape(shape), names)


def placed(whole, sharding):
    """A global array, of which each process gives its parts."""
    return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])


def whole(tree):
    """The global arrays of a tree, on every process."""
    return jax.tree.map(lambda x: multihost_utils.process_allgather(x, tiled=True), tree)


@program
def cut_arguments(count):
    mesh = mesh_of(count, "x")
    x, w = placed(values(4 * count, 6), NamedSharding(mesh, P("x"))), placed(values(6, 3), NamedSharding(mesh, P()))
    return whole(jax.jit(lambda x, w: jnp.tanh(x @ w))(x, w)), whole(jax.jit(lambda x: x.sum(0))(x))


@program
def results_without_equal_blocks(count):
    mesh = mesh_of(count, "x", "y")
    x = placed(values(count, count), NamedSharding(mesh, P("x", "y")))
    y = placed(values(2 * count, 3), NamedSharding(mesh, P(("x", "y"))))
    found = jax.jit(lambda x, y: (x[1:], x[1:, 1:], jnp.pad(x, ((1, 0), (0, 2))), y[:2], y[:6], y[:5]))(x, y)
    return whole(found), [part.sharding.is_fully_replicated for part in found]


@program
def devices_of_others(count):
    """Each process runs what is for the last two devices, which some of the processes have none of."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[-2:]), ("x",))
    x = jax.device_put(values(4, 3), NamedSharding(mesh, P("x")))
    y = jax.jit(lambda x: x @ x.T + 1)(x).astype(jnp.bfloat16) + x.sum()
    own = [np.asarray(shard.data, np.float32) for shard in y.addressable_shards]
    return y.sharding.spec == P("x"), multihost_utils.process_allgather(np.float32(sum(map(np.sum, own)))).sum()


@program
def partial_sums(count):
    """Results that are summed later: parts of a sum, and beside them copies of the same part."""
    mesh = jax.make_mesh((2, count // 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    with jax.set_mesh(mesh):
        x = placed(values(4, count), NamedSharding(mesh, P("x", "y")))
        parts = []
        for cut in ("y", None):
            kept = P(cut, unreduced={"x"})
            function = jax.jit(lambda x, kept=kept: jnp.einsum("ab->b", x, out_sharding=kept))
            parts.append(function(jax.reshard(x, P("x", cut))))
        sums = [jax.jit(lambda y: jax.reshard(y, P()))(part) for part in parts]
        return whole(sums), [part.sharding.spec.unreduced == {"x"} for part in parts]


@program
def no_results(count):
    mesh = mesh_of(count, "x")
    x = placed(values(count), NamedSharding(mesh, P("x")))
    return jax.jit(lambda x: ())(x), jax.jit(lambda x: None, in_shardings=NamedSharding(mesh, P("x")))(x) is None


@program
def given_results(count):
    mesh = mesh_of(count, "x")
    x = placed(values(2 * count, 2 * count), NamedSharding(mesh, P("x")))
    f = jax.jit(lambda x: (x.T @ x, x + 1), out_shardings=(NamedSharding(mesh, P()), NamedSharding(mesh, P(None, "x"))))
    a, b = f(x)
    return whole(a), whole(b), a.is_fully_replicated, b.sharding.spec == P(None, "x")


@program
def two_axes(count):
    mesh = mesh_of(count, "x", "y")
    x = placed(values(count, 6, 2 * count), NamedSharding(mesh, P("x", None, "y")))
    y = jax.jit(lambda x: jnp.einsum("abc,dbc->ad", x, x))(x)
    return whole(y), whole(jax.jit(lambda x: jnp.flip(x, 0).sum(-1))(x))


@program
def mapped(count):
    mesh = mesh_of(count, "x")

    @jax.jit
    @lambda f: shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=(P(), P("x"), P("x"), P("x")))
    def f(x):
        around = [(i, (i + 1) % count) for i in range(count)]
        gathered = lax.all_gather(x, "x", tiled=True)
        scattered = lax.psum_scatter(gathered, "x", tiled=True)
        return lax.psum(x, "x"), lax.ppermute(x, "x", around), scattered, x * lax.axis_index("x")

    return whole(f(placed(values(count, 5), NamedSharding(mesh, P("x")))))


@program
def exchanged(count):
    mesh = mesh_of(count, "x")
    f = shard_map(lambda x: lax.all_to_all(x, "x", 1, 0, tiled=True), mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    return whole(jax.jit(f)(placed(values(count, 2 * count), NamedSharding(mesh, P("x")))))


@program
def in_reverse(count):
    """A mesh whose devices are in another order: blocks lie elsewhere, results do not."""
    mesh = mesh_of(count, "x", order=slice(None, None, -1))
    x = placed(values(count, 3), NamedSharding(mesh, P("x")))
    f = shard_map(lambda x: lax.cumsum(lax.all_gather(x, "x", tiled=True))[:1] * lax.axis_index("x"), mesh=mesh,
                  in_specs=P("x"), out_specs=P("x"))  # fmt: skip
    own = [np.asarray(shard.data) for shard in x.addressable_shards if shard.device == jax.devices()[0]]
    return (
        whole(jax.jit(f)(x)),
        whole(jax.jit(lambda x: x * 2)(x)),
        whole(x),
        own if jax.process_count() == 1 else [values(count, 3)[-1:]],
    )


@program
def of_some(count):
    """A mesh of some devices; of a process that has none of them there is nothing to do."""
    devices = [jax.devices()[i] for i in (count - 1, 0)]
    if not any(device.process_index == jax.process_index() for device in devices):
        return values(4, 2).sum(0), values(4, 2) + 1
    mesh = jax.sharding.Mesh(np.array(devices), ("x",))
    x = placed(values(4, 2), NamedSharding(mesh, P("x")))
    total = jax.jit(lambda x: x.sum(0), out_shardings=NamedSharding(mesh, P()))(x)
    spread = jax.jit(lambda x: x + 1, out_shardings=NamedSharding(mesh, P()))(x)
    return np.asarray(total.addressable_data(0)), np.asarray(spread.addressable_data(0))


@program
def on_one_device(count):
    """What is on one device is computed there, whatever the other processes do."""
    device = jax.local_devices()[-1]
    x = jax.device_put(jnp.arange(4.0), device)
    y = jax.jit(lambda x: x * 2)(x)
    return y, y.device == device, jnp.arange(3) + 1


@program
def counts(count):
    local = count // jax.process_count()
    ids = [device.id for device in jax.devices()]
    return len(jax.devices()) == count, len(jax.local_devices()) == local, ids == list(range(count))


@program
def donated(count):
    mesh = mesh_of(count, "x")
    x = placed(values(count, 4), NamedSharding(mesh, P("x")))
    y = jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    return x.is_deleted(), whole(y)


@program
def constrained(count):
    mesh = mesh_of(count, "x")

    @jax.jit
    def f(x):
        y = lax.with_sharding_constraint(x * 2, NamedSharding(mesh, P(None, "x")))
        return lax.scan(lambda c, row: (c + row, c.sum()), jnp.zeros(x.shape[1]), y)

    return whole(f(placed(values(count, count), NamedSharding(mesh, P("x")))))


@program
def trained(count):
    mesh = mesh_of(count, "data")
    x, y = (placed(values(4 * count, n, seed=n), NamedSharding(mesh, P("data"))) for n in (5, 2))
    w = [placed(values(*shape, seed=9), NamedSharding(mesh, P())) for shape in ((5, 8), (8, 2))]

    def loss(w, x, y):
        return ((jnp.tanh(x @ w[0]) @ w[1] - y) ** 2).mean()

    @jax.jit
    def step(w, x, y):
        value, gradient = jax.value_and_grad(loss)(w, x, y)
        return jax.tree.map(lambda a, b: a - 0.1 * b, w, gradient), value

    losses = []
    for _ in range(3):
        w, value = step(w, x, y)
        losses.append(value)
    return whole(w), [np.asarray(value) for value in losses]


@program
def from_local_data(count):
    mesh = mesh_of(count, "x")
    sharding = NamedSharding(mesh, P("x"))
    rows = 2 * count // jax.process_count()
    own = values(2 * count, 3)[rows * jax.process_index() :][:rows]
    x = jax.make_array_from_process_local_data(sharding, own)
    return x.shape, whole(jax.jit(lambda x: x - x.mean(0))(x))


@program
def hosts(count):
    multihost_utils.sync_global_devices("here")
    first = multihost_utils.broadcast_one_to_all(np.arange(3, dtype=np.int32) + np.int32(jax.process_index()))
    return first, multihost_utils.process_allgather(np.float32(1.0)).sum() == jax.process_count()


@program
def constants(count):
    """A program without arguments, whose results are cut."""
    mesh = mesh_of(count, "x")
    x = jax.jit(lambda: jnp.arange(2.0 * count), out_shardings=NamedSharding(mesh, P("x")))()
    key = jax.random.key(3)
    noise = jax.jit(lambda k: jax.random.normal(k, (count, 2)), out_shardings=NamedSharding(mesh, P("x")))(key)
    return whole(x), whole(noise)


@program
def put(count):
    mesh = mesh_of(count, "x")
    x = jax.device_put(values(count, 2), NamedSharding(mesh, P("x")))
    y = jax.device_put(x, NamedSharding(mesh, P()))
    return whole(x), np.asarray(y.addressable_data(0))


def main(path, count):
    if jax.process_count() > 1:
        path = f"{path}.{jax.process_index()}.npz"
    kept = {}
    for name, function in PROGRAMS.items():
        try:
            leaves = jax.tree.leaves(function(count))
        except Exception:
            kept[f"{name}/error"] = np.array(traceback.format_exc())
            continue
        for number, leaf in enumerate(leaves):
            array = np.asarray(leaf)
            kept[f"{name}/{number}/{array.dtype}"] = array
    np.savez(path, **kept)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        PROGRAMS = {name: PROGRAMS[name] for name in sys.argv[3:]}
    main(sys.argv[1], int(sys.argv[2]))
