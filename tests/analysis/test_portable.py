"""Ops as plain data: what is made of it again is the same op, at its own place."""

import pickle

import numpy as np

import spmd
from spmd.analysis.constants import constant_array
from spmd.analysis.portable import NOWHERE, OpNumbers, Packer, Unpacker
from spmd.errors import UNKNOWN
from spmd.ir import Op

TEXT = """
func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> tensor<f32> {
  %w = stablehlo.constant dense<[1.0, -0.0, 0x7FC00000, 4.0]> : tensor<4xf32>
  %s = stablehlo.constant dense<2.5> : tensor<1000x1000xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.add %x, %w : tensor<4xf32>
  %r = "stablehlo.reduce"(%a, %z) <{dimensions = array<i64: 0>}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %t = stablehlo.multiply %p, %z : tensor<f32>
      %m = stablehlo.maximum %t, %q : tensor<f32>
      stablehlo.return %m : tensor<f32>
  }) {note = "kept"} : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  return %r : tensor<f32>
}"""


def ops_of(module: spmd.Module) -> dict[str, Op]:
    return {op.name: op for op in module.walk()}


def there_and_back(module: spmd.Module, op: Op) -> Op:
    """`op`, alone, through a file."""
    packer = Packer(OpNumbers(module))
    portable = packer.reader(op)
    assert packer.is_placed
    portable, tables = pickle.loads(pickle.dumps((portable, packer.tables)))
    return Unpacker(tables, list(module.walk())).op(portable)


def test_an_op_is_made_again_with_its_regions_and_the_constants_that_it_reads() -> None:
    module = spmd.parse(TEXT, "some.mlir")
    add = there_and_back(module, ops_of(module)["stablehlo.add"])
    constant = constant_array(add.operands[1].defining_op)
    assert constant is not None
    assert constant.tobytes() == np.array([1, -0.0, np.nan, 4], np.float32).tobytes()
    reduce = ops_of(module)["stablehlo.reduce"]
    again = there_and_back(module, reduce)
    assert again.definition is reduce.definition and again.result_types == reduce.result_types
    assert again["dimensions"] == reduce["dimensions"] and again.discardable == reduce.discardable
    multiply, maximum, _ = again.regions[0].block.ops
    assert multiply.operands[0] is again.regions[0].block.arguments[0]
    assert maximum.operands[0] is multiply
    assert multiply.operands[1] is again.operands[1], "a captured value is the one that is read outside"


def test_a_splat_is_kept_as_one_element() -> None:
    module = spmd.parse(TEXT)
    packer = Packer()
    packer.op(module)
    assert len(pickle.dumps(packer.tables)) < 10_000


def test_ops_stand_where_they_stood_also_where_one_place_is_that_of_many() -> None:
    module = spmd.parse(TEXT, "some.mlir")
    reduce = ops_of(module)["stablehlo.reduce"]
    again = there_and_back(module, reduce)
    for one, other in zip(reduce.walk(), again.walk(), strict=True):
        assert str(one.location) == str(other.location)
    for op in module.walk():
        op.move(UNKNOWN)
        op.debug_location = f'"{op.name}"'
    for op in module.walk():
        packer = Packer(OpNumbers(module))
        mark = Unpacker(packer.tables, list(module.walk())).op(packer.mark(op))
        assert (mark.name, mark.debug_location) == (op.name, op.debug_location)


def test_an_op_of_another_program_has_no_place() -> None:
    module, other = spmd.parse(TEXT), spmd.parse("// more\n" + TEXT)
    packer = Packer(OpNumbers(module))
    assert packer.mark(ops_of(other)["stablehlo.add"])[-1] == NOWHERE
    assert not packer.is_placed
