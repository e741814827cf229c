"""Choices follow what messages and operations cost."""

import partitioner
import spmd
from partitioner.report import total_bytes
from spmd.predict.machine import nominal
from spmd.predict.prediction import partitioner_prices

#: A product whose rows are cut, and wanted whole: its operand is much smaller than its result.
PROGRAM = """
module {
  sdy.mesh @mesh = <["x"=4]>
  func.func @main(%a: tensor<64x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
                  %b: tensor<4x256xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>})
      -> (tensor<64x256xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<64x4xf32>, tensor<4x256xf32>) -> tensor<64x256xf32>
    return %0 : tensor<64x256xf32>
  }
}
"""


def sent(prices: partitioner.Prices) -> int:
    """Bytes that a process sends."""
    with partitioner.using(prices):
        parts = partitioner.partition(spmd.parse(PROGRAM), spmd.ProcessGrid(1, 4))
    return total_bytes(parts.module)


def test_where_operations_are_dear_they_are_shared() -> None:
    """Each process multiplies its rows and all get the result, or all get the operand and multiply the whole of it."""
    assert sent(partitioner.Prices(operations=1.0)) == 3 * 4 * 16 * 256
    assert sent(partitioner.Prices(operations=1000.0)) == 3 * 4 * 16 * 4


def test_prices_hold_within_their_block_alone() -> None:
    before = partitioner.partition(spmd.parse(PROGRAM), spmd.ProcessGrid(1, 4)).module
    sent(partitioner.Prices(latency=1e9, operations=1e-3))
    assert str(partitioner.partition(spmd.parse(PROGRAM), spmd.ProcessGrid(1, 4)).module) == str(before)


def test_a_machine_s_figures_are_prices() -> None:
    prices = partitioner_prices(nominal())
    assert prices == partitioner.Prices(1e-6 * 1e10, 6e10 / 1e10)
