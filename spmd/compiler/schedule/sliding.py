"""Ops that fold what sliding windows hold: their points, and which elements of the operands meet at a point.

A point is a window, a place in the result, and a place within the window. StableHLO specification, "reduce_window" and
"convolution".
"""

from __future__ import annotations

from math import prod

from spmd.analysis.affine import Affine, divided
from spmd.analysis.index_maps import ElementReader, Index, choose, dilated_place, element_type, padded
from spmd.analysis.scalar.conversion import converted
from spmd.analysis.scalar.elements import Element, element_constant
from spmd.analysis.windows import windows_of
from spmd.dialects.structs import ConvDimensionNumbersAttr
from spmd.ir import Op, Value
from spmd.types import F32, ElementType

REDUCE_WINDOW = "stablehlo.reduce_window"
CONVOLUTION = "stablehlo.convolution"
#: Places of a window that are gone over one by one.
_MOST_PLACES = 64
#: The same, where the next window's total follows from the one before.
_FEW_PLACES = 4
#: Output features of a group that are too few for a product of matrices.
FEW_FEATURES = 4
#: Elements of the result's last dimension that are too few for lanes, if the window has more.
_SHORT = 8


def is_sliding(op: Op) -> bool:
    """Whether `op` folds what windows hold."""
    return op.name in (REDUCE_WINDOW, CONVOLUTION)


def is_small_window(op: Op) -> bool:
    """Whether going over all places of the windows of `op`, a reduce_window of static shape, costs little."""
    windows = windows_of(op)
    return prod(windows.sizes) <= (_MOST_PLACES if windows.running_axis() is None else _FEW_PLACES)


def accumulator_of(op: Op) -> ElementType | None:
    """What a product or convolution multiplies and sums in: f32 for floats of at most 32 bits, else their one type.

    None of mixtures, and of what is no float.
    """
    elements = [value.tensor.element_type for value in (*op.operands, op.result)]
    floats = [element for element in elements if isinstance(element, ElementType) and element.is_float]
    if len(floats) < len(elements):
        return None
    if all(element.bits <= 32 for element in floats):
        return F32
    return floats[0] if all(element is floats[0] for element in floats) else None


def groups_of(op: Op) -> int:
    """How many convolutions `op` is that share no features of the result."""
    return int(op["feature_group_count"] * op["batch_group_count"])


def is_grouped_sum(op: Op) -> bool:
    """Whether each feature of a convolution's result has few input features of its own: no product of matrices."""
    if groups_of(op) == 1 or accumulator_of(op) is None:
        return False
    numbers: ConvDimensionNumbersAttr = op["dimension_numbers"]
    return op.result.tensor.static_shape[numbers.output_feature_dimension] // groups_of(op) < FEW_FEATURES


def sliding_shape(op: Op) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The points of `op`, and the dimensions that count places within a window.

    These come first, so that lanes are neighbours in the result, unless there are fewer of those than places.
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


def parts_of_point(op: Op, index: Index) -> tuple[Index, Index]:
    """The place of a point within its window, and in the result."""
    _, folded = sliding_shape(op)
    window = tuple(index[dimension] for dimension in folded)
    return window, tuple(part for dimension, part in enumerate(index) if dimension not in folded)


def window_element(
    op: Op, operand: Value, outside: Value, index: Index, reader: ElementReader, target: ElementType
) -> Element:
    """The element of `operand` at a point of a reduce_window; beyond its ends, `outside`, a scalar; as a `target`."""
    windows = windows_of(op)
    window, result = parts_of_point(op, index)
    place = tuple(
        count.scaled(stride) + part.scaled(dilation)
        for count, stride, part, dilation in zip(result, windows.strides, window, windows.window_dilations, strict=True)
    )
    low = [pair[0] for pair in windows.padding]
    return padded(operand, place, low, [step - 1 for step in windows.base_dilations], outside, reader, target)


def convolved_elements(op: Op, index: Index, reader: ElementReader) -> tuple[Element, Element]:
    """The elements of image and kernel that are multiplied at a point of a convolution, in its accumulator's type."""
    numbers: ConvDimensionNumbersAttr = op["dimension_numbers"]
    image, kernel = op.operands
    (feature_in, *window), result = parts_of_point(op, index)
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
    """Fills in the spatial part of `place`; paddings before the image, and between its elements, by dimension."""
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
    place, inside = dilated_place(image, index, low, spread, reader)
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
