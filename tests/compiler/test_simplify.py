"""Equal ops are merged where the earlier one is available."""

import spmd
from spmd.compiler.transforms.simplify import simplify

NESTED = """
func.func @main(%p: tensor<i1>, %x: tensor<8xf32>) -> tensor<8xf32> {
  %around = stablehlo.sine %x : tensor<8xf32>
  %spread = stablehlo.iota dim = 0 : tensor<8xf32>
  %chosen = "stablehlo.if"(%p) ({
    %again = stablehlo.sine %x : tensor<8xf32>
    %iota = stablehlo.iota dim = 0 : tensor<8xf32>
    %inside = stablehlo.add %again, %iota : tensor<8xf32>
    %twice = stablehlo.iota dim = 0 : tensor<8xf32>
    %sum = stablehlo.add %inside, %twice : tensor<8xf32>
    stablehlo.return %sum : tensor<8xf32>
  }, {
    %cosine = stablehlo.cosine %x : tensor<8xf32>
    stablehlo.return %cosine : tensor<8xf32>
  }) : (tensor<i1>) -> tensor<8xf32>
  %behind = stablehlo.cosine %x : tensor<8xf32>
  %0 = stablehlo.add %chosen, %behind : tensor<8xf32>
  %1 = stablehlo.add %around, %spread : tensor<8xf32>
  %2 = stablehlo.add %0, %1 : tensor<8xf32>
  return %2 : tensor<8xf32>
}
"""


def test_a_region_uses_what_is_around_it_and_leaves_nothing_behind() -> None:
    """What spreads to memory is made anew in each region, once."""
    block = spmd.parse(NESTED).function("main").body
    simplify(block, lambda op, arrays: None)
    (chosen,) = (op for op in block.ops if op.regions)
    then, otherwise = ([op.name.partition(".")[2] for op in region.block.ops] for region in chosen.regions)
    assert then == ["iota", "add", "add", "return"]
    assert otherwise == ["cosine", "return"]
    assert [op.name.partition(".")[2] for op in block.ops].count("cosine") == 1
