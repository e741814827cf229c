"""Programs whose steps are predicted."""

from tests.loops import counted_loop

#: A data-parallel step: a product, its gradient's sum over all processes, and an update.
DATA_PARALLEL = """
module attributes {mhlo.num_replicas = 4 : i32} {
  func.func @main(%w: tensor<64x32xf32>, %x: tensor<128x64xf32>) -> tensor<64x32xf32> {
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<128x64xf32>, tensor<64x32xf32>) -> tensor<128x32xf32>
    %t = stablehlo.tanh %y : tensor<128x32xf32>
    %g = stablehlo.dot_general %x, %t, contracting_dims = [0] x [0]
      : (tensor<128x64xf32>, tensor<128x32xf32>) -> tensor<64x32xf32>
    %s = "stablehlo.all_reduce"(%g) <{replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %sum = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %sum : tensor<f32>
    }) : (tensor<64x32xf32>) -> tensor<64x32xf32>
    %r = stablehlo.subtract %w, %s : tensor<64x32xf32>
    return %r : tensor<64x32xf32>
  }
}
"""

#: The same for the whole mesh: the rows of %x are cut.
SHARDED = """
module {
  sdy.mesh @mesh = <["data"=4]>
  func.func @main(%w: tensor<64x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>},
                  %x: tensor<512x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>})
      -> (tensor<64x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<512x64xf32>, tensor<64x32xf32>) -> tensor<512x32xf32>
    %t = stablehlo.tanh %y : tensor<512x32xf32>
    %g = stablehlo.dot_general %x, %t, contracting_dims = [0] x [0]
      : (tensor<512x64xf32>, tensor<512x32xf32>) -> tensor<64x32xf32>
    %r = stablehlo.subtract %w, %g : tensor<64x32xf32>
    return %r : tensor<64x32xf32>
  }
}
"""


def loop(turns: int | str, body: str = "%u = stablehlo.tanh %v : tensor<1000xf32>") -> str:
    """A loop over a thousand numbers; `turns` is how many, or the name of an argument that says."""
    taken = "" if isinstance(turns, int) else f", {turns}: tensor<i32>"
    return f"""
func.func @main(%a: tensor<1000xf32>{taken}) -> tensor<1000xf32> {{
{counted_loop("tensor<1000xf32>", body, turns, "%a")}
  return %r#1 : tensor<1000xf32>
}}
"""
