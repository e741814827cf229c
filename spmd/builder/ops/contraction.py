"""Dot products and convolutions.

Source: XlaBuilder operation semantics, "Dot", "DotGeneral", "Conv", "ConvWithGeneralPadding"; the C++ interface of the
TensorFlow compiler framework document for the other convolutions.
"""

from __future__ import annotations

from collections.abc import Sequence

from spmd import types as t
from spmd.builder import checks
from spmd.builder.builder import XlaBuilder
from spmd.builder.errors import ArgumentError
from spmd.builder.operation import operation, operation_of
from spmd.builder.ops.reduction import PaddingLike, padding_attribute, window_padding
from spmd.builder.options import (
    ConvolutionDimensionNumbers,
    DimensionPairs,
    DotDimensionNumbers,
    Padding,
    Precision,
    PrecisionConfig,
    make_convolution_dimension_numbers,
    make_dot_dimension_numbers,
)
from spmd.builder.shape import ElementLike, PrimitiveType, Shape
from spmd.builder.xla_op import OPERATIONS, XlaOp
from spmd.dialects.shapes import dilated
from spmd.ir import AttributeValue, Value

#: DEFAULT, HIGH or HIGHEST for both operands, or one for each.
PrecisionLike = PrecisionConfig | Sequence[Precision | str] | Precision | str | None


def _precision(config: PrecisionLike) -> dict[str, AttributeValue]:
    if config is None:
        return {}
    names = config.operand_precision if isinstance(config, PrecisionConfig) else config
    both = (names, names) if isinstance(names, (str, Precision)) else tuple(names)
    if not both:
        return {}
    try:
        lhs, rhs = (Precision(name).value for name in both)
    except ValueError:
        raise ArgumentError(
            "precision_config", f"must be DEFAULT, HIGH or HIGHEST for both operands, got {both}"
        ) from None
    return {"precision_config": (lhs, rhs)}


def _element(preferred: ElementLike | None) -> t.Type | None:
    return None if preferred is None else PrimitiveType.of(preferred).element_type


def _both(builder: XlaBuilder, lhs: object, rhs: object, preferred: ElementLike | None) -> tuple[Value, Value]:
    """Return two arrays, which must have one element type unless `preferred` is given."""
    left, right = checks.array(builder, lhs, "lhs"), checks.array(builder, rhs, "rhs")
    if preferred is None:
        checks.same_element_type(right, left, "rhs")
    return left, right


@operation
def Dot(
    builder: XlaBuilder,
    lhs: XlaOp,
    rhs: XlaOp,
    precision_config: PrecisionLike = None,
    preferred_element_type: ElementLike | None = None,
) -> XlaOp:
    """Return the sum of products over the last dimension of `lhs` and the first of `rhs`, vectors or matrices.

    [n] dot [n] gives a scalar, [m, k] dot [k] a vector [m], [m, k] dot [k, n] a matrix [m, n]. Source: "Dot".
    """
    left, right = _both(builder, lhs, rhs, preferred_element_type)
    for argument, value in (("lhs", left), ("rhs", right)):
        if value.tensor.rank not in (1, 2):
            raise ArgumentError(argument, f"must be a vector or a matrix, got {Shape.of(value.type).brief}")
    numbers = DotDimensionNumbers([left.tensor.rank - 1], [0])
    return dot_general(builder, left, right, numbers, precision_config, preferred_element_type)


@operation
def DotGeneral(
    builder: XlaBuilder,
    lhs: XlaOp,
    rhs: XlaOp,
    dimension_numbers: DotDimensionNumbers | DimensionPairs,
    precision_config: PrecisionLike = None,
    preferred_element_type: ElementLike | None = None,
) -> XlaOp:
    """Return the sum of products over the contracting dimensions, for each index of the batch dimensions.

    The result has the batch dimensions, then the free ones of `lhs`, then those of `rhs`. `dimension_numbers`:
    DotDimensionNumbers, or ((lhs contracting, rhs contracting), (lhs batch, rhs batch)). Source: "DotGeneral".
    """
    left, right = _both(builder, lhs, rhs, preferred_element_type)
    numbers = make_dot_dimension_numbers(dimension_numbers)
    return dot_general(builder, left, right, numbers, precision_config, preferred_element_type)


def dot_general(
    builder: XlaBuilder,
    lhs: Value,
    rhs: Value,
    numbers: DotDimensionNumbers,
    precision: PrecisionLike = None,
    preferred: ElementLike | None = None,
) -> XlaOp:
    """Return the op after checking its dimension numbers."""
    pairs = (("lhs", lhs), ("rhs", rhs))
    for side, value in pairs:
        named = [*getattr(numbers, f"{side}_batch_dimensions"), *getattr(numbers, f"{side}_contracting_dimensions")]
        checks.dimensions(named, value.tensor.rank, f"dimension_numbers ({side})")
    for kind in ("contracting", "batch"):
        one, two = (getattr(numbers, f"{side}_{kind}_dimensions") for side, _ in pairs)
        sizes = [
            [checks.sizes(value)[number] for number in sizes_of]
            for (_, value), sizes_of in zip(pairs, (one, two), strict=True)
        ]
        if sizes[0] != sizes[1]:
            raise ArgumentError(
                "dimension_numbers", f"{kind} dimensions must have equal sizes, got {sizes[0]} and {sizes[1]}"
            )
    attributes = {"dot_dimension_numbers": numbers.attribute(), **_precision(precision)}
    return builder.emit_one("stablehlo.dot_general", [lhs, rhs], attributes, element=_element(preferred))


# --- convolution -----------------------------------------------------------------------------------------------------


@operation
def ConvGeneralDilated(
    builder: XlaBuilder,
    lhs: XlaOp,
    rhs: XlaOp,
    window_strides: Sequence[int] | None = None,
    padding: PaddingLike = Padding.VALID,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvolutionDimensionNumbers | tuple[str, str, str] | None = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: PrecisionLike = None,
    preferred_element_type: ElementLike | None = None,
    window_reversal: Sequence[bool] | None = None,
) -> XlaOp:
    """Return the convolution of the input `lhs` and the kernel `rhs`; the other convolutions are shorthands for this
    one.

    Both have rank n + 2 for n spatial dimensions: (batch, feature, space...) and (output feature, input feature,
    space...) unless `dimension_numbers`, also as labels ("NHWC", "HWIO", "NHWC"), says otherwise. A dilation of d
    puts d - 1 zeros between elements.
    `feature_group_count` and `batch_group_count` split features or batch into independently convolved groups.
    Source: "ConvWithGeneralPadding".
    """
    left, right = _both(builder, lhs, rhs, preferred_element_type)
    rank = left.tensor.rank
    if rank < 2:
        raise ArgumentError("lhs", f"must have batch, feature and spatial dimensions, got {Shape.of(left.type).brief}")
    if right.tensor.rank != rank:
        raise ArgumentError("rhs", f"must have the rank {rank} of lhs, got {Shape.of(right.type).brief}")
    spatial = rank - 2
    numbers = make_convolution_dimension_numbers(dimension_numbers, spatial)
    _check_numbers(numbers, rank)
    strides = checks.per_dimension(window_strides, spatial, "window_strides")
    left_spread = checks.per_dimension(lhs_dilation, spatial, "lhs_dilation")
    right_spread = checks.per_dimension(rhs_dilation, spatial, "rhs_dilation")
    area = [checks.sizes(left)[d] for d in numbers.input_spatial_dimensions]
    window = [checks.sizes(right)[d] for d in numbers.kernel_spatial_dimensions]
    pairs = window_padding(
        padding,
        [dilated(size, factor) for size, factor in zip(area, left_spread, strict=True)],
        [dilated(size, factor) for size, factor in zip(window, right_spread, strict=True)],
        strides,
    )
    _check_groups(numbers, checks.sizes(left), checks.sizes(right), feature_group_count, batch_group_count)
    attributes = {
        "window_strides": strides,
        "padding": padding_attribute(pairs),
        "lhs_dilation": left_spread,
        "rhs_dilation": right_spread,
        "dimension_numbers": numbers.attribute(),
        "feature_group_count": feature_group_count,
        "batch_group_count": batch_group_count,
        **_precision(precision_config),
    }
    if window_reversal is not None:
        attributes["window_reversal"] = tuple(map(bool, window_reversal))
    return builder.emit_one(
        "stablehlo.convolution", [left, right], attributes, element=_element(preferred_element_type)
    )


def _check_numbers(numbers: ConvolutionDimensionNumbers, rank: int) -> None:
    for side, one, two in (
        ("input", "batch", "feature"),
        ("kernel", "output_feature", "input_feature"),
        ("output", "batch", "feature"),
    ):
        dimensions = [getattr(numbers, f"{side}_{name}_dimension") for name in (one, two)]
        dimensions += getattr(numbers, f"{side}_spatial_dimensions")
        if sorted(dimensions) != list(range(rank)):
            raise ArgumentError(
                "dimension_numbers", f"{side} dimensions must be a permutation of {rank}, got {dimensions}"
            )


def _check_groups(
    numbers: ConvolutionDimensionNumbers, lhs: Sequence[int], rhs: Sequence[int], features: int, batches: int
) -> None:
    checks.integer(features, "feature_group_count", 1)
    checks.integer(batches, "batch_group_count", 1)
    if features > 1 and batches > 1:
        raise ArgumentError("batch_group_count", "only one of feature_group_count and batch_group_count may exceed 1")
    batch, inputs = lhs[numbers.input_batch_dimension], lhs[numbers.input_feature_dimension]
    outputs, kernel = rhs[numbers.kernel_output_feature_dimension], rhs[numbers.kernel_input_feature_dimension]
    if inputs != kernel * features:
        raise ArgumentError(
            "rhs", f"the input feature dimension must be {inputs} / feature_group_count {features}, got {kernel}"
        )
    if outputs % features:
        raise ArgumentError("feature_group_count", f"must divide the output feature size {outputs}, got {features}")
    if batch % batches or outputs % batches:
        raise ArgumentError(
            "batch_group_count",
            f"must divide the batch size {batch} and the output feature size {outputs}, got {batches}",
        )


@operation
def Conv(
    builder: XlaBuilder,
    lhs: XlaOp,
    rhs: XlaOp,
    window_strides: Sequence[int],
    padding: Padding | str,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: PrecisionLike = None,
) -> XlaOp:
    """Return the convolution with SAME or VALID padding. Source: "Conv"."""
    return _general(
        builder, lhs, rhs, window_strides, Padding(padding),
        feature_group_count=feature_group_count, batch_group_count=batch_group_count, precision_config=precision_config,
    )  # fmt: skip


@operation_of('"ConvWithGeneralPadding"')
def ConvWithGeneralPadding(
    builder: XlaBuilder,
    lhs: XlaOp,
    rhs: XlaOp,
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: PrecisionLike = None,
) -> XlaOp:
    """Return the convolution with (low, high) padding for each spatial dimension, negative to crop."""
    return _general(
        builder, lhs, rhs, window_strides, padding, lhs_dilation=lhs_dilation, rhs_dilation=rhs_dilation,
        feature_group_count=feature_group_count, batch_group_count=batch_group_count, precision_config=precision_config,
    )  # fmt: skip


@operation_of('"ConvWithGeneralPadding"')
def ConvWithGeneralDimensions(
    builder: XlaBuilder,
    lhs: XlaOp,
    rhs: XlaOp,
    window_strides: Sequence[int],
    padding: Padding | str,
    dimension_numbers: ConvolutionDimensionNumbers,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: PrecisionLike = None,
) -> XlaOp:
    """Return the convolution with SAME or VALID padding and dimension numbers."""
    return _general(
        builder, lhs, rhs, window_strides, Padding(padding), dimension_numbers=dimension_numbers,
        feature_group_count=feature_group_count, batch_group_count=batch_group_count, precision_config=precision_config,
    )  # fmt: skip


@operation_of('"ConvWithGeneralPadding"')
def ConvGeneral(
    builder: XlaBuilder,
    lhs: XlaOp,
    rhs: XlaOp,
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dimension_numbers: ConvolutionDimensionNumbers,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: PrecisionLike = None,
) -> XlaOp:
    """Return the convolution with (low, high) padding and dimension numbers."""
    return _general(
        builder, lhs, rhs, window_strides, padding, dimension_numbers=dimension_numbers,
        feature_group_count=feature_group_count, batch_group_count=batch_group_count, precision_config=precision_config,
    )  # fmt: skip


def _general(builder: XlaBuilder, *args: object, **kwargs: object) -> XlaOp:
    return OPERATIONS["ConvGeneralDilated"](builder, *args, **kwargs)
