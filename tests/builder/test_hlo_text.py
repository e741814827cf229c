"""HLO text: what XLA prints loads and runs as XLA runs it; what is printed here, XLA reads and runs alike."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import spmd
from collectives.grid import ProcessGrid
from spmd.builder import Shape, XlaBuilder, ops
from spmd.builder.hlo import print_hlo
from spmd.errors import ParseError, SpmdError
from spmd.types import TensorType
from tests.builder.support import build, equal, f32, scalars

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402
from jax._src.lib import xla_client  # noqa: E402

X = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
IMAGE = np.random.default_rng(1).normal(size=(2, 5, 6, 4)).astype(np.float32)
CUBE = np.random.default_rng(2).normal(size=(2, 3, 3)).astype(np.float32)
ROWS = np.array([1, 2], np.int32)


def model(x: Any) -> Any:
    loop = lax.fori_loop(0, 10, lambda i, c: c * 2 + i, jnp.ones((4,)))
    return (
        jnp.max(jnp.sin(x) @ x.T, axis=0) + loop,
        jnp.argmax(x, 1),
        lax.cond(x[0, 0] > 0, lambda a: a * 2, lambda a: a - 1, x),
        lax.switch(x[0, 1].astype(int), [lambda: 1, lambda: 2, lambda: 3]),
        lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 2), (0, x)),
        lax.scan(lambda c, a: (c * 0.5 + a, c.sum()), x[0], x),
    )


def indexing(x: Any, i: Any) -> Any:
    return (
        x[i],
        x.at[i].add(1.0),
        jax.vmap(lambda row, j: row[j])(x[:2], i),
        lax.dynamic_slice(x, (1, 1), (2, 2)),
        lax.dynamic_update_slice(x, x[:2, :2], (0, 1)),
        lax.sort(x, dimension=1),
        lax.sort((x, lax.iota(np.int32, 24).reshape(4, 6)), dimension=0, num_keys=1),
        lax.top_k(x, 2),
        jnp.array([1.5, np.nan, -np.inf]),
        jnp.array([[True, False]]),
        jnp.array([1 + 2j]),
    )


def moving(x: Any) -> Any:
    zero = np.float32(0)
    return (
        lax.pad(x, zero, ((1, 0, 1), (0, -1, 0))),
        lax.reduce_precision(x, 5, 7),
        lax.rev(x, (0,)),
        lax.clamp(zero, x, np.float32(1)),
        lax.optimization_barrier(x),
        lax.concatenate([x, x], 0),
        lax.slice(x, (0, 0), (4, 4), (2, 1)),
        lax.bitcast_convert_type(x, np.int8),
        x.T.reshape(3, 8),
        x.astype("bfloat16") * 2,
        x.astype("float8_e4m3fn"),
    )


def windows(x: Any) -> Any:
    zero = np.float32(0)
    pooled = lambda x: lax.reduce_window(x, -np.inf, lax.max, (2, 2), (2, 2), "VALID").sum()  # noqa: E731
    spread = lax.reduce_window(x, zero, lax.add, (2, 3), (1, 2), "SAME", base_dilation=(2, 1), window_dilation=(1, 2))
    return jax.grad(pooled)(x), spread, lax.cumsum(x), lax.cummax(x, 1)


def convolution(x: Any, w: Any) -> Any:
    numbers = ("NHWC", "HWIO", "NWHC")
    plain = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=2)
    pads = [(1, 0), (-1, 2)]
    kwargs: dict[str, Any] = {"lhs_dilation": (2, 1), "rhs_dilation": (1, 2), "dimension_numbers": numbers}
    return plain, lax.conv_general_dilated(x, w, (2, 1), pads, feature_group_count=2, **kwargs)


def mathematics(x: Any) -> Any:
    functions = [
        jnp.exp, jnp.expm1, jnp.log1p, jnp.tanh, jnp.cos, jnp.sin, jnp.tan, lax.rsqrt, jnp.cbrt, lax.logistic, jnp.sign,
        jnp.floor, jnp.ceil, jnp.round, lax.round, lax.erf, jnp.arctan, jnp.sinh, jnp.arcsin, lax.is_finite,
    ]  # fmt: skip
    z = lax.complex(x, x + 1)
    return [f(x) for f in functions] + [x**2.5, jnp.arctan2(x, x + 1), x % 1.5, jnp.exp(z), jnp.abs(z), jnp.imag(z)]


def integers(x: Any) -> Any:
    three = np.int32(3)
    return (
        x << 2, x >> 1, lax.shift_right_logical(x, np.int32(1)), lax.population_count(x), lax.clz(x), lax.rem(x, three),
        lax.div(x, three), x // 3, ~x, x & 7, x | 8, x ^ 5,
    )  # fmt: skip


def products(x: Any) -> Any:
    return (
        lax.dot_general(x, x, (((1,), (2,)), ((0,), (0,)))),
        jnp.einsum("bij,bkj->kib", x, x),
        lax.dot(x[0], x[1].T, precision="highest"),
        jnp.fft.rfft(x),
        jnp.fft.irfft(jnp.fft.rfft(x), 3),
    )


def random(key: Any) -> Any:
    return jax.random.normal(key, (3,)), jax.random.bits(key, (4,)), jax.random.permutation(key, 5)


def training(w: Any, x: Any) -> Any:
    return jax.grad(lambda w: -jnp.mean(jax.nn.log_softmax(jnp.tanh(x @ w))[:, 0]))(w)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "model": (model, (np.abs(X),)),
    "indexing": (indexing, (X, ROWS)),
    "moving": (moving, (X,)),
    "windows": (windows, (X,)),
    "convolution": (convolution, (IMAGE, IMAGE[0, :3, :2, :2][..., None].repeat(4, -1))),
    "mathematics": (mathematics, (np.abs(X) % 1,)),
    "integers": (integers, (np.arange(-5, 7, dtype=np.int32),)),
    "products": (products, (CUBE,)),
    "random": (random, (np.array([0, 7], np.uint32),)),
    "training": (training, (X.T[:, :3].copy(), X)),
}


def close(got: Any, want: Any) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_allclose(got.astype(np.complex128), want.astype(np.complex128), rtol=3e-5, atol=3e-6)


def run_by_xla(text: str, *arrays: Any) -> list[Any]:
    """The results of HLO text by XLA itself."""
    module = xla_client.hlo.hlo_module_from_text(text)
    computation = xla_client.XlaComputation(module.as_serialized_hlo_module_proto())
    program = xla_client._xla.mlir.xla_computation_to_mlir_module(computation)
    devices = jax.devices("cpu")[:1]
    loaded = devices[0].client.compile_and_load(program, xla_client.DeviceList(tuple(devices)))
    results = loaded.execute_sharded([jax.device_put(array, devices[0]) for array in arrays])
    return [np.asarray(shards[0]) for shards in results.disassemble_into_single_device_arrays()]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_xla_prints_runs_as_xla_runs_it(name: str) -> None:
    function, arguments = PROGRAMS[name]
    lowered = jax.jit(function).lower(*arguments)
    text = lowered.compiler_ir("hlo").as_hlo_text(print_large_constants=True)
    want = jax.tree.leaves(lowered.compile()(*arguments))
    module = spmd.parse(text, f"{name}.hlo")
    got = spmd.compile(module)(*arguments)
    for one, two in zip(got, want, strict=True):
        close(one, two)
    printed = print_hlo(module, name)
    for one, two in zip(spmd.compile(spmd.parse(printed))(*arguments), got, strict=True):
        equal(one, two)
    for one, two in zip(run_by_xla(printed, *arguments), want, strict=True):
        close(one, two)


def test_the_builders_text_runs_in_xla() -> None:
    def body(b: Any, x: Any, i: Any) -> Any:
        add = scalars("add", ["f32", "f32"], ops.Add)
        state = Shape("(s32[], f32[3])")
        condition = build(lambda _, t: t[0] < 3, state, name="condition")
        step = build(lambda _, t: ops.Tuple([t[0] + 1, t[1] * 2.0]), state, name="step")
        looped = ops.While(condition, step, ops.Tuple([i, x]))
        branch = build(lambda _, x: x + 1.0, Shape("f32[3]"), name="branch")
        chosen = ops.Conditional(i, [branch, branch], [x, looped[1]])
        total = ops.Reduce(chosen, b.ConstantR0(0.5), add, [0])
        return ops.Tuple(
            [total, ops.Call(branch, chosen), ops.TopK(x, 2, False)[1], ops.BroadcastInDim(x[:1], [2, 3], [1])]
        )

    built = build(body, f32([0] * 3), np.int32(0))
    arguments = f32([3, 1, 2]), np.int32(1)
    want = spmd.compile(built.to_stablehlo())(*arguments)
    for one, two in zip(run_by_xla(built.as_hlo_text(), *arguments), want, strict=True):
        equal(one, two)


HEADER = "HloModule m, entry_computation_layout={(f32[2]{0})->f32[2]{0}}\n\n"


def run_text(text: str, *arrays: Any) -> Any:
    return spmd.compile(spmd.parse(text, "m.hlo"))(*arrays)


def test_every_spelling_of_an_instruction() -> None:
    """Percent signs, typed operands, signatures, comments, tiles, metadata, a root that is not last."""
    text = """// a comment
HloModule m, is_scheduled=true, entry_computation_layout={(f32[2]{0:T(128)})->f32[2]{0}}

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1), metadata={op_name="a {weird, \\"name\\""}
  ROOT %sum = f32[] add(f32[] %x, f32[] %y)
}

ENTRY %main (p: f32[2]) -> (f32[2], /*index=1*/f32[]) {
  %p = f32[2]{0:T(128)} parameter(0), sharding={replicated}
  %zero = f32[] constant(0)
  %c = f32[2]{0} constant({1, -2.5e1})
  ROOT %out = (f32[2]{0}, f32[]) tuple(%q, %total)
}
"""
    with pytest.raises(ParseError, match=r"m\.hlo:14:8: tuple: operand q is not defined before"):
        spmd.parse(text, "m.hlo")
    text = text.replace("  ROOT %out", "  %q = f32[2]{0} multiply(f32[2]{0} %p, %c)\n"
                        "  %total = f32[] reduce(%q, %zero), dimensions={0}, to_apply=%add\n  ROOT %out")  # fmt: skip
    text = text.replace("(%q, %total)\n", "(%q, %total)\n  %unused = f32[2]{0} negate(%p)\n")
    equal(run_text(text, f32([3, 4])), [f32([3, -100]), f32(-97)])


def test_groups_counted_up_and_counts_of_the_header() -> None:
    text = """HloModule m, replica_count=4, num_partitions=2
add { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y) }
ENTRY e {
  p = f32[] parameter(0)
  a = f32[] all-reduce(p), replica_groups=[2,2]<=[2,2]T(1,0), to_apply=add
  ROOT b = f32[] all-reduce(a), channel_id=1, replica_groups=[1,8]<=[8], use_global_device_ids=true, to_apply=add
}
"""
    module = spmd.parse(text)
    reduces = [op for op in module.walk() if op.name == "stablehlo.all_reduce"]
    equal(reduces[0]["replica_groups"], [[0, 2], [1, 3]])
    assert reduces[1]["use_global_device_ids"]
    grid = ProcessGrid(4, 2)
    got = spmd.run_parallel(module, grid, [[f32(rank)] for rank in range(8)])
    equal([float(result[0]) for result in got], [2 * sum(range(8))] * 8)


def test_all_to_all_of_a_tuple_sends_element_i_to_replica_i() -> None:
    text = """HloModule m
ENTRY e {
  p = f32[1]{0} parameter(0)
  q = f32[1]{0} parameter(1)
  ROOT a = (f32[1]{0}, f32[1]{0}) all-to-all(p, q), replica_groups={{0,1}}
}
"""
    got = spmd.run_parallel(spmd.parse(text), ProcessGrid(2), [[f32([1]), f32([2])], [f32([3]), f32([4])]])
    equal(got[0], [f32([1]), f32([3])])
    equal(got[1], [f32([2]), f32([4])])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("ROOT y = f32[2]{0} frobnicate(x)", "frobnicate: HLO opcode that is not read"),
        ("ROOT y = f32[3]{0} negate(x)", r"negate: the text says f32\[3\].*gives f32\[2\]"),
        ("ROOT y = f32[2]{0} negate(x), strange=1", "attribute strange is not understood"),
        ("ROOT y = f32[2]{0} add(x)", "missing 1 required positional argument: 'rhs'"),
        ("ROOT y = f32[2]{0} negate(x", r"expected , or \) behind an operand"),
        ("ROOT y = f32[2{0} negate(x)", "expected an opcode"),
        ("ROOT y = g32[2]{0} negate(x)", "no shape"),
        ("ROOT y = f32[2]{0} = negate(x)", "expected an opcode"),
        ("ROOT = f32[2]{0} negate(x)", "expected an instruction"),
        ("x = f32[2]{0} negate(x)", "x is defined twice"),
        ("ROOT y = f32[2]{0} constant({1, 2, 3})", "3 values"),
        ("ROOT y = f32[2]{0} constant({1, two})", "constant"),
        ("ROOT y = f32[1]{0} slice(x), slice={[0:3]}", "Slice: argument limit_indices"),
        ("ROOT y = f32[1]{0} slice(x), slice={[0]}", "slice is start:limit"),
        ("ROOT y = f32[2]{0} parameter(0)", "parameter 0 is defined twice"),
        ("ROOT y = f32[2]{0} parameter(-1)", "must not be negative, got -1"),
        ("ROOT y = f32[2]{0} all-to-all(x), dimensions={0}, replica_groups=mesh['a'=1000000,'b'=2] {'b'}", "at most"),
        ("ROOT y = f32[4]{0} concatenate(x, x), dimensions={}", "dimensions is one dimension here"),
        ("ROOT y = s32[1]{0} constant({99999999999999999999})", "too large"),
        ("ROOT y = f32[2]{0} call(x), to_apply=other", "there is no computation other"),
        ("ROOT y = f32[2]{0} call(x), to_apply=main", "calls itself"),
        ("ROOT y = f32[1]{0} all-to-all(x), dimensions={0}", r"the text says f32\[1\], the operation gives f32\[2\]"),
        ("ROOT y = f32[2]{0} broadcast(x)", "attribute dimensions is missing"),
        ("ROOT y = f32[] reduce(x), dimensions={0}, to_apply=add", "there is no computation add"),
    ],
)  # fmt: skip
def test_errors_have_their_place(body: str, reason: str) -> None:
    with pytest.raises(SpmdError, match=rf"m\.hlo:\d+:\d+: .*{reason}"):
        spmd.parse(f"{HEADER}ENTRY main {{\n  x = f32[2]{{0}} parameter(0)\n  {body}\n}}\n", "m.hlo")


@pytest.mark.parametrize("text", ["HloModule m\n", "HloModule m\nfoo\n", "HloModule m\nENTRY e { }\n", "HloModule\n"])
def test_what_is_no_module_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        spmd.parse(text, "m.hlo")


def test_mutated_text_is_refused_with_its_place() -> None:
    text = jax.jit(model).lower(X).compiler_ir("hlo").as_hlo_text()
    tokens = re.findall(r"\w+|\s+|[^\w\s]", text)
    for seed in range(60):
        random, mutant = Random(seed), tokens[:]
        for _ in range(random.choice((1, 2, 3))):
            odd = random.choice(("-1", "9" * 20, "f32[", "\u00b2", '"', "{", "}", "nan", "", random.choice(tokens)))
            mutant[random.randrange(len(mutant))] = odd
        try:
            spmd.parse("".join(mutant), "m.hlo")
        except SpmdError as error:
            assert "m.hlo:" in str(error), f"seed {seed}"


def test_collectives_of_several_operands() -> None:
    text = """HloModule m
ENTRY e {
  p = f32[1]{0} parameter(0)
  q = f32[1,2]{1,0} parameter(1)
  g = (f32[2]{0}, f32[2,2]{1,0}) all-gather(p, q), replica_groups={{1,0}}, dimensions={0}
  c = (f32[1]{0}, f32[1,2]{1,0}) collective-permute(p, q), source_target_pairs={{0,1}}
  x = f32[2]{0} get-tuple-element(g), index=0
  y = f32[1]{0} get-tuple-element(c), index=0
  ROOT r = (f32[2]{0}, f32[1]{0}) tuple(x, y)
}
"""
    inputs = [[f32([n]), f32([[n, n]])] for n in (1, 2)]
    got = spmd.run_parallel(spmd.parse(text), ProcessGrid(2), inputs)
    equal(got[0], [f32([2, 1]), f32([0])])
    equal(got[1], [f32([2, 1]), f32([1])])


def test_fusions_are_calls() -> None:
    text = """HloModule m
fused { p = f32[2]{0} parameter(0)
  ROOT n = f32[2]{0} negate(p) }
ENTRY e {
  x = f32[2]{0} parameter(0)
  ROOT f = f32[2]{0} fusion(x), kind=kLoop, calls=fused
}
"""
    equal(run_text(text, f32([1, 2]))[0], [-1, -2])


@pytest.mark.parametrize("from_builder", [True, False])
def test_shardings_are_kept(from_builder: bool) -> None:
    """GSPMD's shardings of parameters, of values and of the root split the program over four processes."""
    if from_builder:
        b = XlaBuilder("sharded")
        b.set_sharding("{devices=[4,1]<=[4]}")
        x = b.Parameter(0, Shape("f32[8,3]"), "x")
        b.clear_sharding()
        w = b.Parameter(1, Shape("f32[3,2]"), "w")
        b.set_sharding("{devices=[4,1]<=[4]}")
        ops.CustomCall("Sharding", [ops.Dot(x, w)], Shape("f32[8,2]"))
        module = b.Build().to_stablehlo()
    else:
        module = spmd.parse("""HloModule sharded, num_partitions=4
ENTRY main {
  x = f32[8,3]{1,0} parameter(0), sharding={devices=[4,1]<=[4]}
  w = f32[3,2]{1,0} parameter(1), sharding={replicated}
  ROOT y = f32[8,2]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={devices=[4,1]<=[4]}
}
""")
    x_array, w_array = X[:, :3].repeat(2, 0), X[:3, :2]
    for program in (module, spmd.parse(print_hlo(module))):
        spmd.verify(program)
        executable = spmd.compile(program, ProcessGrid(num_partitions=4))
        assert [type.shape for type in executable.in_types if isinstance(type, TensorType)] == [(2, 3), (3, 2)]
        parts = [[x_array[2 * rank : 2 * rank + 2], w_array] for rank in range(4)]
        got = spmd.run_parallel([[executable] * 4], ProcessGrid(num_partitions=4), parts)
        whole = np.concatenate([result[0] for result in got]) if got[0][0].shape[0] == 2 else got[0][0]
        np.testing.assert_allclose(whole, x_array @ w_array, rtol=1e-6)


MANUAL = """HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["a"=2, "b"=2]>}}
add { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y) }
body {
  p = f32[2,3]{1,0} parameter(0)
  ROOT r = f32[2,3]{1,0} all-reduce(p), channel_id=1, replica_groups={{0,2},{1,3}}, use_global_device_ids=true, to_apply=add
}
ENTRY main {
  x = f32[4,6]{1,0} parameter(0)
  i = f32[2,3]{1,0} custom-call(x), custom_call_target="xla.sdy.GlobalToLocalShape", custom_call_has_side_effect=true, frontend_attributes={xla.sdy.in_shardings="#sdy.sharding_per_value<[<@mesh, [{\\"a\\"}, {\\"b\\"}]>]>",xla.sdy.manual_axes="#sdy<manual_axes{\\"a\\", \\"b\\"}>"}
  c = f32[2,3]{1,0} call(i), to_apply=body, frontend_attributes={inlineable="false"}
  ROOT o = f32[2,6]{1,0} custom-call(c), custom_call_target="xla.sdy.LocalToGlobalShape", custom_call_has_side_effect=true, frontend_attributes={xla.sdy.out_shardings="#sdy.sharding_per_value<[<@mesh, [{}, {\\"b\\"}]>]>",xla.sdy.manual_axes="#sdy<manual_axes{\\"a\\", \\"b\\"}>"}
}
"""  # noqa: E501


def test_manual_computations_of_shardy() -> None:
    """What shard_map is in HLO text: values enter a computation in their local shapes, and leave in global ones."""
    executable = spmd.compile(spmd.parse(MANUAL), ProcessGrid(num_partitions=4))
    x = f32(np.arange(24).reshape(4, 6))
    parts = [[x[2 * a : 2 * a + 2, 3 * b : 3 * b + 3]] for a in range(2) for b in range(2)]
    got = spmd.run_parallel([[executable] * 4], ProcessGrid(num_partitions=4), parts)
    total = x[:2] + x[2:]
    for rank, result in enumerate(got):
        equal(result[0], total[:, 3 * (rank % 2) : 3 * (rank % 2) + 3])
    partial = MANUAL.replace('manual_axes{\\"a\\", \\"b\\"}', 'manual_axes{\\"a\\"}')
    assert "last_tile_dims={manual}" in str(spmd.parse(partial))  # over "a"; along "b" the compiler cuts
    other = MANUAL.replace('manual_axes{\\"a\\", \\"b\\"}', 'manual_axes{\\"a\\", \\"c\\"}')
    with pytest.raises(ParseError, match="has not the axes a, c"):
        spmd.parse(other)


def test_ops_that_hlo_text_has_not_are_refused() -> None:
    text = "func.func @main(%a: tensor<2xf32>) -> tensor<?xf32> {\n"
    text += "  %n = stablehlo.constant dense<2> : tensor<1xi32>\n"
    text += "  %0 = stablehlo.dynamic_reshape %a, %n : (tensor<2xf32>, tensor<1xi32>) -> tensor<?xf32>\n"
    module = spmd.parse(text + "  return %0 : tensor<?xf32>\n}")
    with pytest.raises(spmd.VerificationError, match="HLO text"):
        print_hlo(module)
    constant = text.replace("tensor<?xf32>", "tensor<2xf32>") + "  return %0 : tensor<2xf32>\n}"
    with pytest.raises(spmd.VerificationError, match=r"stablehlo\.dynamic_reshape: HLO text cannot express this op"):
        print_hlo(spmd.parse(constant))


def test_load_reads_hlo_files(tmp_path: Path) -> None:
    file = tmp_path / "program.hlo"
    file.write_text(build(lambda _, x: x + x, f32([0, 0])).as_hlo_text())
    equal(spmd.compile(spmd.load(file))(f32([1, 2]))[0], [2, 4])


def test_the_composite_of_the_document_is_read_as_it_is_printed() -> None:
    """Operation semantics, "CompositeCall": an instruction over several lines, with spaces around an equals sign."""
    text = """HloModule m

%computation {
  %p = f32[] parameter(0)
  ROOT %s = f32[] add(f32[] %p, f32[] %p)
}

ENTRY main {
  %cst = f32[] constant(3)
  ROOT %r = f32[] call(f32[] %cst), to_apply=%computation, is_composite=true,
  frontend_attributes = {
    composite.name="foo.bar",
    composite.attributes={n = 1 : i32, tensor = dense<1> : tensor<i32>},
    composite.version="1"
  }
}
"""
    module = spmd.parse(text)
    (composite,) = (op for op in module.walk() if op.name == "stablehlo.composite")
    assert (composite["name"], composite["version"]) == ("foo.bar", 1)
    assert set(composite["composite_attributes"].entries) == {"n", "tensor"}
    assert spmd.compile(module)()[0] == 6


def test_an_error_of_a_sharding_names_the_computation_and_its_parameter() -> None:
    sharding = "{devices=[99999999999]<=[99999999999]}"
    text = f"HloModule m, num_partitions=4\n\nENTRY e {{ ROOT p = f32[8] parameter(0), sharding={sharding} }}"
    told = r"^many\.hlo:3:7: func\.func: argument 0 of @main: there must be at most 16,777,216 devices"
    with pytest.raises(SpmdError, match=told):
        spmd.compile(spmd.parse(text, "many.hlo"))


@pytest.mark.parametrize(
    ("behind", "reason"),
    [
        ("sharding={replicated} ROOT n = f32[4] negate(p)", "a computation has one ROOT"),
        ('metadata={op_name="x"} junk={3}', "expected an opcode"),
        ("index=1 more", "expected an instruction"),
        ("sharding={replicated}, sharding={replicated}", "attribute sharding is there twice"),
    ],
)
def test_words_behind_a_value_are_no_part_of_it(behind: str, reason: str) -> None:
    """An instruction that stands on the line of another is not lost in that one's attribute."""
    with pytest.raises(spmd.ParseError, match=rf"<string>:3:.*: {reason}"):
        spmd.parse(f"HloModule m\nENTRY e {{\n  ROOT p = f32[4] parameter(0), {behind}\n}}")


def test_lines_mean_nothing() -> None:
    """Instructions may share a line, and one may go over many; shapes may be missing, calls stand as operands."""
    text = """HloModule m: ENTRY e { p = f32[2,3] parameter(0) /* a, b */ q = f32[3]
      {0} parameter(1), metadata={op_name="a}b" id={1}} // to the end = of (the line
      n = f32[3,2] transpose(f32[2,3]
        negate(p)), dimensions={1,0} ROOT t = (f32[3], f32[3,2]) tuple(q, multiply(n,
        f32[3,2] broadcast(f32[] constant(2)))) }"""
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(3, np.float32)
    got = spmd.compile(spmd.parse(text))(x, y)
    equal(got, [y, -2 * x.T])


def test_a_file_may_have_no_header_and_no_entry() -> None:
    """The last computation is then the entry, and the module has its name."""
    module = spmd.parse("a { ROOT x = f32[] parameter(0) }\n\nb { x = f32[] parameter(0) ROOT y = negate(x) }")
    assert module.symbol == "b"
    equal(spmd.compile(module)(f32(2)), [f32(-2)])


@pytest.mark.parametrize("count", ["0", "9" * 5000, "2147483648", "-1", "two"])
def test_a_number_of_processes_is_one(count: str) -> None:
    text = f"HloModule m, replica_count={count}\n\nENTRY main {{\n  ROOT p = f32[2] parameter(0)\n}}\n"
    with pytest.raises(spmd.ParseError, match="replica_count is a number of processes, got"):
        spmd.parse(text)


def test_alike_instructions_keep_their_own_computations_and_places() -> None:
    text = """HloModule m
one {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b), metadata={op_name="one"}
}
two {
  c = f32[] parameter(0)
  d = f32[] parameter(1)
  ROOT t = f32[] add(c, d), metadata={op_name="two"}
}
three {
  e = f32[] parameter(0)
  f = f32[] parameter(1)
  ROOT u = f32[] maximum(e, f)
}
ENTRY e {
  x = f32[3] parameter(0)
  z = f32[] constant(0)
  r = f32[] reduce(x, z), dimensions={0}, to_apply=one
  s = f32[] reduce(x, z), dimensions={0}, to_apply=two
  t = f32[] reduce(x, z), dimensions={0}, to_apply=three
  ROOT w = (f32[], f32[], f32[]) tuple(r, s, t)
}
"""
    module = spmd.parse(text)
    regions = [op.regions[0].block for op in module.function("main").body.ops if op.name == "stablehlo.reduce"]
    first = [block.ops[0] for block in regions]
    assert [(op.name.partition(".")[2], op.location.line, op.debug_location) for op in first] == [
        ("add", 5, '"one"'), ("add", 10, '"two"'), ("maximum", 15, None),
    ]  # fmt: skip
    arrays = np.array([1, 4, 2], np.float32)
    assert [float(result) for result in spmd.compile(module)(arrays)] == [7, 7, 4]


def test_parts_of_a_parameter_keep_their_shardings() -> None:
    text = """HloModule m, num_partitions=2
ENTRY e {
  p = (f32[8,2], f32[]) parameter(0), sharding={{devices=[2,1]<=[2]},{replicated}}
  x = f32[8,2] get-tuple-element(p), index=0, sharding={devices=[2,1]<=[2]}
  ROOT y = f32[8,2] negate(x)
}
"""
    assert 'get_tuple_element %arg0[0] {mhlo.sharding = "{devices=[2,1]<=[2]}"}' in str(spmd.parse(text))
