"""Sums over all processes of products: one product that also contracts the leading axis.

A data-parallel step sums the gradients of all processes, each a product of the process's own arrays. Stacked, that is a
batch of products that is then summed; contracting the leading axis instead, the batch is never stored. The product is
emitted where the batch's was, so live ranges of its operands do not grow.

Its order of summation differs: `reproducible` compilations do without.
"""

from __future__ import annotations

from collectives.reduction import Arithmetic
from spmd.compiler.stack.core import Stacker
from spmd.dialects.structs import DotDimensionNumbersAttr
from spmd.ir import Op, Value
from spmd.types import TensorType


def summed_product(stacker: Stacker, arithmetic: Arithmetic, x: Value) -> Value | None:
    """Return the sum of `x`, (1, processes, 1, ...), over all processes if it is a product of stacked operands; else
    None.
    """
    shape, op = x.tensor.static_shape, x.defining_op
    if stacker.options.reproducible or arithmetic.reduction.name != "add" or arithmetic.dtype.kind != "f":
        return None
    if shape[:3] != (1, stacker.size, 1) or op is None or op.name != "stablehlo.reshape":
        return None
    value = op.operands[0]
    if value.tensor.static_shape != (stacker.size, *shape[3:]):
        return None
    product = _summed(stacker, value)
    return None if product is None else stacker.reshape(product, (1, 1, 1, *shape[3:]))


def _summed(stacker: Stacker, value: Value) -> Value | None:
    op = value.defining_op
    if op is None or value.tensor.is_quantized:
        return None
    if op.name == "stablehlo.transpose" and op["permutation"][0] == 0:
        inner = _summed(stacker, op.operands[0])
        return None if inner is None else _transposed(stacker, op, inner)
    if op.name == "stablehlo.dot_general":
        return _contracted(stacker, op)
    return None


def _transposed(stacker: Stacker, op: Op, product: Value) -> Value:
    permutation = tuple([d - 1 for d in op["permutation"][1:]])
    transposed = op.clone(
        [product],
        [TensorType(op.result.tensor.shape[1:], op.result.tensor.element_type)],
        attributes={**op.attributes, "permutation": permutation},
    )
    stacker.insert_behind(op, transposed)
    return transposed.result


def _contracted(stacker: Stacker, op: Op) -> Value | None:
    numbers: DotDimensionNumbersAttr = op["dot_dimension_numbers"]
    if numbers.lhs_batching_dimensions[:1] != (0,) or numbers.rhs_batching_dimensions[:1] != (0,):
        return None
    if op.operands[0].tensor.element_type is not op.result.tensor.element_type:
        return None
    moved = DotDimensionNumbersAttr(
        numbers.lhs_batching_dimensions[1:],
        numbers.rhs_batching_dimensions[1:],
        (0, *numbers.lhs_contracting_dimensions),
        (0, *numbers.rhs_contracting_dimensions),
    )
    type = TensorType(op.result.tensor.shape[1:], op.result.tensor.element_type)
    product = op.clone(op.operands, [type], attributes={**op.attributes, "dot_dimension_numbers": moved})
    stacker.insert_behind(op, product)
    return product.result
