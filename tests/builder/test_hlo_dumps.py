"""HLO text as XLA dumps it today, before and after its optimizations, computes what the program does."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jaxlib import xla_client

import spmd
from collectives.grid import ProcessGrid
from spmd.builder.hlo import print_hlo
from spmd.builder.hlo.groups import parse_groups
from tests.jax_meshes import abstract_mesh
from tests.partitioner.running import run_parts

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.normal(size=shape).astype(np.float32)


Program = tuple[Callable[..., Any], tuple[Any, ...]]
PROGRAMS: dict[str, Program] = {
    "gradient": (lambda w, x: jax.grad(lambda w: jnp.tanh(x @ w).sum())(w), (normal(4, 3), normal(5, 4))),
    "convolution": (
        lambda x, w: lax.conv_general_dilated(x, w, (1, 2), "SAME"), (normal(2, 3, 8, 8), normal(4, 3, 3, 3)),
    ),
    "softmax": (jax.nn.softmax, (normal(7, 9),)),
    "a long cumulative sum": (lambda x: jnp.cumsum(x, axis=1), (normal(4, 600),)),
    "sort": (lambda x: (jnp.sort(x, axis=0), jnp.argsort(x, axis=1)), (normal(30, 4),)),
    "scan": (lambda x: lax.scan(lambda c, y: (c * 0.5 + y, c.sum()), jnp.zeros(3), x), (normal(10, 3),)),
    "while": (lambda x: lax.while_loop(lambda c: c[1] < 10, lambda c: (c[0] * 1.1, c[1] + 1), (x, 0)), (normal(3),)),
    "cond": (lambda x: lax.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, x), (normal(3),)),
    "random": (lambda key: jax.random.normal(jax.random.wrap_key_data(key), (5,)), (np.uint32([1, 2]),)),
    "fft": (lambda x: jnp.abs(jnp.fft.fft(x)), (normal(16),)),
    "int8": (lambda x: x.astype(jnp.int8) @ x.T.astype(jnp.int8), (np.int32([[1, 2], [3, 4]]),)),
    "gather": (lambda x, i: x[i], (normal(10, 3), np.int32([1, 5, 3]))),
    "scatter": (lambda x, i: x.at[i].add(1.0), (normal(10, 3), np.int32([1, 5, 1]))),
    "einsum": (lambda a, b: jnp.einsum("bij,bkj->bik", a, b), (normal(2, 3, 4), normal(2, 5, 4))),
    "top_k": (lambda x: lax.top_k(x, 3), (normal(4, 9),)),
    "pooling": (
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), (normal(1, 6, 6, 2),),
    ),
    "reductions": (lambda x: (x.var(0), x.argmax(1), x.prod()), (normal(6, 5),)),
    "functions": (lambda x: (jax.scipy.special.erf(x), lax.lgamma(x * x + 1), jnp.exp(1j * x)), (normal(6),)),
    "transposed": (lambda x: jnp.transpose(x, (2, 0, 1)).reshape(4, -1) @ jnp.ones((6, 2)), (normal(2, 3, 4),)),
}  # fmt: skip


def optimized(compiled: Any) -> str:
    """Return HLO text after XLA's optimizations with the values of large constants, which JAX 0.12 leaves out."""
    options = xla_client.hlo.HloPrintOptions()
    options.print_large_constants = True
    (module,) = compiled.runtime_executable().hlo_modules()
    return str(module.to_string(options))


@pytest.mark.sampled(19)
@pytest.mark.parametrize("stage", ["before", "after"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_jax_lowers_and_compiles(name: str, stage: str) -> None:
    function, arguments = PROGRAMS[name]
    lowered = jax.jit(function).lower(*arguments)
    text = lowered.as_text("hlo") if stage == "before" else optimized(lowered.compile())
    got = spmd.compile(spmd.parse(text))(*arguments)
    expected = jax.tree.leaves(jax.jit(function)(*arguments))
    assert len(got) == len(expected)
    for mine, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-4, atol=1e-4)


def test_tables_of_places_are_kept() -> None:
    lowered = jax.jit(lambda x: jnp.tanh(x) @ x).lower(normal(3, 3))
    module = spmd.parse(lowered.compile().as_text())
    (dot,) = [op for op in module.walk() if op.name == "stablehlo.dot_general"]
    assert dot.debug_location is not None
    assert dot.debug_location.startswith('"jit(<lambda>)/dot_general"(')
    assert f'"{__file__}":' in dot.debug_location


def test_arguments_that_are_given_away_are_marked() -> None:
    lowered = jax.jit(lambda x, y: (y, x + y), donate_argnums=0).lower(normal(4), normal(4))
    main = spmd.parse(lowered.compile().as_text()).function("main")
    assert "tf.aliasing_output" in main.argument_attributes[0]
    assert "tf.aliasing_output" not in main.argument_attributes[1]


def run(body: str, *arguments: Any) -> Any:
    (got,) = spmd.compile(spmd.parse(f"HloModule m\n\nENTRY e {{\n{body}\n}}\n"))(*arguments)
    return got


X = np.float32(np.arange(24).reshape(2, 3, 4))


@pytest.mark.parametrize(
    ("operand_layout", "shape", "layout", "expected"),
    [
        ("{2,1,0}", "f32[6,4]", "{1,0}", X.reshape(6, 4)),
        ("{2,1,0}", "f32[4,6]", "{0,1}", X.reshape(6, 4).T),
        ("{0,1,2}", "f32[24]", "{0}", X.transpose(2, 1, 0).reshape(24)),
        ("{1,2,0}", "f32[2,1,4,3]", "{3,2,1,0}", X.transpose(0, 2, 1).reshape(2, 1, 4, 3)),
        ("{2,1,0}", "s32[24]", "{0}", X.view(np.int32).reshape(24)),
        ("{2,1,0}", "u8[2,3,4,4]", "{3,2,1,0}", X.view(np.uint8).reshape(2, 3, 4, 4)),
        ("{2,1,0}", "f64[2,3,2]", "{2,1,0}", X.view(np.float64)),
    ],
)
def test_a_bitcast_reads_memory_in_order_of_layouts(
    operand_layout: str, shape: str, layout: str, expected: Any
) -> None:
    got = run(f"  x = f32[2,3,4]{operand_layout} parameter(0)\n  ROOT b = {shape}{layout} bitcast(x)", X)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


PAIRS = {
    "copy": """  s = (f32[2,3,4], f32[2,3,4], u32[]) copy-start(x)
  ROOT d = f32[2,3,4] copy-done(s)""",
    "all-reduce": """  s = f32[2,3,4] all-reduce-start(x), replica_groups={{0}}, to_apply=sum
  ROOT d = f32[2,3,4] all-reduce-done(s)""",
    "all-gather": """  s = (f32[2,3,4], f32[2,3,4]) all-gather-start(x), replica_groups={{0}}, dimensions={1}
  ROOT d = f32[2,3,4] all-gather-done(s)""",
    "permute": """  s = (f32[2,3,4], f32[2,3,4], u32[], u32[]) collective-permute-start(x), source_target_pairs={{0,0}}
  ROOT d = f32[2,3,4] collective-permute-done(s)""",
    "async": """  s = ((f32[2,3,4]), f32[2,3,4], s32[]) async-start(x), calls=same
  u = ((f32[2,3,4]), f32[2,3,4], s32[]) async-update(s)
  ROOT d = f32[2,3,4] async-done(u)""",
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_gives_what_one_instruction_would(name: str) -> None:
    text = f"""HloModule m, replica_count=1

sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

same {{
  a = f32[2,3,4] parameter(0)
  ROOT b = f32[2,3,4] copy(a)
}}

ENTRY e {{
  x = f32[2,3,4] parameter(0)
{PAIRS[name]}
}}
"""
    (got,) = spmd.compile(spmd.parse(text))(X)
    np.testing.assert_array_equal(got, X)


GROUPS = {
    "{{0,1},{2,3}}": [[0, 1], [2, 3]],
    "{}": [],
    "[2,2]<=[4]": [[0, 1], [2, 3]],
    "[2,2]<=[2,2]": [[0, 1], [2, 3]],
    "[2,2]<=[2,2]T(1,0)": [[0, 2], [1, 3]],
    "mesh['x'=2,'y'=4] {'y'}": [[0, 1, 2, 3], [4, 5, 6, 7]],
    "mesh['x'=2,'y'=4] {'x'}": [[0, 4], [1, 5], [2, 6], [3, 7]],
    "mesh['x'=2,'y'=2] {'y','x'}": [[0, 2, 1, 3]],
    "mesh['x'=4] {'x':(2)2}": [[0, 1], [2, 3]],
    "mesh['x'=4] {'x':(1)2}": [[0, 2], [1, 3]],
    "mesh['x'=2,'y'=1] {'y'}": [[0], [1]],
    "mesh['x'=4,'y'=2], device_ids=([2,4]T(1,0)) {'x'}": [[0, 1, 2, 3], [4, 5, 6, 7]],
    "mesh['x'=4,'y'=2], device_ids=([2,2,2]T(0,2,1)) {'x':(2)2}": [[0, 1], [2, 3], [4, 5], [6, 7]],
    "mesh['x'=2,'y'=2], device_ids=(3,2,1,0) {'y'}": [[3, 2], [1, 0]],
}


@pytest.mark.parametrize("text", GROUPS)
def test_groups_in_every_spelling(text: str) -> None:
    assert parse_groups(text) == GROUPS[text]


@pytest.mark.parametrize("text", ["mesh['x'=2] {'z'}", "mesh['x'=6] {'x':(4)2}", "[2]<=", "mesh['x'=2"])
def test_what_is_no_group(text: str) -> None:
    with pytest.raises(ValueError):
        parse_groups(text)


PARTITIONED = """HloModule m, is_scheduled=true, num_partitions=4

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main_spmd {
  p = f32[2] parameter(0), sharding={devices=[4]<=[4]}
  g = f32[8] all-gather(p), channel_id=1, replica_groups=[1,4]<=[4], dimensions={0}, use_global_device_ids=true
  ROOT r = f32[2] all-reduce(p), channel_id=2, replica_groups=mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)) {'x'}, use_global_device_ids=true, to_apply=sum, sharding={devices=[4]<=[4]}
}
"""  # noqa: E501 (an instruction on a line)


def test_what_is_partitioned_is_not_partitioned_again() -> None:
    """XLA leaves the shardings of the whole arrays on parameters that are blocks of them."""
    blocks = [np.float32([10 * rank, 1]) for rank in range(4)]
    results = spmd.run_parallel(spmd.parse(PARTITIONED), spmd.ProcessGrid(1, 4), [[block] for block in blocks])
    assert [result.tolist() for (result,) in results] == [[10, 2], [10, 2], [50, 2], [50, 2]]


@pytest.mark.parametrize("axes", [{"a"}, {"b"}, {"a", "b"}])
def test_a_computation_that_is_manual_over_some_axes(axes: set[str]) -> None:
    """Inside, a value is a block along those axes; how it is cut along the others is free."""
    mesh = abstract_mesh((2, 2), ("a", "b"))
    spec = jax.sharding.PartitionSpec(*sorted(axes))
    mapped = jax.shard_map(
        lambda x: lax.psum(jnp.sin(x), sorted(axes)), mesh=mesh, in_specs=spec, out_specs=jax.sharding.PartitionSpec(),
        axis_names=axes,
    )  # fmt: skip
    x = normal(4, 4)
    text = jax.jit(mapped).trace(x).lower(lowering_platforms=("cpu",)).as_text("hlo")
    (got,) = run_parts(text, [x], 4)
    halves = np.sin(x).reshape(2, 2, 4).sum(0) if len(axes) == 1 else np.sin(x).reshape(2, 2, 2, 2).sum((0, 2))
    np.testing.assert_allclose(got, halves, rtol=1e-5)


def test_the_numbers_of_processes_are_numbers() -> None:
    for text in ("x", "0", "-1", "9" * 30, ""):
        with pytest.raises(spmd.SpmdError, match="num_partitions"):
            spmd.parse(f"HloModule m, num_partitions={text}\n\nENTRY e {{\n  ROOT a = f32[] parameter(0)\n}}\n")


def test_ragged_products_are_read_and_written() -> None:
    def function(a: Any, b: Any, sizes: Any) -> Any:
        return lax.ragged_dot(a, b, sizes)

    a, b, sizes = normal(8, 4), normal(3, 4, 5), np.int32([2, 5, 1])
    # The opcode is what other platforms are given.
    lowered = jax.jit(function).trace(a, b, sizes).lower(lowering_platforms=("tpu",))
    text = lowered.as_text("hlo")
    assert "ragged-dot(" in text
    expected = jax.jit(function)(a, b, sizes)
    module = spmd.parse(text)
    for program in (module, spmd.parse(print_hlo(module))):
        np.testing.assert_allclose(spmd.compile(program)(a, b, sizes)[0], expected, rtol=1e-5, atol=1e-5)


def test_random_numbers_that_xla_expanded_are_its_own() -> None:
    """The state begins where XLA's does, and moves on from call to call."""
    drawing = jax.jit(lambda low, high: lax.rng_uniform(low, high, (5,))).lower(np.float32(-1), np.float32(2)).compile()
    assert "rng-get-and-update-state" in drawing.as_text()
    seed = ', custom_call_target="GetRngSeed"'  # of one run of XLA, which draws it, since JAX 0.12
    program = spmd.compile(spmd.parse(drawing.as_text()))
    drawn = [program(np.float32(-1), np.float32(2))[0] for _ in range(3)]
    if seed not in drawing.as_text():
        for numbers in drawn:
            np.testing.assert_allclose(numbers, drawing(np.float32(-1), np.float32(2)), rtol=1e-6)
    every = np.array(drawn)
    assert len(np.unique(every)) == 15 and (every >= -1).all() and (every < 2).all()


def test_a_seed_that_xla_draws_for_a_run_is_the_same_in_all_runs() -> None:
    assert run('  ROOT s = u64[] custom-call(), custom_call_target="GetRngSeed"') == np.uint64(0)


@pytest.mark.parametrize("order", ["type=TOTALORDER", "order=TOTAL", "order=PARTIAL", "type=FLOAT"])
def test_orders_of_floats_have_two_names(order: str) -> None:
    x = np.float32([-0.0, 0.0, np.nan, 1])
    got = run(
        f"  x = f32[4] parameter(0)\n  y = f32[4] parameter(1)\n"
        f"  ROOT l = pred[4] compare(x, y), direction=LT, {order}",
        x,
        x[::-1],
    )
    assert got.tolist() == ([True, True, False, False] if "TOTAL" in order else [True, False, False, False])


def test_values_that_are_left_out_are_drawn_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"<string>:\d+:\d+: .* left out .*xla_dump_large_constants"):
        first = run("  ROOT c = f32[16] constant({...})")
    with pytest.warns(UserWarning):
        again = run("  ROOT c = f32[16] constant({...})")
    assert first.tolist() == again.tolist() and len(set(first.tolist())) == 16


def test_a_number_for_an_array_is_its_first_element() -> None:
    assert run("  ROOT c = s8[2,2] constant(3)").tolist() == [[3, 0], [0, 0]]


@pytest.mark.parametrize(("reverse", "sums"), [("", [1, 3, 6, 10]), (", is_reverse=true", [10, 9, 7, 4])])
def test_a_scan_gives_what_each_step_gives_and_the_last_carries(reverse: str, sums: list[int]) -> None:
    text = f"""HloModule m
step {{
  x = s32[] parameter(0)
  c = s32[] parameter(1)
  s = s32[] add(x, c)
  ROOT t = (s32[], s32[]) tuple(s, s)
}}
ENTRY e {{
  x = s32[4] parameter(0)
  c = s32[] constant(0)
  ROOT r = (s32[4], s32[]) scan(x, c), dimensions={{0}}{reverse}, num_carries=1, to_apply=step
}}
"""
    module = spmd.parse(text)
    again = print_hlo(module)
    assert reverse in again and "num_carries=1" in again
    steps, last = spmd.compile(spmd.parse(again))(np.arange(1, 5, dtype=np.int32))
    assert (steps.tolist(), int(last)) == (sums, 10)


def test_a_dynamic_reshape_takes_its_sizes() -> None:
    body = """  v = f32[6] parameter(0)
  n = s32[] parameter(1)
  two = s32[] constant(2)
  d = f32[<=3,2] dynamic-reshape(v, n, two)
  ROOT t = (s32[], f32[]) tuple(SIZE, SUM)"""
    body = body.replace(
        "  ROOT",
        "  z = f32[] constant(0)\n  s = s32[] get-dimension-size(d), dimensions={0}\n"
        "  r = f32[] reduce(d, z), dimensions={0,1}, to_apply=sum\n  ROOT",
    )
    text = f"""HloModule m

sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY e {{
{body.replace("SIZE", "s").replace("SUM", "r")}
}}
"""
    size, total = spmd.compile(spmd.parse(text))(np.float32(np.arange(6)), np.int32(3))
    assert (size, total) == (3, 15)


CALLED = """HloModule m

work {
  p = f32[2,3,4] parameter(0)
  q = f32[2,3,4] parameter(1)
  ROOT r = f32[2,3,4] subtract(p, q)
}

ENTRY e {
  x = f32[2,3,4] parameter(0)
  y = f32[2,3,4] negate(x)
"""
STARTED = {
    "call": (
        "((f32[2,3,4], f32[2,3,4]), f32[2,3,4], u32[]) call-start(x, y), to_apply=work",
        "call-done(s), to_apply=work",
        X + X,
    ),
    "fusion": (
        "((f32[2,3,4], f32[2,3,4]), f32[2,3,4]) fusion-start(y, x), kind=kLoop, calls=work",
        "fusion-done(s)",
        -X - X,
    ),
    "add": ("((f32[2,3,4], f32[2,3,4]), f32[2,3,4], u32[]) add-start(x, y)", "add-done(s)", X - X),
}


@pytest.mark.parametrize("name", STARTED)
def test_any_opcode_may_be_started_and_done(name: str) -> None:
    """`call-start` is an async-start of a call, as XLA's printer shortens it."""
    start, done, expected = STARTED[name]
    for more in ("", f"  u = {start.split(f' {name}-')[0]} {name}-update(s)\n"):
        end = done.replace("(s)", "(u)") if more else done
        text = f"{CALLED}  s = {start}\n{more}  ROOT d = f32[2,3,4] {end}\n}}\n"
        (got,) = spmd.compile(spmd.parse(text))(X)
        np.testing.assert_array_equal(got, expected)


IN_BRACES = """{
    a = f32[2,3,4] parameter(0)
    ROOT b = f32[2,3,4] negate(a)
  }"""
SUM = "{ a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (f"  ROOT w = f32[2,3,4] fusion(x), kind=kLoop, calls=\n  {IN_BRACES}", -X),
        (f"  ROOT w = f32[2,3,4] call(x), to_apply={IN_BRACES}", -X),
        (f"  z = f32[] constant(0)\n  ROOT w = f32[2] reduce(x, z), dimensions={{1,2}}, to_apply={SUM}", X.sum((1, 2))),
        (
            "  i = s32[] constant(1)\n  ROOT w = f32[2,3,4] conditional(i, x, x), branch_computations="
            f"{{{{ ROOT a = f32[2,3,4] parameter(0) }}, {IN_BRACES}}}",
            -X,
        ),
    ],
    ids=["fusion", "call", "reduce", "conditional"],
)
def test_a_computation_may_stand_in_braces_where_a_name_may(lines: str, expected: Any) -> None:
    got = run(f"  x = f32[2,3,4] parameter(0)\n{lines}", X)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_what_is_wrong_in_braces_is_told_where_it_stands() -> None:
    call = "  ROOT w = f32[2] call(x), to_apply={\n    ROOT a = f32[2] nothing()\n  }"
    text = f"HloModule m\n\nENTRY e {{\n  x = f32[2] parameter(0)\n{call}\n}}\n"
    with pytest.raises(spmd.SpmdError, match=r"m\.hlo:6:10: nothing: HLO opcode that is not read here"):
        spmd.parse(text, "m.hlo")


UNKNOWN = """HloModule m

ENTRY e {
  x = f32[2,3] parameter(0)
  ROOT c = f32[2,3] custom-call(x), custom_call_target="%s", window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
}
"""


def test_a_call_with_attributes_that_are_not_ours_names_its_target_and_what_to_do() -> None:
    module = spmd.parse(UNKNOWN % "__cudnn$convForward", "m.hlo")
    said = (
        r"m.hlo:5:8: .*no custom call target named '__cudnn\$convForward'; spmd.register_custom_call\(.*before_optimi"
    )
    with pytest.raises(spmd.CompileError, match=said):
        spmd.compile(module)


def test_computations_that_an_unknown_call_names_are_kept() -> None:
    call = 'custom-call(x, y), custom_call_target="mine", called_computations={work}'
    module = spmd.parse(f"{CALLED}  ROOT d = f32[2,3,4] {call}\n}}\n")
    for again in (module, spmd.parse(str(module)), spmd.parse(print_hlo(module))):
        (named,) = next(op for op in again.walk() if op.name == "stablehlo.custom_call")["called_computations"]
        assert [op.name for op in again.function(named).body.ops] == ["stablehlo.subtract", "func.return"]
        with pytest.raises(spmd.CompileError, match="no custom call target named 'mine'"):
            spmd.compile(again)


def test_a_function_of_users_is_given_what_hlo_text_says_of_its_call() -> None:
    given = {}

    def function(x: np.ndarray, attributes: dict[str, Any]) -> np.ndarray:
        given.update(attributes)
        return -x

    spmd.register_custom_call("test.of_hlo_text", function)
    x = np.ones((2, 3), np.float32)
    for text in (UNKNOWN % "test.of_hlo_text", spmd.parse(UNKNOWN % "test.of_hlo_text")):
        module = spmd.parse(text) if isinstance(text, str) else spmd.parse(print_hlo(text, "m"))
        (got,) = spmd.compile(module)(x)
        np.testing.assert_array_equal(got, -x)
        assert given["window"] == "{size=3x3 pad=1_1x1_1}" and given["dim_labels"] == "b01f_01io->b01f"


def test_a_call_of_ours_with_attributes_that_are_not_is_refused() -> None:
    with pytest.raises(spmd.SpmdError, match="attribute dim_labels is not understood"):
        spmd.parse(UNKNOWN % "MoveToHost")


def test_floats_of_several_widths_are_computed_in_the_widest() -> None:
    """XLA's parser takes them, and infers that type where the text has none."""
    x, y = np.float32([1, 2**-9]), np.array([2**-8, 1], "bfloat16")
    assert run("  x = f32[2] parameter(0)\n  y = bf16[2] parameter(1)\n  ROOT s = add(x, y)", x, y).tolist() == [
        1 + 2**-8, 1 + 2**-9,
    ]  # fmt: skip
    narrow = run("  x = f32[2] parameter(0)\n  y = bf16[2] parameter(1)\n  ROOT s = bf16[2] add(x, y)", x, y)
    assert narrow.tolist() == [1, 1]


def test_a_reducer_of_another_type_gets_the_elements_in_its_own() -> None:
    text = """HloModule m, replica_count=2
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
ENTRY e { x = bf16[2] parameter(0) ROOT r = bf16[2] all-reduce(x), channel_id=0, replica_groups={}, to_apply=sum }
"""
    x = np.array([1, 2], "bfloat16")
    got = spmd.run_parallel(spmd.parse(text), ProcessGrid(2), [[x], [x + 1]])
    assert [result[0].tolist() for result in got] == [[3, 5]] * 2


def test_a_stochastic_conversion_takes_the_integer_above_as_often_as_its_fraction_says() -> None:
    body = "  x = f32[4] parameter(0)\n  r = u16[4] parameter(1)\n  ROOT c = s8[4] stochastic-convert(x, r)"
    random = np.uint16([0x3FFF, 0x4000, 0x3FFF, 0x4000])
    assert run(body, np.float32([2.25, 2.25, -2.25, -2.25]), random).tolist() == [3, 2, -3, -2]


def test_the_text_that_a_typed_call_is_given_is_kept() -> None:
    config = 'api_version=API_VERSION_TYPED_FFI, backend_config="other"'
    body = f'  x = f32[2] parameter(0)\n  ROOT c = f32[2] custom-call(x), custom_call_target="sub", {config}'
    assert config in print_hlo(spmd.parse(f"HloModule m\nENTRY e {{\n{body}\n}}"))


def test_a_large_constant_of_one_number_is_written_as_its_broadcast() -> None:
    text = "HloModule m\nENTRY e { ROOT c = f32[99999999,9999999] constant(0) }"
    assert "broadcast(constant.1), dimensions={}" in print_hlo(spmd.parse(text))


SUM_F32 = "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }"
HALF = 2**-9  # of a unit in the last place of a bfloat16 at 1
MIXED = {
    "pad": ("f32[3] pad(x, z), padding=1_0", [0, 1, 1]),
    "a narrow pad": ("bf16[3] pad(w, f), padding=1_0", [0, 1 + HALF * 4, 1]),
    "concatenate": ("f32[4] concatenate(x, w), dimensions={0}", [1, 1, 1 + HALF * 4, 1]),
    "dynamic-update-slice": ("f32[2] dynamic-update-slice(w, part, one)", [1 + HALF * 4, HALF]),
    "reduce": ("f32[] reduce(x, h), dimensions={0}, to_apply=sum", 2 + HALF),
    "a narrow reduce": ("bf16[] reduce(x, h), dimensions={0}, to_apply=sum", 2),
    "reduce-window": ("f32[1] reduce-window(x, h), window={size=2}, to_apply=sum", [2 + HALF]),
    "select-and-scatter": (
        "f32[2] select-and-scatter(w, u, h), window={size=2}, select=first, scatter=sum", [1 + HALF, HALF],
    ),
    "scatter": (
        "f32[2] scatter(x, at, h), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
        "index_vector_dim=0, to_apply=sum", [1, 1 + HALF],
    ),
    "convolution": ("f32[1,2] convolution(m, k), dim_labels=bf_io->bf", [[1, 1 + HALF * 4]]),
    "several": ("(f32[], bf16[]) reduce(x, ones, h, h), dimensions={0}, to_apply=sums", (2 + HALF, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", MIXED)
def test_instructions_on_floats_of_several_widths(name: str) -> None:
    instruction, expected = MIXED[name]
    text = f"""HloModule m
{SUM_F32}
sums {{
  a = f32[] parameter(0)
  b = bf16[] parameter(1)
  c = f32[] parameter(2)
  d = bf16[] parameter(3)
  e = f32[] add(a, c)
  f = bf16[] add(b, d)
  ROOT t = (f32[], bf16[]) tuple(e, f)
}}
first {{ a = bf16[] parameter(0) b = bf16[] parameter(1) ROOT g = pred[] compare(a, b), direction=GE }}
ENTRY e {{
  x = f32[2] constant({{1, 1}})
  w = bf16[2] constant({{1.0078125, 1}})
  ones = bf16[2] constant({{1, 1}})
  z = bf16[] constant(0)
  f = f32[] constant(0)
  h = bf16[] constant({HALF})
  part = f32[1] constant({{{HALF}}})
  u = f32[1] constant({{1}})
  one = s32[] constant(1)
  at = s32[1] constant({{1}})
  m = f32[1,1] constant({{{{1}}}})
  k = bf16[1,2] constant({{{{1, 1.0078125}}}})
  ROOT r = {instruction}
}}
"""
    got = spmd.compile(spmd.parse(text))()
    values = [result.tolist() for result in got]
    assert values == (list(expected) if isinstance(expected, tuple) else [expected])


@pytest.mark.parametrize(
    ("narrow", "wide", "expected"), [("bf16", "f32", 2 + HALF * 4), ("f32", "bf16", 2), ("bf16", "bf16", 2)]
)
def test_a_collective_folds_in_the_wider_type(narrow: str, wide: str, expected: float) -> None:
    text = f"""HloModule m, replica_count=2
{SUM_F32}
ENTRY e {{
  x = {narrow}[] parameter(0)
  ROOT r = {wide}[] all-reduce(x), replica_groups={{}}, to_apply=sum
}}
"""
    x = [np.array(value, {"f32": "float32", "bf16": "bfloat16"}[narrow]) for value in (1, 1 + HALF * 4)]
    got = spmd.run_parallel(spmd.parse(text), ProcessGrid(2), [[each] for each in x])
    assert [result[0].tolist() for result in got] == [expected] * 2


def test_booleans_are_bytes_in_memory() -> None:
    x = np.array([[True, False, True, True], [False] * 4])
    words = run("  x = pred[2,4] parameter(0)\n  ROOT w = s32[2] bitcast-convert(x)", x)
    assert words.tolist() == [0x01010001, 0]
    assert run("  w = s32[2] parameter(0)\n  ROOT x = pred[2,4] bitcast-convert(w)", words).tolist() == x.tolist()
    assert run("  x = pred[2,4] parameter(0)\n  ROOT b = u8[8] bitcast(x)", x).tolist() == x.reshape(-1).tolist()


@pytest.mark.parametrize(
    ("constant", "expected"),
    [
        ("u64[] constant(-1)", [2**64 - 1]),
        ("s32[1] constant(4)", [[4]]),
        ("(s32[2,1], (f32[], c64[])) constant(({ {1}, {2} }, (3, (4, 5))))", [[[1], [2]], 3, 4 + 5j]),
    ],
)
def test_constants_in_every_spelling(constant: str, expected: list[Any]) -> None:
    got = spmd.compile(spmd.parse(f"HloModule m\nENTRY e {{\n  ROOT c = {constant}\n}}"))()
    assert [result.tolist() for result in got] == expected


def test_a_hint_on_a_tuple_is_one_on_its_parts() -> None:
    moved = 'custom-call(p), custom_call_target="MoveToHost"'
    text = f"HloModule m\nENTRY e {{\n  p = (f32[2], s32[]) parameter(0)\n  ROOT c = (f32[2], s32[]) {moved}\n}}"
    got = spmd.compile(spmd.parse(text))((np.ones(2, np.float32), np.int32(3)))
    assert [result.tolist() for result in got] == [[1, 1], 3]


def test_work_of_the_host_is_what_its_computation_gives() -> None:
    host = 'custom_call_target="HostExecute", called_computations={work}'
    text = f"{CALLED}  ROOT d = f32[2,3,4] custom-call(x, y), {host}\n}}\n"
    np.testing.assert_array_equal(spmd.compile(spmd.parse(text))(X)[0], X + X)


def test_instructions_that_are_alike_are_of_their_own_operands_and_shapes() -> None:
    """What an instruction says is looked up once; computations in braces are gone when the next ones are read."""
    calls = [
        f"  c{n} = f32[{n},3] call(x), to_apply={{ p = f32[3] parameter(0)\n"
        f" ROOT b = f32[{n},3] broadcast(p), dimensions={{1}} }}\n  r{n} = f32[{n},3] negate(c{n})"
        for n in range(1, 30)
    ]
    names = ", ".join(f"r{n}" for n in range(1, 30))
    kinds = ", ".join(f"f32[{n},3]" for n in range(1, 30))
    lines = "\n".join(calls)
    text = f"HloModule m\nENTRY e {{\n  x = f32[3] parameter(0)\n{lines}\n  ROOT t = ({kinds}) tuple({names})\n}}\n"
    function = spmd.parse(text).function("main")
    assert [str(type) for type in function.type.results] == [f"tensor<{n}x3xf32>" for n in range(1, 30)]
    twice = run(
        "  x = f32[3] parameter(0)\n  a = f32[3] negate(x)\n  b = f32[3] negate(a)\n  ROOT c = f32[3] add(a, b)",
        np.float32([1, 2, 3]),
    )
    assert twice.tolist() == [0, 0, 0]
