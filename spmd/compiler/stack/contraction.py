"""Products. What differs on one side only is one more free dimension: one large product, not many small ones.

How large a product is may decide in which order it sums. `reproducible` compilations multiply as each process does.
Convolutions run process by process: together, as groups of features, they took longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from spmd.compiler.stack.core import StackedValue, Stacker, Tree, rule
from spmd.compiler.stack.data_movement import after
from spmd.dialects.make import make_op
from spmd.dialects.structs import DotDimensionNumbersAttr
from spmd.ir import AttributeValue, Op, Value
from spmd.types import QuantizedType, TensorType, Type


@rule("stablehlo.dot_general")
def dot_general(stacker: Stacker, op: Op) -> Sequence[Tree]:
    lhs, rhs = (stacker.leaf(value) for value in op.operands)
    if stacker.options.reproducible:
        lhs, rhs = (StackedValue(stacker.stack(side), True) for side in (lhs, rhs))
    numbers: DotDimensionNumbersAttr = op["dot_dimension_numbers"]
    both = lhs.stacked and rhs.stacked
    moved = DotDimensionNumbersAttr(
        _batching(numbers.lhs_batching_dimensions, lhs, both),
        _batching(numbers.rhs_batching_dimensions, rhs, both),
        _behind(numbers.lhs_contracting_dimensions, lhs),
        _behind(numbers.rhs_contracting_dimensions, rhs),
    )
    attributes = {"dot_dimension_numbers": moved}
    if both:
        return stacker.lifted(op, [lhs.value, rhs.value], attributes)
    batches = len(numbers.lhs_batching_dimensions)
    place = batches if lhs.stacked else batches + lhs.rank - batches - len(numbers.lhs_contracting_dimensions)
    return [_product(stacker, op, [lhs.value, rhs.value], {**op.attributes, **attributes}, place)]


def _batching(dimensions: Sequence[int], side: StackedValue, both: bool) -> tuple[int, ...]:
    return (0, *after(dimensions)) if both else _behind(dimensions, side)


def _behind(dimensions: Sequence[int], side: StackedValue) -> tuple[int, ...]:
    return after(dimensions) if side.stacked else tuple(dimensions)


def _product(
    stacker: Stacker, op: Op, operands: Sequence[Value], attributes: Mapping[str, AttributeValue], place: int
) -> StackedValue:
    """A product whose result has the processes at dimension `place`, whence they are brought to the front."""
    final = stacker.tensor_of(op.result.type)
    rank = final.rank
    order = [*range(1, place + 1), 0, *range(place + 1, rank)]
    type = TensorType(tuple(final.shape[d] for d in order), _turned(op.result.tensor, place))
    product = op.clone(operands, [type], attributes=attributes)
    stacker.ops.append(product)
    if place == 0:
        return StackedValue(product.result, True)
    back = (place, *range(place), *range(place + 1, rank))
    return StackedValue(stacker.one("transpose", [product.result], final, permutation=back), True)


def _turned(type: TensorType, place: int) -> Type:
    """The element type, its quantized dimension counted with the processes at `place`."""
    element = type.element_type
    if not isinstance(element, QuantizedType):
        return element
    axis = element.quantization_dimension
    return replace(element, quantization_dimension=axis + 1) if axis is not None and axis >= place else element


@rule("stablehlo.dot")
def dot(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """The last dimension of the left side and the first of the right one."""
    rank = op.operands[0].tensor.rank
    numbers = DotDimensionNumbersAttr((), (), (rank - 1,), (0,))
    attributes = {"dot_dimension_numbers": numbers, "precision_config": op["precision_config"]}
    general = make_op("stablehlo.dot_general", op.operands, op.result_types, attributes, location=op.location)
    return dot_general(stacker, general)
