"""What units cost: bytes that they touch, work by kind, and what waits for what."""

import pytest

import spmd
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.prepare import prepare
from spmd.compiler.schedule.costs import cost_of_unit, ready_time, work_of_unit
from spmd.compiler.schedule.fusion import Unit, fuse
from spmd.compiler.schedule.units import nests_of

UPDATE = """
func.func @main(%x: tensor<1000x64xf32>, %u: tensor<1x64xf32>, %i: tensor<i32>) -> tensor<1000x64xf32> {
  %n = stablehlo.negate %u : tensor<1x64xf32>
  %z = stablehlo.constant dense<0> : tensor<i32>
  %r = stablehlo.dynamic_update_slice %x, %n, %i, %z
    : (tensor<1000x64xf32>, tensor<1x64xf32>, tensor<i32>, tensor<i32>) -> tensor<1000x64xf32>
  return %r : tensor<1000x64xf32>
}"""
SLICE = """
func.func @main(%x: tensor<1000x64xf32>, %i: tensor<i32>) -> tensor<1x64xf32> {
  %z = stablehlo.constant dense<0> : tensor<i32>
  %s = stablehlo.dynamic_slice %x, %i, %z, sizes = [1, 64]
    : (tensor<1000x64xf32>, tensor<i32>, tensor<i32>) -> tensor<1x64xf32>
  %r = stablehlo.negate %s : tensor<1x64xf32>
  return %r : tensor<1x64xf32>
}"""
GATHER = """
func.func @main(%x: tensor<1000xf32>, %i: tensor<64x1xi32>) -> tensor<64xf32> {
  %r = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0],
    start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>}>
    : (tensor<1000xf32>, tensor<64x1xi32>) -> tensor<64xf32>
  return %r : tensor<64xf32>
}"""


def units(text: str) -> list[Unit]:
    prepared = prepare(spmd.parse(text))
    block = ModuleLowering(prepared.module, prepared.options).flatten(prepared.function).body
    return list(fuse(block, block.terminator.operands))


def kinds(text: str) -> dict[str, float]:
    (unit,) = units(text)
    return {work.kind: work.amount for work in work_of_unit(unit)}


def test_an_update_writes_what_it_puts_down() -> None:
    (unit,) = units(UPDATE)
    assert cost_of_unit(unit).written == 64 * 4


def test_places_that_are_computed_once_are_neighbours() -> None:
    assert "indexed" not in kinds(SLICE) and "updated" not in kinds(UPDATE)
    assert kinds(GATHER)["indexed"] == 64


def elementwise(*ops: str, count: int = 64) -> str:
    type = f"tensor<{count}xf32>"
    names = ["%x", *(f"%v{number}" for number in range(len(ops)))]
    lines = [f"{names[place + 1]} = stablehlo.{op.format(names[place])} : {type}" for place, op in enumerate(ops)]
    body = "\n".join(lines)
    return f"func.func @main(%x: {type}) -> {type} {{\n{body}\nreturn {names[-1]} : {type}\n}}"


def test_divisions_and_functions_are_kinds_of_their_own() -> None:
    work = kinds(elementwise("divide %x, {}", "sqrt {}", "exponential {}", "add %x, {}"))
    assert work["division"] == 2 * 64 and work["elementwise"] == 64 and work["function"] > 4 * 64


def test_a_few_points_take_as_long_as_a_register_of_them() -> None:
    one, many = (kinds(elementwise("add %x, {}", count=count))["elementwise"] for count in (1, 16))
    assert one == many < kinds(elementwise("add %x, {}", count=17))["elementwise"]


@pytest.mark.parametrize(
    ("ops", "way"), [(("add %x, {}",), 1), (("add %x, {}", "multiply {0}, {0}"), 2), (("negate {}",), 0.25)]
)
def test_what_comes_late_makes_its_result_late(ops: tuple[str, ...], way: float) -> None:
    (unit,) = units(elementwise(*ops))
    nests = nests_of(unit)
    (argument,) = {load.value for nest in nests for load in nest.loads()}
    assert ready_time(nests, {}) == way and ready_time(nests, {argument: 7.0}) == 7 + way


def test_convolutions_are_products_of_their_windows() -> None:
    (unit,) = units("""
func.func @main(%x: tensor<2x10x8xf32>, %w: tensor<3x8x16xf32>) -> tensor<2x8x16xf32> {
  %r = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<2x10x8xf32>, tensor<3x8x16xf32>) -> tensor<2x8x16xf32>
  return %r : tensor<2x8x16xf32>
}""")
    (work,) = work_of_unit(unit)
    assert (work.kind, work.form, work.sizes, work.amount) == ("product", "window", (1, 16, 24, 16), 2 * 16 * 24 * 16)
