"""Constraints on regions that reduce elements, shared by the ops that have one.

Source: StableHLO specification, reduce C2, C6, C8 and their like in all_reduce, reduce_scatter, reduce_window,
scatter and select_and_scatter: `(tensor<E0>, ..., tensor<E0>, ...) -> (tensor<E0>, ...)` with
`is_promotable(element_type(inputs[i]), Ei)`. Frontends accumulate in other precisions, so that floating-point types of
any width are accepted: violating the text is a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spmd.dialects.checks import (
    Dimension,
    compatible_dims,
    compatible_shapes,
    element_of,
    equal_elements,
    listed,
    parameters,
    promotable,
    returned,
    shape_of,
    signature,
)
from spmd.dialects.core import OpDef
from spmd.dialects.shapes import with_element
from spmd.ir import Op, Region
from spmd.types import ElementType, TensorType, Type

#: Returns the types of an op's values for a constraint.
Types = Callable[[Op], Sequence[Type]]


def accumulated(region: Region, inputs: Sequence[Type]) -> list[Type]:
    """Return `inputs` with the element types of the region's results."""
    return [
        with_element(type, element_of(returned_type))
        for type, returned_type in zip(inputs, returned(region), strict=True)
    ]


def check_reducer(
    declared: OpDef,
    label: str,
    inputs: Types,
    *,
    initial: tuple[str, str, Types] | None = None,
    region: int = 0,
    kept: Callable[[Op], Sequence[Dimension]] = lambda op: (),
) -> None:
    """Declare the constraint `label` on a reduction region, and that on initial values: its label, text and types.

    Each is declared twice: with the specification's text, which frontends violate, and with what has a meaning. `kept`
    returns the dimensions that the region's arguments may have; by default they are scalars.
    """
    name = declared.regions[region].name
    text = f"{name} has type (tensor<E0>..., tensor<E0>...) -> tensor<E0>... where inputs are promotable to E..."
    declared.constraint(label, text)(lambda op: region_fault(op.regions[region], inputs(op), kept(op)))
    declared.constraint(label, text, customary=True)(lambda op: widened_fault(op.regions[region], inputs(op)))
    if initial is not None:
        of_initial, exact, types = initial
        declared.constraint(of_initial, f"{exact}, or are promotable to the results of {name}")(
            lambda op: initial_fault(op.regions[region], types(op))
        )
        declared.constraint(of_initial, exact, customary=True)(
            lambda op: next(filter(None, map(equal_elements, inputs(op), types(op))), None)
        )


def region_fault(region: Region, inputs: Sequence[Type], kept: Sequence[Dimension] = ()) -> str | None:
    """Return the fault of a region that reduces `inputs`, or None."""
    count = len(inputs)
    arguments, results = parameters(region), returned(region)
    sound = len(arguments) == 2 * count and len(results) == count and all(isinstance(t, TensorType) for t in arguments)
    if not sound or not all(isinstance(type, TensorType) for type in results):
        return f"{signature(region)} for inputs {listed(inputs)}"
    for index, result in enumerate(results):
        left, right = arguments[index], arguments[count + index]
        if not (_same(result, left) and _same(result, right, any_float=True)):
            return signature(region)
        if not promotable(inputs[index], right, any_float=True):
            return f"{signature(region)} for inputs {listed(inputs)}"
        if not _fits(shape_of(right) or (), kept):
            return f"{signature(region)} for inputs {listed(inputs)}"
    return None


def widened_fault(region: Region, inputs: Sequence[Type]) -> str | None:
    """Return the violation of the specification's text by an otherwise valid region: floats of several widths."""
    count, results = len(inputs), returned(region)
    arguments = parameters(region)
    for index, result in enumerate(results):
        sound = _same(result, arguments[index]) and _same(result, arguments[count + index])
        if not sound or not promotable(inputs[index], result):
            return f"{signature(region)} for inputs {listed(inputs)}"
    return None


def initial_fault(region: Region, initial: Sequence[Type]) -> str | None:
    """Return the fault between a region's results and the initial values, or None."""
    for returned_type, result in zip(initial, returned(region), strict=True):
        shapes = shape_of(returned_type), shape_of(result)
        if None in shapes or not compatible_shapes(shapes[0] or (), shapes[1] or ()):
            return f"{listed(initial)} for {signature(region)}"
        if not promotable(returned_type, result, any_float=True):
            return f"{listed(initial)} for {signature(region)}"
    return None


def _same(left: Type, right: Type, *, any_float: bool = False) -> bool:
    if not compatible_shapes(shape_of(left) or (), shape_of(right) or ()):
        return False
    first, second = element_of(left), element_of(right)
    if any_float and isinstance(first, ElementType) and isinstance(second, ElementType):
        return first is second or (first.is_float and second.is_float)
    return first is second


def _fits(argument: Sequence[Dimension], allowed: Sequence[Dimension]) -> bool:
    """Return whether the argument's dimensions are a subsequence of the allowed ones."""
    matched = 0
    for size in allowed:
        if matched < len(argument) and compatible_dims(size, argument[matched]):
            matched += 1
    return matched == len(argument)
