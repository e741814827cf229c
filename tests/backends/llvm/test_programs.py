"""Whole programs in native code against the NumPy back end: fusion, buffers, rows, loops and products together."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spmd
from tests.backends.llvm.drawn import drawn_program
from tests.effort import examples


@given(st.data())
@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
def test_native_code_and_numpy_agree(data: st.DataObject) -> None:
    module, arrays = drawn_program(data, 14)
    kept = [array.copy() for array in arrays]
    native = spmd.compile(module)(*arrays)
    plain = spmd.compile(module, backends=("numpy",))(*arrays)
    for mine, other in zip(_flat(native), _flat(plain), strict=True):
        assert mine.dtype == other.dtype and mine.shape == other.shape
        np.testing.assert_allclose(mine, other, rtol=2e-4, atol=2e-4 * max(1, np.abs(other).max(initial=0)))
    for array, before in zip(arrays, kept, strict=True):
        np.testing.assert_array_equal(array, before)


def _flat(results: tuple) -> list:
    return [leaf for result in results for leaf in (result if isinstance(result, tuple) else (result,))]


def test_a_result_over_an_operand_leaves_what_other_results_read() -> None:
    """Of two results of one loop the first takes an operand's memory that the second alone reads."""
    module = spmd.parse("""func.func @main(%x: tensor<8x48xf32>, %p: tensor<48xf32>) -> tensor<48x48xf32> {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<8x48xf32>, tensor<f32>) -> tensor<48xf32>
      %b = stablehlo.atan2 %p, %s : tensor<48xf32>
      %a = stablehlo.tanh %p : tensor<48xf32>
      %rows = stablehlo.broadcast_in_dim %a, dims = [1] : (tensor<48xf32>) -> tensor<48x48xf32>
      %more = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<48xf32>) -> tensor<48x48xf32>
      %r = stablehlo.subtract %rows, %more : tensor<48x48xf32>
      %columns = stablehlo.transpose %more, dims = [1, 0] : (tensor<48x48xf32>) -> tensor<48x48xf32>
      %t = stablehlo.multiply %r, %columns : tensor<48x48xf32>
      return %t : tensor<48x48xf32>
    }""")
    x = np.random.default_rng(0).standard_normal((8, 48)).astype(np.float32)
    (native,), (plain,) = spmd.compile(module)(x, x[0]), spmd.compile(module, backends=("numpy",))(x, x[0])
    np.testing.assert_allclose(native, plain, rtol=1e-5, atol=1e-5)


def test_a_loop_leaves_what_its_turns_read_from_outside() -> None:
    """What a loop begins with is read by every turn of it, too."""
    module = spmd.parse("""func.func @main(%x: tensor<4x4xf32>, %turns: tensor<i32>) -> tensor<i32> {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %start = stablehlo.multiply %x, %x : tensor<4x4xf32>
      %r:3 = stablehlo.while(%i = %zero, %v = %start, %n = %zero) : tensor<i32>, tensor<4x4xf32>, tensor<i32>
        cond {
          %c = stablehlo.compare LT, %i, %turns : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %c : tensor<i1>
        } do {
          %next = stablehlo.add %i, %one : tensor<i32>
          %w = stablehlo.dot_general %v, %start, contracting_dims = [1] x [0]
            : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
          %u = stablehlo.add %w, %v : tensor<4x4xf32>
          %first = stablehlo.slice %u [1:2, 2:3] : (tensor<4x4xf32>) -> tensor<1x1xf32>
          %number = stablehlo.reshape %first : (tensor<1x1xf32>) -> tensor<f32>
          %bits = stablehlo.bitcast_convert %number : (tensor<f32>) -> tensor<i32>
          %m = stablehlo.xor %bits, %n : tensor<i32>
          stablehlo.return %next, %u, %m : tensor<i32>, tensor<4x4xf32>, tensor<i32>
        }
      return %r#2 : tensor<i32>
    }""")
    x = np.random.default_rng(0).integers(-2, 3, (4, 4)).astype(np.float32)
    five = np.int32(5)
    (native,), (plain,) = spmd.compile(module)(x, five), spmd.compile(module, backends=("numpy",))(x, five)
    assert native == plain
