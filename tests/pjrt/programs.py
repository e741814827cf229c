"""Small programs of JAX as their authors would write them; run as a script, in a process of its own.

`python programs.py OUT.npz` keeps what each of them gives on the platform of JAX_PLATFORMS.
"""

import ctypes
import functools
import sys
import tempfile
import threading
import traceback

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback
from jax.experimental.layout import Format, Layout

from spmd.pjrt.structs import struct

PROGRAMS = {}
DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128"
SMALL = "int4 uint4 float8_e4m3fn float8_e5m2"
KEY = jax.random.key(0)


def program(function):
    PROGRAMS[function.__name__.removeprefix("_")] = function
    return function


def matrix(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@program
def dtypes():
    values = np.array([0, 1, 1, 2, 3])
    with jax.enable_x64(True):
        arrays = [jnp.asarray(values.astype(jnp.dtype(name))) for name in DTYPES.split()]
        return [jax.jit(lambda x: (x + x, x == x[::-1], x[1:4]))(array) for array in arrays]


@program
def small_dtypes():
    arrays = [jnp.asarray(np.array([0, 1, 1, 2, 3])).astype(jnp.dtype(name)) for name in SMALL.split()]
    return [(array.astype(jnp.float32), (array[:2] + array[1:3]).astype(jnp.float32)) for array in arrays]


@program
def x64():
    with jax.enable_x64(True):
        return jnp.sin(jnp.linspace(0, 1, 5)), jnp.arange(3) * 2**40


@program
def nothing():
    empty = jnp.zeros((0, 3))
    return empty + 1, empty.sum(), jnp.concatenate([empty, jnp.ones((2, 3))]), empty.T, jnp.sort(empty)


@program
def eager():
    x = jnp.arange(12.0).reshape(3, 4)
    return x.T, x[1], x[:, ::-1], x.at[1, 2].set(7), x @ x.T, x.sum(0), x > 3, x.astype(jnp.int32) // 2, x.mean(), -x


@program
def indexing():
    x = jnp.arange(20.0).reshape(4, 5)
    return x[jnp.array([3, 0, 0])], x[:, jnp.array([True, False, True, True, False])], jnp.take(x, 2, axis=1), x[-1, 1:]


@program
def updates():
    x = jnp.zeros((4, 5))
    return x.at[1].add(2.0), x.at[jnp.array([0, 0, 3]), 1].add(1.0), x.at[::2, 3].mul(2).at[0].max(1.0)


@program
def random_numbers():
    k1, k2 = jax.random.split(KEY)
    return (
        jax.random.uniform(k1, (7,)),
        jax.random.normal(k2, (3, 3)),
        jax.random.randint(k1, (5,), 0, 100),
        jax.random.permutation(k2, 10),
        jax.random.bernoulli(k1, 0.3, (9,)),
        jax.random.categorical(k2, jnp.zeros((4, 3))),
        jax.random.key_data(jax.random.fold_in(KEY, 3)),
    )


@program
def other_generators():
    return jax.random.uniform(jax.random.key(3, impl="rbg"), (5,)).shape, jax.random.gamma(KEY, 2.0, (3,))


@program
def gradients():
    w, x = matrix(4, 3), matrix(5, 4, seed=1)

    def loss(w):
        return jnp.mean(jax.nn.softmax(jnp.tanh(x @ w)) ** 2)

    return jax.value_and_grad(loss)(w), jax.jacfwd(jnp.sin)(w[0]), jax.hessian(lambda v: (v**3).sum())(w[1])


@program
def scans():
    def body(carry, x):
        return carry * 0.5 + x, carry

    return lax.scan(body, jnp.float32(0), jnp.arange(6.0)), lax.associative_scan(jnp.add, jnp.arange(7))


@program
def loops():
    return (
        lax.while_loop(lambda c: c[0] < 10, lambda c: (c[0] + 1, c[1] * 1.5), (0, 1.0)),
        lax.fori_loop(0, 5, lambda i, x: x + i, jnp.int32(1)),
        lax.map(lambda x: x**2, jnp.arange(4.0)),
    )


@program
def branches():
    f = jax.jit(lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, lambda v: v * 2], x))
    return f(0, 1.0), f(2, 1.0), lax.cond(True, lambda x: x + 1, lambda x: x - 1, 3.0)


@program
def batched():
    return jax.vmap(jnp.dot)(matrix(3, 4), matrix(3, 4, seed=1)), jax.vmap(jnp.sort)(matrix(3, 4))


@program
def solvers():
    a = matrix(4, 4) + 4 * np.eye(4, dtype=np.float32)
    symmetric = a @ a.T
    eigenvalues = jnp.linalg.eigh(symmetric)[0]
    q, r = jnp.linalg.qr(a)
    return (
        jnp.linalg.solve(a, a[0]), jnp.linalg.inv(a), jnp.linalg.det(a), jnp.linalg.cholesky(symmetric), eigenvalues,
        jnp.linalg.svd(a, compute_uv=False), q @ r, jax.scipy.linalg.solve_triangular(a, a[0], lower=True),
        jnp.sort(jnp.abs(jnp.linalg.eigvals(a))), jax.scipy.linalg.lu(a)[2],
    )  # fmt: skip


@program
def transforms():
    x = matrix(8)
    return jnp.fft.fft(x), jnp.fft.irfft(jnp.fft.rfft(x)), jnp.fft.fft2(matrix(4, 4)), jnp.fft.fftshift(x)


@program
def convolutions():
    x, k = matrix(2, 3, 8, 8), matrix(4, 3, 3, 3, seed=1)
    pooled = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return lax.conv(x, k, (1, 1), "SAME"), pooled, jnp.convolve(matrix(5), matrix(3))


@program
def sorting():
    x = matrix(6, 5)
    return jnp.sort(x), jnp.argsort(x, 0), lax.top_k(x, 2), jnp.unique(jnp.array([3, 1, 3])), jnp.median(x), x.argmax(1)


@program
def special_functions():
    x = jnp.linspace(0.1, 3, 7)
    return jax.scipy.special.gammaln(x), jax.lax.erf(x), jax.scipy.special.i0(x), jax.nn.gelu(x), jnp.cbrt(x)


@program
def donation():
    f = jax.jit(lambda x: x + 1, donate_argnums=0)
    x = jnp.zeros(1000)
    y = f(x)
    seen = np.asarray(y)
    z = f(y)  # y's memory has a reader: it is not written over
    return x.is_deleted(), z[:3], seen[:3]


@program
def donation_of_numpy():
    given = np.zeros(1000, np.float32)
    x = jax.device_put(given)
    y = jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    return given[:3], y[:3]


@program
def same_result_twice():
    f = jax.jit(lambda x, y: (x, x, y + 1, y))
    a, b, c, d = f(jnp.arange(3.0), jnp.ones(2))
    g = jax.jit(lambda v: v * 2, donate_argnums=0)
    return g(a), b, g(d), c


@program
def shared_memory():
    given = np.arange(1000, dtype=np.float32)
    x = jax.device_put(given)
    seen = np.asarray(x + 0)
    return seen[:3], seen.flags.writeable, np.asarray(jnp.asarray(given[::-2]))[:3], np.asarray(x)[-2:]


@program
def layouts():
    x = jnp.asarray(matrix(3, 4))
    f = jax.jit(lambda x: (x.T, x.reshape(2, 6), jnp.broadcast_to(x, (2, 3, 4)), x[:, 1:3]))
    return [np.asarray(part).tobytes() and np.asarray(part) for part in f(x)]


@program
def declared_layouts():
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    column_major, computed = Format(Layout((1, 0)), device), Format(Layout.AUTO)
    x = jax.device_put(matrix(3, 4), column_major)
    moved = jax.jit(lambda x: x * 2, in_shardings=column_major, out_shardings=column_major, donate_argnums=0)(x)
    view = jax.jit(lambda x: x.transpose(1, 2, 0), out_shardings=computed)(matrix(2, 3, 4))
    orders = [array.format.layout.major_to_minor for array in (moved, view, jnp.asarray(moved))]
    return moved, view, moved + 1, np.asarray(moved).strides, np.from_dlpack(view), orders, x.is_deleted()


@program
def options():
    f = jax.jit(lambda x: x + 1)
    known = jax.jit(lambda x: x + 1, compiler_options={"xla_embed_ir_in_executable": True})(1.0)
    try:
        f.lower(1.0).compile(compiler_options={"unknown": 1})
    except jax.errors.JaxRuntimeError as error:
        return known, "No such compile option: 'unknown'" in str(error)


@program
def strided_numpy():
    x = np.arange(12).reshape(3, 4)
    given = x.astype(jnp.float8_e5m2).T, x[::-1, ::2], (x > 5).T, np.broadcast_to(np.float32(3), (2, 3))
    return [jax.device_put(array).astype(jnp.float32) for array in given]


@program
def analysis():
    f = jax.jit(lambda x, w: lax.fori_loop(0, 3, lambda _, x: x @ w, x), donate_argnums=0)
    compiled = f.lower(np.ones((64, 32), np.float32), np.ones((32, 32), np.float32)).compile()
    memory, costs = compiled.memory_analysis(), compiled.cost_analysis()
    sizes = memory.argument_size_in_bytes, memory.output_size_in_bytes, memory.alias_size_in_bytes
    turns = 1 if "spmd" in jax.devices()[0].client.platform_version else 3  # XLA counts a loop once
    rest = memory.temp_size_in_bytes < 10000 and memory.host_temp_size_in_bytes == 0 and costs["bytes accessed"] > 12288
    return sizes, rest, round(turns * costs["flops"] / (3 * 2 * 64 * 32 * 32), 2)


def scaled(address):
    """A handler of the typed interface: y = x * by + sum(shifts), unless `to` is "fail"."""
    frame = struct("FfiCallFrame").from_address(address)
    if frame.extension_start:  # it is to say which version it is of: 0.3
        metadata = ctypes.c_size_t.from_address(frame.extension_start + 24).value
        (ctypes.c_int32 * 2).from_address(metadata + 24)[:] = 0, 3
        return 0
    at = [(ctypes.c_size_t * frame.num_attrs).from_address(place) for place in (frame.attr_names, frame.attrs)]
    spans = [struct("FfiSpan").from_address(name) for name in at[0]]
    by, shifts, to = at[1]
    assert [ctypes.string_at(span.data, span.size) for span in spans] == [b"by", b"shifts", b"to"]
    by, shifts = (struct(name).from_address(place) for name, place in (("FfiScalar", by), ("FfiArray", shifts)))
    assert (by.dtype, shifts.dtype, shifts.size) == (11, 5, 2)
    word = struct("FfiSpan").from_address(to)
    if ctypes.string_at(word.data, word.size) == b"fail":
        return create_error(frame.api, 3, b"it is to fail")
    x, y = (
        struct("FfiBuffer").from_address(ctypes.c_size_t.from_address(places).value)
        for places in (frame.args, frame.rets)
    )
    shape = tuple((ctypes.c_int64 * x.rank).from_address(x.dims))
    assert (x.dtype, y.dtype, y.rank) == (11, 11, x.rank)
    source, target = ((ctypes.c_float * int(np.prod(shape))).from_address(buffer.data) for buffer in (x, y))
    factor, shift = ctypes.c_float.from_address(by.value).value, sum((ctypes.c_int64 * 2).from_address(shifts.data))
    target[:] = [value * factor + shift for value in source]
    return 0


def create_error(api, code, text):
    args = struct("FfiError_Create")(ctypes.sizeof(struct("FfiError_Create")), 0, 0, code)
    memory = ctypes.create_string_buffer(text)
    args.message = ctypes.addressof(memory)
    function = ctypes.c_size_t.from_address(api + ctypes.sizeof(struct("FfiApi"))).value
    return ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p)(function)(ctypes.addressof(args))


HANDLER = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_size_t)(scaled)


@program
def users_handlers():
    jax.ffi.register_ffi_target("scaled", jax.ffi.pycapsule(HANDLER), platform="cpu")

    def call(x, to="go"):
        kind = jax.ShapeDtypeStruct(x.shape, x.dtype)
        function = jax.ffi.ffi_call("scaled", kind, vmap_method="sequential", input_output_aliases={0: 0})
        return function(x, by=np.float32(2), shifts=np.array([1, 2]), to=to)

    x = matrix(2, 3)
    try:
        jax.block_until_ready(jax.jit(functools.partial(call, to="fail"))(x))
    except jax.errors.JaxRuntimeError as error:
        failed = str(error).startswith("INVALID_ARGUMENT") and "it is to fail" in str(error)
    return jax.jit(call)(x), jax.vmap(call)(x), jax.jit(lambda x: (x, call(x + 1)))(x), failed


@program
def compiled_text():
    """A call of LAPACK without a matrix can be compiled; the lines of the source are in the text."""
    lowered = jax.jit(lambda: jax.ffi.ffi_call("lapack_sgetrf_ffi", (), has_side_effect=True)()).lower()
    text = lowered.compile().as_text()
    return "lapack_sgetrf_ffi" in text, "jit(<lambda>)/ffi_call" in text


@program
def ahead_of_time():
    compiled = jax.jit(lambda x, y: x @ y).lower(matrix(2, 3), matrix(3, 4)).compile()
    memory = compiled.memory_analysis()
    return compiled(matrix(2, 3), matrix(3, 4)), memory.argument_size_in_bytes, memory.output_size_in_bytes


@program
def exported():
    data = jax.export.export(jax.jit(lambda x: jnp.cos(x) * 2))(jax.ShapeDtypeStruct((3,), jnp.float32)).serialize()
    return jax.export.deserialize(data).call(jnp.arange(3.0))


@program
def serialized():
    from jax.experimental import serialize_executable as se

    compiled = jax.jit(lambda x: x * 3).lower(jnp.arange(4.0)).compile()
    return se.deserialize_and_load(*se.serialize(compiled))(jnp.arange(4.0))


@program
def threads():
    f, found = jax.jit(lambda x: (jnp.sin(x) * x).sum()), {}

    def work(number):
        found[number] = [f(jnp.full(50, float(number + turn))) for turn in range(20)]

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return [found[number] for number in range(4)]


@program
def pure_callbacks():
    @jax.jit
    def f(x):
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.pure_callback(lambda v: np.sin(v), shape, x, vmap_method="sequential") + 1

    return f(jnp.arange(3.0)), jax.vmap(f)(matrix(2, 3)), f(jnp.arange(2.0))


@program
def ordered_callbacks():
    seen = []

    @jax.jit
    def f(x):
        for turn in range(3):
            io_callback(lambda v, turn=turn: seen.append(turn), None, x, ordered=True)
        return io_callback(lambda v: v * 2, jax.ShapeDtypeStruct((), jnp.float32), x, ordered=True)

    return f(jnp.float32(4)), f(jnp.float32(5)), (jax.effects_barrier(), seen)[1]


@program
def debug_callbacks():
    seen = []

    @jax.jit
    def f(x):
        jax.debug.callback(lambda v: seen.append(float(v)), x.sum())
        jax.debug.print("x = {x}", x=x, ordered=True)
        return x + 1

    y = f(jnp.arange(3.0))
    jax.effects_barrier()
    return y, seen


@program
def callbacks_in_loops():
    def body(i, x):
        shape = jax.ShapeDtypeStruct((), jnp.float32)
        return jax.pure_callback(lambda v: np.float32(v + 1), shape, x, vmap_method="sequential")

    return jax.jit(lambda x: lax.fori_loop(0, 4, body, x))(jnp.float32(0))


@program
def errors():
    def raising(v):
        raise ValueError("on purpose")

    f = jax.jit(lambda x: jax.pure_callback(raising, jax.ShapeDtypeStruct((), jnp.float32), x))
    try:
        f(jnp.float32(1)).block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        return "on purpose" in str(error)
    return False


@program
def deleted():
    x = jnp.arange(3.0) + 0
    x.delete()
    try:
        return np.asarray(x)
    except RuntimeError as error:
        return "deleted" in str(error)


@program
def memories():
    device = jax.devices()[0]
    sharding = jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
    x = jax.device_put(jnp.arange(3.0), sharding)
    y = jax.device_put(x, jax.sharding.SingleDeviceSharding(device, memory_kind="device"))
    return (
        x.sharding.memory_kind,
        y.sharding.memory_kind,
        y + 1,
        [memory.kind for memory in device.addressable_memories()],
    )


@program
def shardings_of_one_device():
    mesh = jax.make_mesh((1,), ("x",))
    sharding = jax.NamedSharding(mesh, jax.P("x"))
    x = jax.device_put(jnp.arange(4.0), sharding)
    f = jax.jit(lambda x: x * 2, out_shardings=sharding)
    shard_mapped = jax.shard_map(lambda v: lax.psum(v, "x"), mesh=mesh, in_specs=jax.P("x"), out_specs=jax.P())
    return f(x), jax.jit(shard_mapped)(x), jax.pmap(lambda v: lax.psum(v, "i"), axis_name="i")(jnp.ones((1, 3)))


@program
def dlpack():
    x = jnp.arange(6.0).reshape(2, 3) + 1
    return np.from_dlpack(x), jnp.from_dlpack(np.arange(4.0, dtype=np.float32)) + 1


@program
def many_results():
    return jax.jit(lambda x: tuple(x + i for i in range(17)))(jnp.float32(1))


@program
def many_dimensions():
    return jax.jit(lambda x: x + 1)(jnp.zeros((1,) * 12)).shape


@program
def networks():
    keys = jax.random.split(KEY, 3)
    w = [jax.random.normal(key, shape) * 0.3 for key, shape in zip(keys, [(4, 8), (8, 8), (8, 2)], strict=True)]

    def loss(w, x, y):
        for layer in w[:-1]:
            x = jax.nn.relu(x @ layer)
        return -(jax.nn.log_softmax(x @ w[-1]) * jax.nn.one_hot(y, 2)).sum(-1).mean()

    @functools.partial(jax.jit, donate_argnums=0)
    def step(w, x, y):
        value, gradient = jax.value_and_grad(loss)(w, x, y)
        return jax.tree.map(lambda a, b: a - 0.1 * b, w, gradient), value

    x, y, values = matrix(16, 4), np.arange(16) % 2, []
    for _ in range(5):
        w, value = step(w, x, y)
        values.append(value)
    return w, values


@program
def profiling():
    with tempfile.TemporaryDirectory() as folder, jax.profiler.trace(folder):
        return jnp.arange(3) + 1


@program
def text_of_compiled():
    return "add" in jax.jit(lambda x: x + 1).lower(1.0).compile().as_text()


@program
def live_arrays():
    before = len(jax.live_arrays())
    x = jnp.arange(5) + 1
    return (
        len(jax.live_arrays()) - before,
        x.device.platform,
        x.on_device_size_in_bytes(),
        x.unsafe_buffer_pointer() != 0,
    )


def main(path):
    kept = {}
    for name, function in PROGRAMS.items():
        try:
            leaves = jax.tree.leaves(function())
        except Exception:
            kept[f"{name}/error"] = np.array(traceback.format_exc())
            continue
        for number, leaf in enumerate(leaves):
            array = np.asarray(leaf)
            wide = {"bfloat16": np.float32}.get(array.dtype.name, array.dtype)
            kept[f"{name}/{number}/{array.dtype}"] = array.astype(wide)
    np.savez(path, **kept)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        PROGRAMS = {name: PROGRAMS[name] for name in sys.argv[2:]}
    main(sys.argv[1])
