"""A transposed product becomes the product of the exchanged operands.

What differentiation gives for a weight's gradient is ``transpose(dot_general(a, b))``. Left as it is, whoever needs
the gradient contiguous (an all_reduce, a result) copies it against the grain of the cache; ``dot_general(b, a)`` lays
it out as needed for nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from spmd.dialects.structs import DotAlgorithm, DotDimensionNumbers
from spmd.ir import Block, Op, Value

PRODUCT = "stablehlo.dot_general"
TRANSPOSE = "stablehlo.transpose"


def exchange_operands(block: Block) -> None:
    """Does so for every transpose in `block`, and in regions inside it, that is the only user of such a product."""
    uses = Counter(operand for op in block.ops for inner in op.walk() for operand in inner.operands)
    _exchange(block, uses, {})


def _exchange(block: Block, uses: Counter[Value], replaced: dict[Value, Value]) -> None:
    absorbed: set[int] = set()
    kept: list[Op] = []
    for op in block.ops:
        op.read_instead(replaced)
        product = op.operands[0].defining_op if op.name == TRANSPOSE else None
        if product is not None and uses[product.results[0]] == 1 and _swaps(op, product):
            absorbed.add(id(product))
            exchanged = _exchanged(product, op)
            replaced[op.results[0]] = exchanged.results[0]
            uses[exchanged.results[0]] = uses[op.results[0]]
            op = exchanged
        kept.append(op)
        for region in op.regions:
            for inner in region.blocks:
                _exchange(inner, uses, replaced)
    block.ops = [op for op in kept if id(op) not in absorbed]


def _swaps(transpose: Op, product: Op) -> bool:
    """Whether `transpose` puts the free dimensions of the rhs of `product` before those of its lhs, and no more."""
    if product.name != PRODUCT or any(value.tensor.is_quantized for value in (*product.operands, product.result)):
        return False
    numbers: DotDimensionNumbers = product["dot_dimension_numbers"]
    batching = len(numbers.lhs_batching_dimensions)
    taken = batching + len(numbers.lhs_contracting_dimensions)
    middle, rank = batching + product.operands[0].tensor.rank - taken, product.result.tensor.rank
    return tuple(transpose["permutation"]) == (*range(batching), *range(middle, rank), *range(batching, middle))


def _exchanged(product: Op, transpose: Op) -> Op:
    numbers: DotDimensionNumbers = product["dot_dimension_numbers"]
    attributes: dict[str, Any] = dict(product.attributes)
    attributes["dot_dimension_numbers"] = DotDimensionNumbers(
        numbers.rhs_batching_dimensions,
        numbers.lhs_batching_dimensions,
        numbers.rhs_contracting_dimensions,
        numbers.lhs_contracting_dimensions,
    )
    if attributes.get("precision_config"):
        attributes["precision_config"] = attributes["precision_config"][::-1]
    algorithm: DotAlgorithm | None = attributes.get("algorithm")
    if algorithm is not None:
        attributes["algorithm"] = replace(
            algorithm,
            lhs_precision_type=algorithm.rhs_precision_type,
            rhs_precision_type=algorithm.lhs_precision_type,
            lhs_component_count=algorithm.rhs_component_count,
            rhs_component_count=algorithm.lhs_component_count,
        )
    return product.clone(product.operands[::-1], transpose.result_types, attributes=attributes)
