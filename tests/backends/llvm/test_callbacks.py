"""Native loops and branches that hold ops without a native form: Python runs those alone."""

from __future__ import annotations

import numpy as np
import pytest

import spmd
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.options import chosen_options

LOOP = """module {{
  func.func @main(%x: {type}, %n: tensor<i32>) -> ({type}, tensor<i32>) {{
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %r:2 = stablehlo.while(%v = %x, %i = %zero) : {type}, tensor<i32>
      cond {{
        %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }} do {{
        {body}
        %next = stablehlo.add %i, %one : tensor<i32>
        stablehlo.return %w, %next : {type}, tensor<i32>
      }}
    return %r#0, %r#1 : {type}, tensor<i32>
  }}
}}"""
SORT = """%s = "stablehlo.sort"(%v) ({{
          ^bb0(%a: tensor<{0}>, %b: tensor<{0}>):
            %l = stablehlo.compare LT, %a, %b : (tensor<{0}>, tensor<{0}>) -> tensor<i1>
            stablehlo.return %l : tensor<i1>
        }}) {{dimension = 1 : i64, is_stable = true}} : (tensor<3x{1}x{0}>) -> tensor<3x{1}x{0}>
        %k = stablehlo.constant dense<-1.5> : tensor<3x{1}x{0}>
        %w = stablehlo.multiply %s, %k : tensor<3x{1}x{0}>"""


def steps(module: spmd.Module) -> list[str]:
    """The ops by which the steps of the program are known."""
    lowering = ModuleLowering(module, chosen_options(spmd.ProcessGrid(1, 1), {}))
    _, plan = lowering.entry(module.functions[0])
    return [step.op.name for step in plan.steps]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("element", ["f32", "f64", "bf16", "f8E4M3FN"])
@pytest.mark.parametrize("size", [0, 1, 37])
def test_a_loop_around_an_op_of_python_is_native(element: str, size: int) -> None:
    module = spmd.parse(LOOP.format(type=f"tensor<3x{size}x{element}>", body=SORT.format(element, size)))
    assert steps(module) == ["stablehlo.while"]
    dtype = module.functions[0].body.arguments[0].tensor.dtype
    x = np.random.default_rng(0).standard_normal((3, size)).astype(dtype)
    for turns in (0, 1, 4):
        native = spmd.compile(module)(x, np.int32(turns))
        plain = spmd.compile(module, backends=("numpy",))(x, np.int32(turns))
        for mine, other in zip(native, plain, strict=True):
            np.testing.assert_array_equal(np.asarray(mine), np.asarray(other))


def test_an_exception_names_the_op_and_stops_the_loop() -> None:
    calls = []

    def target(x: np.ndarray, attributes: dict[str, object]) -> np.ndarray:
        calls.append(x)
        if len(calls) == 3:
            raise ZeroDivisionError("the third")
        return x + 1

    spmd.register_custom_call("test_callbacks.third", target)
    body = "%w = stablehlo.custom_call @test_callbacks.third(%v) : (tensor<2xf32>) -> tensor<2xf32>"
    module = spmd.parse(LOOP.format(type="tensor<2xf32>", body=body), name="third.mlir")
    with pytest.raises(spmd.ExecutionError, match=r"third\.mlir:10:14: stablehlo.custom_call") as caught:
        spmd.compile(module)(np.zeros(2, np.float32), np.int32(9))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert [x.tolist() for x in calls] == [[0, 0], [1, 1], [2, 2]], "arrays that are kept keep their numbers"


def test_collectives_in_a_native_loop_run_for_their_own_process() -> None:
    body = """%s = "stablehlo.all_reduce"(%v) ({
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
            %t = stablehlo.add %a, %b : tensor<f32>
            stablehlo.return %t : tensor<f32>
        }) {replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>} : (tensor<2xf32>) -> tensor<2xf32>
        %p = stablehlo.replica_id : tensor<ui32>
        %q = stablehlo.convert %p : (tensor<ui32>) -> tensor<f32>
        %b = stablehlo.broadcast_in_dim %q, dims = [] : (tensor<f32>) -> tensor<2xf32>
        %w = stablehlo.add %s, %b : tensor<2xf32>"""
    module = spmd.parse(LOOP.format(type="tensor<2xf32>", body=body))
    grid = spmd.ProcessGrid(4, 1)
    inputs = [(np.array([rank, 10 * rank], np.float32), np.int32(5)) for rank in range(4)]
    native = spmd.run_parallel(module, grid, inputs)
    plain = spmd.run_parallel(module, grid, inputs, backends=("numpy",))
    for mine, other in zip(native, plain, strict=True):
        np.testing.assert_array_equal(mine[0], other[0])


def test_effects_in_a_native_loop_keep_their_order_by_tokens() -> None:
    module = spmd.parse("""func.func @main(%n: tensor<i32>) -> tensor<i32> {
      %start = stablehlo.create_token : !stablehlo.token
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %r:2 = stablehlo.while(%i = %zero, %t = %start) : tensor<i32>, !stablehlo.token
        cond {
          %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %c : tensor<i1>
        } do {
          %o = "stablehlo.outfeed"(%i, %t) {outfeed_config = ""} : (tensor<i32>, !stablehlo.token) -> !stablehlo.token
          %next = stablehlo.add %i, %one : tensor<i32>
          %p = "stablehlo.outfeed"(%next, %o) : (tensor<i32>, !stablehlo.token) -> !stablehlo.token
          stablehlo.return %next, %p : tensor<i32>, !stablehlo.token
        }
      return %r#0 : tensor<i32>
    }""")
    assert steps(module)[-1] == "stablehlo.while"
    written: list[list] = [[]]
    ((count,),) = spmd.run_parallel(module, spmd.ProcessGrid(1, 1), [(np.int32(3),)], outfeed=written)
    assert count == 3
    assert [int(entry) for entry in written[0]] == [0, 1, 1, 2, 2, 3]
