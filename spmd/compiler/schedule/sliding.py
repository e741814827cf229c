"""Ops that reduce sliding windows: their iteration space, and the elements that are combined at a point.

A point is a window (an index of the result) and an offset within it. StableHLO specification, "reduce_window" and
"convolution".
"""

from __future__ import annotations

from math import prod

from spmd.analysis.affine import Affine, divided
from spmd.analysis.index_maps import ElementReader, Index, choose, dilated_index, element_type, padded
from spmd.analysis.scalar.conversion import converted
from spmd.analysis.scalar.elements import Element, element_constant
from spmd.analysis.windows import windows_of
from spmd.dialects.structs import ConvDimensionNumbersAttr
from spmd.ir import Op, Value
from spmd.types import F32, ElementType

REDUCE_WINDOW = "stablehlo.reduce_window"
CONVOLUTION = "stablehlo.convolution"
#: Largest window whose elements are reduced one by one.
_MOST_PLACES = 64
#: The same if windows are prefix sums, for which there is a faster algorithm.
_FEW_PLACES = 4
#: Fewest output features per group for which a matrix product pays.
FEW_FEATURES = 4
#: Shortest last dimension of the result that is vectorized if the window is longer.
_SHORT = 8


def is_sliding(op: Op) -> bool:
    """Return whether `op` reduces sliding windows."""
    return op.name in (REDUCE_WINDOW, CONVOLUTION)


def is_small_window(op: Op) -> bool:
    """Return whether the windows of `op`, a reduce_window of static shape, are small enough to be reduced directly."""
    windows = windows_of(op)
    return prod(windows.sizes) <= (_MOST_PLACES if windows.cumulative_axis() is None else _FEW_PLACES)


def accumulator_of(op: Op) -> ElementType | None:
    """Return the accumulator type of a product or convolution: f32 for floats of at most 32 bits, else the common float
    type.

    None for mixed types and for anything but floats.
    """
    elements = [value.tensor.element_type for value in (*op.operands, op.result)]
    floats = [element for element in elements if isinstance(element, ElementType) and element.is_float]
    if len(floats) < len(elements):
        return None
    if all(element.bits <= 32 for element in floats):
        return F32
    return floats[0] if all(element is floats[0] for element in floats) else None


def groups_of(op: Op) -> int:
    """Return the number of groups of `op`, a convolution."""
    return int(op["feature_group_count"] * op["batch_group_count"])


def is_grouped_sum(op: Op) -> bool:
    """Return whether `op` is a grouped convolution with too few features per group for matrix products."""
    if groups_of(op) == 1 or accumulator_of(op) is None:
        return False
    numbers: ConvDimensionNumbersAttr = op["dimension_numbers"]
    return op.result.tensor.static_shape[numbers.output_feature_dimension] // groups_of(op) < FEW_FEATURES


def sliding_shape(op: Op) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the iteration space of `op`, and its dimensions within the window.

    These come first, so that lanes are neighbours in the result, unless the result's last dimension is the shorter.
    """
    result = op.results[0].tensor.static_shape
    window = _window_shape(op)
    if result and result[-1] < _SHORT and prod(window) > result[-1] and window[-1] > result[-1]:
        return (*result, *window), tuple(range(len(result), len(result) + len(window)))
    return (*window, *result), tuple(range(len(window)))


def _window_shape(op: Op) -> tuple[int, ...]:
    if op.name == REDUCE_WINDOW:
        return windows_of(op).sizes
    numbers: ConvDimensionNumbersAttr = op["dimension_numbers"]
    kernel = op.operands[1].tensor.static_shape
    return (
        kernel[numbers.kernel_input_feature_dimension],
        *(kernel[axis] for axis in numbers.kernel_spatial_dimensions),
    )


def split_point(op: Op, index: Index) -> tuple[Index, Index]:
    """Return the offset of a point within its window, and its index in the result."""
    _, folded = sliding_shape(op)
    window = tuple(index[dimension] for dimension in folded)
    return window, tuple(part for dimension, part in enumerate(index) if dimension not in folded)


def window_element(
    op: Op, operand: Value, outside: Value, index: Index, reader: ElementReader, target: ElementType
) -> Element:
    """Return the element of `operand`, as `target`, at a point of a reduce_window; the scalar `outside` in
    the padding.
    """
    windows = windows_of(op)
    window, result = split_point(op, index)
    place = tuple(
        count.scaled(stride) + part.scaled(dilation)
        for count, stride, part, dilation in zip(result, windows.strides, window, windows.window_dilations, strict=True)
    )
    low = [pair[0] for pair in windows.padding]
    return padded(operand, place, low, [step - 1 for step in windows.base_dilations], outside, reader, target)


def convolved_elements(op: Op, index: Index, reader: ElementReader) -> tuple[Element, Element]:
    """Return the image and kernel elements multiplied at a point of a convolution, as the accumulator type."""
    numbers: ConvDimensionNumbersAttr = op["dimension_numbers"]
    image, kernel = op.operands
    (feature_in, *window), result = split_point(op, index)
    feature = result[numbers.output_feature_dimension]
    batch = result[numbers.output_batch_dimension]
    features = op.result.tensor.static_shape[numbers.output_feature_dimension] // groups_of(op)
    parts = divided(feature, features, dict(enumerate(reader.extents)))
    assert parts is not None, "groups of features are whole"
    group, _ = parts
    image_feature = feature_in
    if op["feature_group_count"] > 1:
        image_feature += group.scaled(kernel.tensor.static_shape[numbers.kernel_input_feature_dimension])
    else:
        batch += group.scaled(op.result.tensor.static_shape[numbers.output_batch_dimension])
    place = [Affine()] * image.tensor.rank
    place[numbers.input_batch_dimension], place[numbers.input_feature_dimension] = batch, image_feature
    low, spread = _placed_windows(op, place, window, result)
    weight = [Affine()] * kernel.tensor.rank
    weight[numbers.kernel_input_feature_dimension], weight[numbers.kernel_output_feature_dimension] = (
        feature_in,
        feature,
    )
    reversal = op["window_reversal"] or (False,) * len(window)
    for axis, part, is_reversed in zip(numbers.kernel_spatial_dimensions, window, reversal, strict=True):
        last = kernel.tensor.static_shape[axis] - 1
        weight[axis] = part.scaled(-1).shifted(last) if is_reversed else part
    return _image_element(op, tuple(place), low, spread, reader), _wide(op, kernel, tuple(weight), reader)


def _placed_windows(op: Op, place: list[Affine], window: list[Affine], result: Index) -> tuple[list[int], list[int]]:
    """Fill in the spatial part of `place`; return the low padding and the interior padding of each dimension."""
    numbers: ConvDimensionNumbersAttr = op["dimension_numbers"]
    ones = (1,) * len(window)
    low, spread = [0] * len(place), [0] * len(place)
    padding = [0] * len(window) if op["padding"] is None else [int(pair[0]) for pair in op["padding"]]
    for number, axis in enumerate(numbers.input_spatial_dimensions):
        stride = (op["window_strides"] or ones)[number]
        reach = (op["rhs_dilation"] or ones)[number]
        count = result[numbers.output_spatial_dimensions[number]]
        place[axis] = count.scaled(stride) + window[number].scaled(reach)
        low[axis], spread[axis] = padding[number], (op["lhs_dilation"] or ones)[number] - 1
    return low, spread


def _image_element(op: Op, index: Index, low: list[int], spread: list[int], reader: ElementReader) -> Element:
    image = op.operands[0]
    place, inside = dilated_index(image, index, low, spread, reader)
    if inside is None:
        return _wide(op, image, place, reader)
    accumulator = accumulator_of(op)
    assert accumulator is not None
    with reader.under(inside):
        element = _wide(op, image, place, reader)
    return choose(inside, element, element_constant(0, accumulator))


def _wide(op: Op, value: Value, index: Index, reader: ElementReader) -> Element:
    accumulator = accumulator_of(op)
    assert accumulator is not None
    return converted(reader.read(value, index), element_type(value), accumulator)
