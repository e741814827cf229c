"""Products and convolutions of f32 at precision HIGHEST: computed in f64, in which products of elements are exact.

StableHLO specification, "dot_general" and "convolution": DEFAULT is the fastest way, HIGHEST the most accurate one.
"""

from __future__ import annotations

from spmd.compiler.transforms.rewrite import rewrite
from spmd.dialects.op_builder import OpBuilder
from spmd.ir import Block, Op, Value
from spmd.types import F32, F64, TensorType

_PRODUCTS = ("stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution", "stablehlo.dynamic_conv")


def widen_highest(block: Block) -> None:
    """Rewrite products of precision HIGHEST in `block` and its regions; in place."""
    rewrite(block, _PRODUCTS, lambda block: _rule)


def _rule(op: Op, builder: OpBuilder) -> list[Value] | None:
    left, right, *rest = op.operands
    numbers = (left, right, op.result)
    if "HIGHEST" not in (op["precision_config"] or ()) or op.attributes.get("algorithm") is not None:
        return None
    if not all(isinstance(each.type, TensorType) and each.tensor.element_type is F32 for each in numbers):
        return None
    wide = [builder.convert(each, each.tensor.with_element_type(F64)) for each in (left, right)]
    product = builder.op(op.name, [*wide, *rest], [op.result.tensor.with_element_type(F64)], dict(op.attributes))
    return [builder.convert(product.result, op.result.tensor)]
