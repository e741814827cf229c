"""Sums over all processes of products of what differs: one product that sums over the processes as well.

A data-parallel step sums the gradients of all processes, each the product of the process's own arrays. Stacked, that
is a batch of products that are then added up; as one product whose processes are one more contracted dimension the
batch is never stored. It stands where the batch's product did: what it multiplies is then needed no longer than there.
Like any product it has an order of its own: `reproducible` compilations leave it out.
"""

from __future__ import annotations

from collectives.reduction import Arithmetic
from spmd.compiler.stack.core import Stacker
from spmd.dialects.structs import DotDimensionNumbersAttr
from spmd.ir import Op, Value
from spmd.types import TensorType


def summed_product(stacker: Stacker, arithmetic: Arithmetic, x: Value) -> Value | None:
    """The sum of `x`, (1, processes, 1, ...), over all processes, where it is a product of what differs; else None."""
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
    turned = op.clone(
        [product],
        [TensorType(op.result.tensor.shape[1:], op.result.tensor.element_type)],
        attributes={**op.attributes, "permutation": permutation},
    )
    stacker.insert_behind(op, turned)
    return turned.result


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
