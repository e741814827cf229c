"""What compiling does to a program, seen from outside: results, memory that is shared or not, errors with a place."""

from __future__ import annotations

import numpy as np
import pytest

import spmd
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.options import Options
from spmd.compiler.transforms.simplify import simplify
from spmd.ir import captured_values
from spmd.runtime.compile import compile as compile_module


def _program(body: str, signature: str = "(%x: tensor<8xf32>) -> tensor<8xf32>", result: str = "tensor<8xf32>") -> str:
    return f"func.func @main{signature} {{\n{body}\n  return %r : {result}\n}}\n"


def _step_names(text: str) -> list[str]:
    module = spmd.parse(text)
    _, plan = ModuleLowering(module, Options(backends=("numpy",))).entry(module.function("main"))
    return [step.op.name for step in plan.steps]


def test_equal_ops_are_computed_once_and_unused_ones_never() -> None:
    text = _program("""
  %a = stablehlo.sine %x : tensor<8xf32>
  %b = stablehlo.sine %x : tensor<8xf32>
  %unused = stablehlo.cosine %x : tensor<8xf32>
  %r = stablehlo.add %a, %b : tensor<8xf32>""")
    assert _step_names(text) == ["stablehlo.sine", "stablehlo.add"]
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(spmd.compile(spmd.parse(text))(x)[0], np.sin(x) + np.sin(x))


def _sum(name: str, combiner: str) -> str:
    return f"""
  %{name} = "stablehlo.reduce"(%x, %zero) <{{dimensions = array<i64: 0>}}> ({{
    ^bb0(%l: tensor<f32>, %m: tensor<f32>):
      %{name}s = stablehlo.{combiner} %l, %m : tensor<f32>
      stablehlo.return %{name}s : tensor<f32>
  }}) : (tensor<8xf32>, tensor<f32>) -> tensor<f32>"""


def test_equal_ops_with_regions_are_computed_once_and_unused_ones_never() -> None:
    sums = _sum("a", "add") + _sum("b", "add") + _sum("c", "maximum") + _sum("unused", "minimum")
    text = _program(
        f"""
  %zero = stablehlo.constant dense<0.0> : tensor<f32>{sums}
  %d = stablehlo.multiply %a, %b : tensor<f32>
  %r = stablehlo.add %c, %d : tensor<f32>""",
        signature="(%x: tensor<8xf32>) -> tensor<f32>",
        result="tensor<f32>",
    )
    assert sorted(_step_names(text)) == ["stablehlo.add", "stablehlo.multiply", *["stablehlo.reduce"] * 2]
    (result,) = spmd.compile(spmd.parse(text))(np.arange(8, dtype=np.float32))
    assert result == 28 * 28 + 7


def test_a_loop_makes_its_own_broadcasts_and_sees_other_values_from_outside() -> None:
    text = """func.func @main(%x: tensor<8xf32>, %n: tensor<i32>, %s: tensor<f32>) -> tensor<8xf32> {
  %all = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<8xf32>
  %sine = stablehlo.sine %x : tensor<8xf32>
  %first = stablehlo.add %all, %sine : tensor<8xf32>
  %r:2 = stablehlo.while(%i = %n, %y = %first) : tensor<i32>, tensor<8xf32>
  cond {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %more = stablehlo.compare GT, %i, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %less = stablehlo.subtract %i, %one : tensor<i32>
    %again = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<8xf32>
    %same = stablehlo.sine %x : tensor<8xf32>
    %sum = stablehlo.add %again, %same : tensor<8xf32>
    %product = stablehlo.multiply %sum, %y : tensor<8xf32>
    stablehlo.return %less, %product : tensor<i32>, tensor<8xf32>
  }
  return %r#1 : tensor<8xf32>
}"""
    function = spmd.parse(text).function("main")
    simplify(function.body, lambda op, arrays: None)
    loop = next(op for op in function.body.ops if op.regions)
    seen = {value.defining_op.name for value in captured_values(loop) if value.defining_op is not None}
    assert seen == {"stablehlo.sine"}
    x = np.arange(8, dtype=np.float32)
    (result,) = spmd.compile(spmd.parse(text))(x, np.int32(2), np.float32(3))
    np.testing.assert_allclose(result, (3 + np.sin(x)) ** 3, rtol=1e-6)


def test_regions_that_see_different_values_are_different() -> None:
    def loop(name: str, seen: str) -> str:
        return f"""
  %{name}:2 = stablehlo.while(%{name}i = %zero, %{name}v = %x) : tensor<i32>, tensor<8xf32> cond {{
    %p = stablehlo.compare LT, %{name}i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }} do {{
    %j = stablehlo.add %{name}i, %one : tensor<i32>
    %w = stablehlo.add %{name}v, %{seen} : tensor<8xf32>
    stablehlo.return %j, %w : tensor<i32>, tensor<8xf32>
  }}"""

    text = _program(
        f"""
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %y = stablehlo.negate %x : tensor<8xf32>{loop("a", "x")}{loop("b", "y")}{loop("c", "x")}
  %s = stablehlo.multiply %a#1, %c#1 : tensor<8xf32>
  %r = stablehlo.subtract %s, %b#1 : tensor<8xf32>""",
        signature="(%x: tensor<8xf32>, %n: tensor<i32>) -> tensor<8xf32>",
    )
    assert _step_names(text).count("stablehlo.while") == 2
    x = np.arange(8, dtype=np.float32)
    (result,) = spmd.compile(spmd.parse(text))(x, np.int32(3))
    np.testing.assert_array_equal(result, (4 * x) ** 2 + 2 * x)


def test_constants_are_folded() -> None:
    text = _program("""
  %a = stablehlo.constant dense<2.0> : tensor<8xf32>
  %b = stablehlo.add %a, %a : tensor<8xf32>
  %r = stablehlo.multiply %x, %b : tensor<8xf32>""")
    assert _step_names(text) == ["stablehlo.multiply"]
    np.testing.assert_array_equal(spmd.compile(spmd.parse(text))(np.ones(8, np.float32))[0], np.full(8, 4, np.float32))


def test_splats_are_constants_however_large() -> None:
    """A loop that reads one, computed outside of it, reads no array."""
    text = """func.func @main(%x: tensor<300x300xf32>) -> tensor<300x300xf32> {
      %one = stablehlo.constant dense<1.0> : tensor<f32>
      %b = stablehlo.broadcast_in_dim %one, dims = [] : (tensor<f32>) -> tensor<300x300xf32>
      %r = stablehlo.reshape %b : (tensor<300x300xf32>) -> tensor<90000xf32>
      %s = stablehlo.reshape %r : (tensor<90000xf32>) -> tensor<300x300xf32>
      %y = stablehlo.add %x, %s : tensor<300x300xf32>
      return %y : tensor<300x300xf32>
    }"""
    assert _step_names(text) == ["stablehlo.add"]
    x = np.arange(90000, dtype=np.float32).reshape(300, 300)
    np.testing.assert_array_equal(spmd.compile(spmd.parse(text))(x)[0], x + 1)


def test_calls_are_inlined_and_recursion_is_refused() -> None:
    text = """
func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %r = func.call @twice(%x) : (tensor<8xf32>) -> tensor<8xf32>
  return %r : tensor<8xf32>
}
func.func private @twice(%x: tensor<8xf32>) -> tensor<8xf32> {
  %r = stablehlo.add %x, %x : tensor<8xf32>
  return %r : tensor<8xf32>
}"""
    assert _step_names(text) == ["stablehlo.add"]
    looped = text.replace("stablehlo.add %x, %x : tensor<8xf32>",
                          "func.call @twice(%x) : (tensor<8xf32>) -> tensor<8xf32>")  # fmt: skip
    with pytest.raises(spmd.CompileError, match="recursive call: @main -> @twice -> @twice"):
        spmd.compile(spmd.parse(looped))


def test_arguments_are_never_written_to() -> None:
    text = _program("""
  %a = stablehlo.add %x, %x : tensor<8xf32>
  %b = stablehlo.multiply %a, %x : tensor<8xf32>
  %r = stablehlo.negate %b : tensor<8xf32>""")
    x = np.arange(8, dtype=np.float32)
    kept = x.copy()
    (result,) = spmd.compile(spmd.parse(text))(x)
    np.testing.assert_array_equal(x, kept)
    np.testing.assert_array_equal(result, -(kept + kept) * kept)


def test_dead_buffers_are_reused_in_place() -> None:
    text = _program("""
  %a = stablehlo.add %x, %x : tensor<8xf32>
  %b = stablehlo.multiply %a, %x : tensor<8xf32>
  %r = stablehlo.negate %b : tensor<8xf32>""")
    module = spmd.parse(text)
    _, plan = ModuleLowering(module, Options(backends=("numpy",))).entry(module.function("main"))
    assert [step.out is not None for step in plan.steps] == [False, True, True]


def test_results_are_the_callers_own() -> None:
    text = "func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<2x2xf32>) {\n" \
           "  %c = stablehlo.constant dense<1.0> : tensor<4xf32>\n" \
           "  %r = stablehlo.reshape %x : (tensor<4xf32>) -> tensor<2x2xf32>\n" \
           "  return %x, %c, %r : tensor<4xf32>, tensor<4xf32>, tensor<2x2xf32>\n}"  # fmt: skip
    exe = spmd.compile(spmd.parse(text))
    x = np.zeros(4, np.float32)
    same, constant, shaped = exe(x)
    for array in (same, constant, shaped):
        array[...] = 7.0
    np.testing.assert_array_equal(x, np.zeros(4, np.float32))
    np.testing.assert_array_equal(exe(x)[1], np.ones(4, np.float32))


def test_a_loop_overwrites_its_own_state_and_nothing_else() -> None:
    text = """
func.func @main(%x: tensor<64xf32>) -> (tensor<64xf32>, tensor<i32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %limit = stablehlo.constant dense<64> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %v = stablehlo.constant dense<5.0> : tensor<1xf32>
  %r:2 = stablehlo.while(%s = %x, %i = %zero) : tensor<64xf32>, tensor<i32>
  cond {
    %p = stablehlo.compare LT, %i, %limit, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %n = stablehlo.dynamic_update_slice %s, %v, %i : (tensor<64xf32>, tensor<1xf32>, tensor<i32>) -> tensor<64xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %j : tensor<64xf32>, tensor<i32>
  }
  return %r#0, %r#1 : tensor<64xf32>, tensor<i32>
}"""
    module = spmd.parse(text)
    exe = spmd.compile(module)
    x = np.zeros(64, np.float32)
    for _ in range(2):
        filled, count = exe(x)
        np.testing.assert_array_equal(filled, np.full(64, 5, np.float32))
        assert count == 64
    np.testing.assert_array_equal(x, np.zeros(64, np.float32))
    loop = next(op for op in module.walk() if op.name == "stablehlo.while")
    assert ModuleLowering(module, Options(backends=("numpy",))).loop_body(loop, 1)[1] == (0,)


def test_a_loop_that_swaps_its_state_stays_right() -> None:
    text = """
func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %limit = stablehlo.constant dense<3> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:3 = stablehlo.while(%a = %x, %b = %y, %i = %zero) : tensor<4xf32>, tensor<4xf32>, tensor<i32>
  cond {
    %p = stablehlo.compare LT, %i, %limit, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %n = stablehlo.add %a, %b : tensor<4xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %b, %n, %j : tensor<4xf32>, tensor<4xf32>, tensor<i32>
  }
  return %r#0, %r#1 : tensor<4xf32>, tensor<4xf32>
}"""
    x, y = np.ones(4, np.float32), np.full(4, 2, np.float32)
    a, b = spmd.compile(spmd.parse(text))(x, y)
    np.testing.assert_array_equal(a, np.full(4, 5, np.float32))
    np.testing.assert_array_equal(b, np.full(4, 8, np.float32))
    np.testing.assert_array_equal((x, y), (np.ones(4), np.full(4, 2)))


@pytest.mark.parametrize("shape", [(1 << 18,), (3, 100_003), (1, 2048, 256), (70, 61, 67)])
def test_blocked_chains_equal_unblocked_ones(shape: tuple[int, ...]) -> None:
    type_ = f"tensor<{'x'.join(map(str, shape))}xf32>"
    text = (
        _program(
            f"""
  %a = stablehlo.add %x, %y : {type_}
  %b = stablehlo.floor %a : {type_}
  %c = stablehlo.multiply %b, %x : {type_}
  %d = stablehlo.subtract %c, %a : {type_}
  %r = stablehlo.maximum %d, %b : {type_}""",
            f"(%x: {type_}, %y: {type_}) -> ({type_}, {type_})",
            type_,
        )
        .replace("return %r :", "return %r, %c :")
        .replace(f": {type_}\n}}", f": {type_}, {type_}\n}}")
    )
    module = spmd.parse(text)
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape, np.float32) for _ in range(2))
    turned = np.asfortranarray(x)
    blocked, plain = compile_module(module), compile_module(module, backends=("numpy",))
    assert len(shape) == 1 or not turned.flags.c_contiguous or 1 in shape
    for x_of_layout in (x, turned):
        for left, right in zip(blocked(x_of_layout, y), plain(x_of_layout, y), strict=True):
            np.testing.assert_array_equal(left, right)


def test_an_exception_in_a_kernel_names_the_op_and_its_line() -> None:
    def broken(*arrays: object, attributes: object) -> object:
        raise RuntimeError("disk on fire")

    spmd.register_custom_call("test.broken", broken)
    text = _program("  %r = stablehlo.custom_call @test.broken(%x) : (tensor<8xf32>) -> tensor<8xf32>")
    with pytest.raises(spmd.ExecutionError, match=r"broken.mlir:2:\d+: stablehlo.custom_call: .*disk on fire"):
        spmd.compile(spmd.parse(text, "broken.mlir"))(np.zeros(8, np.float32))


def test_wrong_arguments_are_refused() -> None:
    exe = spmd.compile(spmd.parse(_program("  %r = stablehlo.negate %x : tensor<8xf32>")))
    with pytest.raises(spmd.ExecutionError, match="takes 1 arguments, got 2"):
        exe(np.zeros(8, np.float32), np.zeros(8, np.float32))
    with pytest.raises(spmd.ExecutionError, match=r"tensor<8xf32> is needed, got float64 of shape \(8,\)"):
        exe(np.zeros(8))
    with pytest.raises(spmd.ExecutionError, match=r"got float32 of shape \(7,\)"):
        exe(np.zeros(7, np.float32))


def test_dynamic_programs_take_any_shape_that_fits() -> None:
    text = """
func.func @main(%x: tensor<?x3xf32>) -> tensor<?xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.add %x, %x : tensor<?x3xf32>
  %r = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<?x3xf32>, tensor<f32>) -> tensor<?xf32>
  return %r : tensor<?xf32>
}"""
    exe = spmd.compile(spmd.parse(text))
    for rows in (1, 5, 0, 5):
        np.testing.assert_array_equal(exe(np.ones((rows, 3), np.float32))[0], np.full(rows, 6, np.float32))


def test_broadcasts_are_left_to_pointwise_ops() -> None:
    text = """
func.func @main(%x: tensor<600x4096xf32>, %row: tensor<4096xf32>, %column: tensor<600xf32>, %s: tensor<f32>)
    -> (tensor<600x4096xf32>, tensor<600x4096xf32>) {
  %r = stablehlo.broadcast_in_dim %row, dims = [1] : (tensor<4096xf32>) -> tensor<600x4096xf32>
  %c = stablehlo.broadcast_in_dim %column, dims = [0] : (tensor<600xf32>) -> tensor<600x4096xf32>
  %t = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<600x4096xf32>
  %a = stablehlo.add %x, %r : tensor<600x4096xf32>
  %b = stablehlo.multiply %a, %c : tensor<600x4096xf32>
  %d = stablehlo.subtract %b, %t : tensor<600x4096xf32>
  %both = stablehlo.add %r, %c : tensor<600x4096xf32>
  return %d, %both : tensor<600x4096xf32>, tensor<600x4096xf32>
}"""
    rng = np.random.default_rng(0)
    x, row, column = (rng.standard_normal(shape, np.float32) for shape in ((600, 4096), (4096,), (600,)))
    s = np.float32(0.5)
    for backends in (("llvm", "numpy"), ("numpy",)):
        d, both = compile_module(spmd.parse(text), backends=backends)(x, row, column, s)
        np.testing.assert_array_equal(d, (x + row) * column[:, None] - s)
        np.testing.assert_array_equal(both, row + column[:, None])


@pytest.mark.parametrize("columns", [100, 600, 9000])
@pytest.mark.parametrize("narrow", ["300x1", "1xN"])
def test_broadcast_operands_are_read_in_rows_of_any_length(columns: int, narrow: str) -> None:
    rows = 300
    dims, size = ("[0]", rows) if narrow == "300x1" else ("[1]", columns)
    whole = f"tensor<{rows}x{columns}xf32>"
    text = f"""
func.func @main(%x: {whole}, %v: tensor<{size}xf32>) -> {whole} {{
  %b = stablehlo.broadcast_in_dim %v, dims = {dims} : (tensor<{size}xf32>) -> {whole}
  %0 = stablehlo.subtract %x, %b : {whole}
  %1 = stablehlo.multiply %0, %b : {whole}
  return %1 : {whole}
}}"""
    random = np.random.default_rng(columns)
    x = random.standard_normal((rows, columns), dtype=np.float32)
    v = random.standard_normal(size, dtype=np.float32)
    buffer = np.getbufsize()
    (result,) = spmd.compile(spmd.parse(text))(x, v)
    across = v[:, None] if narrow == "300x1" else v
    np.testing.assert_array_equal(result, (x - across) * across)
    assert np.getbufsize() == buffer


@pytest.mark.parametrize("element", ["f32", "f16", "i8", "f64"])
def test_a_narrow_predicate_chooses_for_all_that_share_it(element: str) -> None:
    dtype = {"f32": np.float32, "f16": np.float16, "i8": np.int8, "f64": np.float64}[element]
    whole = f"tensor<6x40x50x{element}>"
    text = f"""
func.func @main(%p: tensor<40x50xi1>, %x: {whole}, %y: {whole}) -> ({whole}, {whole}) {{
  %b = stablehlo.broadcast_in_dim %p, dims = [1, 2] : (tensor<40x50xi1>) -> tensor<6x40x50xi1>
  %0 = stablehlo.select %b, %x, %y : tensor<6x40x50xi1>, {whole}
  %1 = stablehlo.select %b, %y, %x : tensor<6x40x50xi1>, {whole}
  return %0, %1 : {whole}, {whole}
}}"""
    random = np.random.default_rng(3)
    p = random.random((40, 50)) < 0.5
    x, y = random.integers(-100, 100, (2, 6, 40, 50)).astype(dtype)
    first, second = spmd.compile(spmd.parse(text))(p, x, y)
    np.testing.assert_array_equal(first, np.where(p, x, y))
    np.testing.assert_array_equal(second, np.where(p, y, x))


def test_a_choice_between_narrow_values_and_zeros_has_the_shape_of_the_zeros() -> None:
    text = """
func.func @main(%p: tensor<3x2xi1>, %x: tensor<1xf32>) -> tensor<1x2x3xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<1x3x2xf32>
  %b = stablehlo.broadcast_in_dim %p, dims = [1, 2] : (tensor<3x2xi1>) -> tensor<1x3x2xi1>
  %c = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<1xf32>) -> tensor<1x3x2xf32>
  %0 = stablehlo.select %b, %c, %zero : tensor<1x3x2xi1>, tensor<1x3x2xf32>
  %1 = stablehlo.transpose %0, dims = [0, 2, 1] : (tensor<1x3x2xf32>) -> tensor<1x2x3xf32>
  return %1 : tensor<1x2x3xf32>
}"""
    p = np.array([[True, False], [False, True], [True, True]])
    (result,) = spmd.compile(spmd.parse(text))(p, np.array([5], np.float32))
    np.testing.assert_array_equal(result, np.where(p.T[None], np.float32(5), 0))
