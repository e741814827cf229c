"""Inference on dimensions and their bounds. Source: StableHLO's type inference notes, "Bounded dynamism"."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from spmd.dialects.checks import Dimension, shape_text
from spmd.dialects.core import InferenceError
from spmd.types import TensorType, Type, UnrankedTensorType

Bounds = Sequence[Dimension]
#: The size and bound of a dimension.
Size = tuple[Dimension, Dimension]


def tensor(shape: Sequence[Dimension], element: Type, bounds: Bounds | None = None) -> TensorType:
    """Return a tensor type; bounds of static dimensions are dropped."""
    if bounds is not None and all(bound is None for bound in bounds):
        bounds = None
    return TensorType(tuple(shape), element, None if bounds is None else tuple(bounds))


def bounds_of(type: TensorType) -> tuple[Dimension, ...]:
    """Return one bound per dimension, None if there is none."""
    return type.bounds if type.bounds is not None else (None,) * type.rank


def with_element(type: Type, element: Type) -> Type:
    """Return the type with another element type."""
    return type.with_element_type(element) if isinstance(type, TensorType) else UnrankedTensorType(element)


def most_specific_size(dimension: int, left: Size, right: Size) -> Size:
    """Return the most specific (size, bound) that is compatible with both."""
    (left_size, left_bound), (right_size, right_bound) = left, right
    if left_size is None and right_size is None:
        known = [bound for bound in (left_bound, right_bound) if bound is not None]
        return None, min(known, default=None)
    if left_size is not None and right_size is not None and left_size != right_size:
        raise InferenceError(f"sizes of dimension {dimension} must match, got {left_size} and {right_size}")
    size = left_size if left_size is not None else right_size
    bound = left_bound if left_bound is not None else right_bound
    if bound is not None and size is not None and size > bound:
        raise InferenceError(f"the size of dimension {dimension} must be within its bound, got {size} and {bound}")
    return size, None


def least_specific_size(dimension: int, left: Size, right: Size) -> Size:
    """Return the (size, bound) that covers both."""
    if left[0] is not None and right[0] is not None:
        if left[0] != right[0]:
            raise InferenceError(f"sizes of dimension {dimension} must match, got {left[0]} and {right[0]}")
        return left[0], None
    limits = [size if size is not None else bound for size, bound in (left, right)]
    known = [limit for limit in limits if limit is not None]
    return None, max(known) if len(known) == 2 else None


def _fold(types: Sequence[TensorType], combine: Callable[[int, Size, Size], Size]) -> TensorType:
    first = types[0]
    sizes = list(zip(first.shape, bounds_of(first), strict=True))
    for other in types[1:]:
        if other.rank != first.rank:
            raise InferenceError(f"ranks must match, got {shape_text(first.shape)} and {shape_text(other.shape)}")
        pairs = zip(other.shape, bounds_of(other), strict=True)
        sizes = [combine(index, left, right) for index, (left, right) in enumerate(zip(sizes, pairs, strict=True))]
    return tensor([size for size, _ in sizes], first.element_type, [bound for _, bound in sizes])


def most_specific(types: Sequence[Type]) -> Type:
    """Return the most specific type for `types`, which must be compatible."""
    ranked = [type for type in types if isinstance(type, TensorType)]
    if not ranked or all(type is types[0] for type in types):
        return types[0]
    return _fold(ranked, most_specific_size)


def least_specific(types: Sequence[Type]) -> Type:
    """Return the type that covers all of `types`, which must be compatible."""
    if all(type is types[0] for type in types):
        return types[0]
    if all(isinstance(type, TensorType) for type in types):
        return _fold([type for type in types if isinstance(type, TensorType)], least_specific_size)
    return types[0]


def dilated(size: int, dilation: int) -> int:
    """Return the extent of `size` elements with dilation `dilation`."""
    return 0 if size == 0 else (size - 1) * dilation + 1


def window_count(extent: int, reach: int, stride: int) -> int:
    """Return the number of windows of `reach` elements at distance `stride` within `extent` elements."""
    return 0 if extent <= 0 or reach > extent else (extent - reach) // stride + 1


def windows(
    shape: Sequence[Dimension],
    sizes: Sequence[Dimension],
    strides: Sequence[int],
    padding: Sequence[Sequence[int]],
    base_dilations: Sequence[int],
    window_dilations: Sequence[int],
) -> list[Dimension]:
    """Return the number of windows along each dimension (specification: reduce_window C15, convolution C25)."""
    dimensions: list[Dimension] = []
    for size, window, stride, (low, high), base, dilation in zip(
        shape, sizes, strides, padding, base_dilations, window_dilations, strict=True
    ):
        if size is None or window is None:
            dimensions.append(None)
            continue
        dimensions.append(window_count(low + dilated(size, base) + high, dilated(window, dilation), stride))
    return dimensions


def common_groups(left: Sequence[int], right: Sequence[int]) -> Iterator[tuple[range, range]]:
    """Yield the smallest groups of consecutive dimensions of two shapes that hold equally many elements."""
    i = j = 0
    while i < len(left) or j < len(right):
        start, other = i, j
        size, others = 1, 1
        while True:
            if size <= others and i < len(left) and (size < others or i == start):
                size, i = size * left[i], i + 1
            elif (others < size and j < len(right)) or (j == other and j < len(right)):
                others, j = others * right[j], j + 1
            else:
                break
        while i < len(left) and left[i] == 1:
            i += 1
        while j < len(right) and right[j] == 1:
            j += 1
        yield range(start, i), range(other, j)
