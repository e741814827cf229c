"""Building blocks of constraints: comparisons of shapes, types and dimension lists, and the display of values.

Each check returns None if it holds, else the actual values, as `Constraint.check` does. Dynamic dimensions are
compatible with every size (specification: "Dynamism", shape mismatches).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spmd.ir import AttributeValue, Op, Region, Value
from spmd.ir.attributes import DenseAttr
from spmd.support.arrays import Array
from spmd.types import (
    BufferType,
    ElementType,
    QuantizedType,
    TensorType,
    Type,
    UnrankedTensorType,
)

Dimension = int | None


# --- display ---------------------------------------------------------------------------------------------------------


def listed(values: Iterable[object]) -> str:
    """Return `1`, `1 and 2`, `1, 2 and 3`."""
    items = [str(value) for value in values]
    return " and ".join(filter(None, (", ".join(items[:-1]), *items[-1:]))) or "none"


def dims(values: Sequence[AttributeValue]) -> str:
    """Return `[0, 1]`."""
    return f"[{', '.join('?' if value is None else str(value) for value in values)}]"


def shape_text(shape: Sequence[Dimension]) -> str:
    """Return `2x?x3`; `scalar` for rank 0."""
    return "x".join("?" if size is None else str(size) for size in shape) or "scalar"


# --- dimension lists -------------------------------------------------------------------------------------------------


def equal(*values: object) -> str | None:
    """Check that all values are equal."""
    return None if all(value == values[0] for value in values) else listed(values)


def in_range(values: Sequence[int], limit: int) -> str | None:
    """Check that 0 <= values < limit."""
    return None if all(0 <= value < limit for value in values) else f"{dims(values)} and {limit}"


def unique(values: Sequence[int]) -> str | None:
    """Check that values are unique."""
    return None if len(set(values)) == len(values) else dims(values)


def ascending(values: Sequence[int]) -> str | None:
    """Check that values are sorted in ascending order."""
    return None if list(values) == sorted(values) else dims(values)


def positive(values: Sequence[int]) -> str | None:
    """Check that values are positive."""
    return None if all(value > 0 for value in values) else dims(values)


def non_negative(values: Sequence[int]) -> str | None:
    """Check that values are not negative."""
    return None if all(value >= 0 for value in values) else dims(values)


def at_least(value: int, low: int) -> str | None:
    """Check that `value` is at least `low`."""
    return None if value >= low else str(value)


# --- shapes ----------------------------------------------------------------------------------------------------------


def compatible_dims(left: Dimension, right: Dimension) -> bool:
    """Return whether two sizes are equal or one is dynamic."""
    return left is None or right is None or left == right


def compatible_shapes(left: Sequence[Dimension], right: Sequence[Dimension]) -> bool:
    """Return whether two shapes have the same rank and compatible sizes."""
    return len(left) == len(right) and all(map(compatible_dims, left, right))


def shape_of(type: Type) -> tuple[Dimension, ...] | None:
    """Return the shape; None if unranked or not shaped."""
    return type.shape if isinstance(type, (TensorType, BufferType)) else None


def same_shape(*types: Type) -> str | None:
    """Check that all ranked types have pairwise compatible shapes."""
    shapes = [shape for shape in map(shape_of, types) if shape is not None]
    if all(shape == shapes[0] for shape in shapes):
        return None
    for index, left in enumerate(shapes):
        if not all(compatible_shapes(left, right) for right in shapes[index + 1 :]):
            return listed(map(shape_text, shapes))
    return None


def within_bounds(shape: Sequence[Dimension], bounds: Sequence[Dimension] | None) -> bool:
    """Return whether static sizes do not exceed the bounds of another type."""
    return bounds is None or all(
        size is None or bound is None or size <= bound for size, bound in zip(shape, bounds, strict=True)
    )


# --- types -----------------------------------------------------------------------------------------------------------


def element_of(type: Type) -> Type:
    """Return the element type of a shaped type; any other type unchanged."""
    return type.element_type if isinstance(type, (TensorType, BufferType, UnrankedTensorType)) else type


def compatible_elements(left: Type, right: Type) -> bool:
    """Return whether types are equal up to quantization parameters (specification: `baseline_element_type`)."""
    if left is right:
        return True
    if not (isinstance(left, QuantizedType) and isinstance(right, QuantizedType)):
        return False
    return (
        left.storage is right.storage
        and (left.storage_min, left.storage_max) == (right.storage_min, right.storage_max)
        and left.expressed is right.expressed
        and left.is_per_axis == right.is_per_axis
    )


def compatible_types(left: Type, right: Type) -> bool:
    """Return whether two types are compatible: one may refine the other, but they do not contradict."""
    if left is right:
        return True
    shaped = (TensorType, BufferType, UnrankedTensorType)
    if not (isinstance(left, shaped) and isinstance(right, shaped)):
        return False
    if isinstance(left, BufferType) != isinstance(right, BufferType):
        return False
    if not compatible_elements(left.element_type, right.element_type):
        return False
    if isinstance(left, UnrankedTensorType) or isinstance(right, UnrankedTensorType):
        return True
    if not compatible_shapes(left.shape, right.shape):
        return False
    if isinstance(left, BufferType) or isinstance(right, BufferType):
        return True
    return within_bounds(left.shape, right.bounds) and within_bounds(right.shape, left.bounds)


def same_types(*types: Type) -> str | None:
    """Check that all types are compatible with the first (specification: `baseline_type` equal)."""
    first = types[0]
    return None if all(compatible_types(type, first) for type in types) else listed(types)


def same_elements(*types: Type) -> str | None:
    """Check that all element types are compatible with the first (specification: `baseline_element_type` equal)."""
    first = element_of(types[0])
    if all(compatible_elements(element_of(type), first) for type in types):
        return None
    return listed(map(element_of, types))


def equal_elements(*types: Type) -> str | None:
    """Check that all element types are equal, quantization parameters included."""
    elements = [element_of(type) for type in types]
    return None if all(element is elements[0] for element in elements) else listed(elements)


def all_compatible(left: Sequence[Type], right: Sequence[Type]) -> bool:
    return len(left) == len(right) and all(map(compatible_types, left, right))


def is_quantized(type: Type) -> bool:
    return isinstance(element_of(type), QuantizedType)


def per_axis(type: Type) -> QuantizedType | None:
    """Return the quantized element type if it is per axis, else None."""
    element = element_of(type)
    return element if isinstance(element, QuantizedType) and element.is_per_axis else None


def per_tensor(type: Type) -> QuantizedType | None:
    element = element_of(type)
    return element if isinstance(element, QuantizedType) and not element.is_per_axis else None


def bits_of(element: Type) -> int:
    return element.bits if isinstance(element, (ElementType, QuantizedType)) else 0


def promotable(source: Type, target: Type, *, any_float: bool = False) -> bool:
    """Return whether elements of `source` can be widened to `target` (specification: `is_promotable`).

    `any_float` allows floating-point types of any width.
    """
    left, right = element_of(source), element_of(target)
    if isinstance(left, QuantizedType) and isinstance(right, QuantizedType):
        return left.expressed is right.expressed and left.bits <= right.bits
    if not (isinstance(left, ElementType) and isinstance(right, ElementType)):
        return False
    integers = ("i1", "signed", "unsigned")
    if not (left.kind == right.kind or (left.kind in integers and right.kind in integers)):
        return False
    return (any_float and left.is_float) or left.bits <= right.bits


# --- values and regions ----------------------------------------------------------------------------------------------


def tensors(values: Iterable[Value]) -> list[TensorType]:
    """Return the types of values whose type set admits tensors only."""
    return [value.tensor for value in values]


def constant_ints(value: Value) -> Array | None:
    """Return the elements of an integer constant tensor; None if `value` is not one."""
    op = value.defining_op
    if op is None or op.name not in ("stablehlo.constant", "chlo.constant", "arith.constant"):
        return None
    attribute = op.attributes.get("value")
    if not isinstance(attribute, DenseAttr) or attribute.array.dtype.kind not in "iub":
        return None
    return attribute.array


def returned(region: Region) -> list[Type]:
    """Return the types that the region's block returns."""
    return region.block.terminator.operand_types


def parameters(region: Region) -> list[Type]:
    return [argument.type for argument in region.block.arguments]


def signature(region: Region) -> str:
    """Return `(tensor<f32>, tensor<f32>) -> (tensor<f32>)`."""
    return f"({', '.join(map(str, parameters(region)))}) -> ({', '.join(map(str, returned(region)))})"


def is_terminator(op: Op) -> bool:
    return op.definition is None or op.definition.is_terminator
