"""Folding of transposes into products: BLAS takes matrices in either order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence

from spmd.analysis.matrices import free_dimensions
from spmd.compiler.transforms.rewrite import rewrite
from spmd.dialects.op_builder import OpBuilder
from spmd.dialects.structs import DotDimensionNumbersAttr
from spmd.ir import Block, Op, Value
from spmd.types import QuantizedType

DOT = "stablehlo.dot_general"
TRANSPOSE = "stablehlo.transpose"


def fold_transposes(block: Block) -> None:
    """Fold transposes into adjacent `dot_general`s, in `block` and its regions; in place.

    A transposed operand becomes different dimension numbers; a transpose that is the only user of a product becomes the
    product with exchanged operands. The gradient of a weight, as frontends write it, is both.
    """
    rewrite(block, (DOT,), lambda block: _with_operands_folded)
    use_counts = _use_counts(block)
    rewrite(block, (DOT, TRANSPOSE), lambda block: _ResultFolding(use_counts))


def _with_operands_folded(op: Op, builder: OpBuilder) -> Sequence[Value] | None:
    """Return `op`, a product with transposed operands, as a product of the untransposed ones."""
    numbers = op["dot_dimension_numbers"]
    lhs, rhs = op.operands
    left = _through(lhs, numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions)
    right = _through(rhs, numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions)
    if left[0] is lhs and right[0] is rhs:
        return None
    folded = DotDimensionNumbersAttr(left[1], right[1], left[2], right[2])
    product = op.clone([left[0], right[0]], attributes={**op.attributes, "dot_dimension_numbers": folded})
    builder.ops.append(product)
    return product.results


def _use_counts(block: Block) -> Counter[Value]:
    """Return the number of uses of each value in `block` and its regions."""
    return Counter(value for op in block.walk() for value in op.operands)


class _ResultFolding:
    """The rule of one block: exchanges the operands of a product whose only user is a transpose in the same block.

    So no product moves into a loop. The original product is dead then.
    """

    def __init__(self, use_counts: Counter[Value]) -> None:
        self._use_counts = use_counts
        self._products: set[Op] = set()

    def __call__(self, op: Op, builder: OpBuilder) -> Sequence[Value] | None:
        if op.name == DOT:
            if self._use_counts[op.result] == 1 and _may_exchange(op):
                self._products.add(op)
            return None
        exchanged = _exchanged(op, self._products)
        if exchanged is None:
            return None
        builder.ops.append(exchanged)
        return exchanged.results


def _may_exchange(product: Op) -> bool:
    """Return whether lhs and rhs have one plain type; an algorithm, or quantized weights, distinguish them."""
    lhs, rhs = (value.tensor.element_type for value in product.operands)
    return product["algorithm"] is None and lhs == rhs and not isinstance(lhs, QuantizedType)


def _exchanged(transpose: Op, products: Container[Op]) -> Op | None:
    """Return the product with exchanged operands that equals `transpose` of one of `products`; else None.

    A result of dimensions (batching, lhs, rhs) becomes (batching, rhs, lhs). Each sum has the same terms in the same
    order.
    """
    product = transpose.operands[0].defining_op
    if product is None or product not in products:
        return None
    numbers = product["dot_dimension_numbers"]
    lhs, rhs = product.operands
    batch = len(numbers.lhs_batching_dimensions)
    left = lhs.tensor.rank - len(numbers.lhs_contracting_dimensions)  # the first dimension of rhs
    rank = transpose.result.tensor.rank
    if tuple(transpose["permutation"]) != (*range(batch), *range(left, rank), *range(batch, left)):
        return None
    exchanged = DotDimensionNumbersAttr(
        numbers.rhs_batching_dimensions,
        numbers.lhs_batching_dimensions,
        numbers.rhs_contracting_dimensions,
        numbers.lhs_contracting_dimensions,
    )
    attributes = {**product.attributes, "dot_dimension_numbers": exchanged}
    if product["precision_config"]:
        attributes["precision_config"] = tuple(reversed(product["precision_config"]))
    return product.clone([rhs, lhs], transpose.result_types, attributes=attributes)


def _through(
    value: Value, batching: tuple[int, ...], contracting: tuple[int, ...]
) -> tuple[Value, tuple[int, ...], tuple[int, ...]]:
    """Return the operand of the transpose `value`, with its batching and contracting dimensions; `value` itself if it
    is none.

    Free dimensions must keep their order, which is theirs in the result.
    """
    op = value.defining_op
    if op is None or op.name != TRANSPOSE:
        return value, batching, contracting
    permutation = op["permutation"]
    free = [permutation[d] for d in free_dimensions(len(permutation), batching, contracting)]
    if free != sorted(free):
        return value, batching, contracting
    source = op.operands[0]
    return _through(source, tuple(permutation[d] for d in batching), tuple(permutation[d] for d in contracting))
