"""Programs that pages show in tests, each compiled once."""

from __future__ import annotations

from functools import cache

import spmd
from spmd.viewing.view import View

#: Two layers over a mesh of two axes, with JAX's kind of locations: products whose operands and results must move.
LAYERS = """
#loc1 = loc("step.py":3:1)
#loc2 = loc("jit(step)/block_0/mlp/dot_general"(#loc1))
#loc3 = loc("jit(step)/block_1/mlp/dot_general"(#loc1))
module @step {
  sdy.mesh @mesh = <["data"=2, "model"=2]>
  func.func @main(%x: tensor<8x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>},
                  %w: tensor<6x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>},
                  %v: tensor<16x5xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>})
      -> (tensor<8x5xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>},
          tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>}) {
    %h = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<8x6xf32>, tensor<6x16xf32>) -> tensor<8x16xf32> loc(#loc2)
    %t = stablehlo.tanh %h : tensor<8x16xf32> loc(#loc2)
    %y = stablehlo.dot_general %t, %v, contracting_dims = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x5xf32>) -> tensor<8x5xf32> loc(#loc3)
    return %y, %t : tensor<8x5xf32>, tensor<8x16xf32>
  }
}
"""

#: Names that would be more than text if a page took them so, in every place that a program has for names.
BAD = "</script><script>window.hit=1</script><img src=x onerror=window.hit=1>\\\"'&amp;\u2028"
HOSTILE = f"""
module @"{BAD}" {{
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
    %0 = stablehlo.add %x, %x : tensor<4xf32> loc("jit(f)/{BAD}/add"("{BAD}.py":3:4))
    %1 = func.call @"{BAD}"(%0) : (tensor<4xf32>) -> tensor<4xf32> loc("{"long/" * 2000}")
    return %1 : tensor<4xf32>
  }}
  func.func private @"{BAD}"(%x: tensor<4xf32>) -> tensor<4xf32> {{
    %0 = stablehlo.negate %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }}
}}
"""

DYNAMIC = """
func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %0 = stablehlo.add %x, %x : tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}
"""

EMPTY = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"

#: What every process holds goes round and is summed in a loop.
LOOP = """
module attributes {mhlo.num_partitions = 4 : i32} {
  func.func @main(%x: tensor<4x2xi32>) -> tensor<1x8xi32> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %two = stablehlo.constant dense<2> : tensor<i32>
    %0 = "stablehlo.all_to_all"(%x) <{split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 4 : i64,
      replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>,
      channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>}> : (tensor<4x2xi32>) -> tensor<1x8xi32>
    %1:2 = stablehlo.while(%i = %zero, %s = %0) : tensor<i32>, tensor<1x8xi32>
      cond { %c = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
             stablehlo.return %c : tensor<i1> }
      do { %j = stablehlo.add %i, %one : tensor<i32>
           %p = "stablehlo.collective_permute"(%s) <{
             source_target_pairs = dense<[[0, 1], [1, 2], [2, 3], [3, 0]]> : tensor<4x2xi64>,
             channel_handle = #stablehlo.channel_handle<handle = 2, type = 0>}> : (tensor<1x8xi32>) -> tensor<1x8xi32>
           stablehlo.return %j, %p : tensor<i32>, tensor<1x8xi32> }
    return %1#1 : tensor<1x8xi32>
  }
}
"""


@cache
def shown(text: str, *, run: bool = False) -> View:
    """The page of a program, made once."""
    return spmd.view(spmd.parse(text, "program.mlir", verify=False), run=run)
