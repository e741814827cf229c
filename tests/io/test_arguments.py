"""Arguments made from a signature: floats that vary, integers that stay in range of what they index."""

import numpy as np

import spmd
from spmd.io import arguments

GATHER = """
func.func @main(%table: tensor<50x4xf32>, %rows: tensor<7xi32>) -> tensor<7x4xf32> {
  %0 = call @clean(%rows) : (tensor<7xi32>) -> tensor<7x1xi32>
  %1 = "stablehlo.gather"(%table, %0) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],
      collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
      slice_sizes = array<i64: 1, 4>}> : (tensor<50x4xf32>, tensor<7x1xi32>) -> tensor<7x4xf32>
  return %1 : tensor<7x4xf32>
}
func.func private @clean(%rows: tensor<7xi32>) -> tensor<7x1xi32> {
  %0 = stablehlo.broadcast_in_dim %rows, dims = [0] : (tensor<7xi32>) -> tensor<7x1xi32>
  return %0 : tensor<7x1xi32>
}
"""
SLICE = """
func.func @main(%a: tensor<9x30xf32>, %i: tensor<i64>, %j: tensor<i64>) -> tensor<1x1xf32> {
  %0 = stablehlo.dynamic_slice %a, %i, %j, sizes = [1, 1]
    : (tensor<9x30xf32>, tensor<i64>, tensor<i64>) -> tensor<1x1xf32>
  return %0 : tensor<1x1xf32>
}
"""
MIXED = """
func.func @main(%a: tensor<3xi1>, %b: tensor<4xcomplex<f32>>, %c: tensor<2xui32>, %d: tensor<5xbf16>, %e: tensor<f64>) {
  return
}
"""


def test_an_index_is_bounded_by_the_dimension_it_comes_to_through_calls() -> None:
    module = spmd.parse(GATHER)
    main = module.function("main")
    assert arguments.index_bound(module, main, main.arguments[1]) == 50


def test_each_index_of_a_slice_has_its_own_dimension() -> None:
    module = spmd.parse(SLICE)
    main = module.function("main")
    assert [arguments.index_bound(module, main, value) for value in main.arguments[1:]] == [9, 30]


def test_arrays_have_the_declared_shapes_and_types() -> None:
    module = spmd.parse(MIXED)
    arrays = arguments.make(module)
    declared = [value.tensor for value in module.function("main").arguments]
    assert [(array.shape, array.dtype) for array in arrays] == [(type.shape, type.dtype) for type in declared]
    again = arguments.make(module)
    assert all(np.array_equal(first, second) for first, second in zip(arrays, again, strict=True))
