"""Convolution. Source: StableHLO specification, convolution; shared with dynamic_conv.

Zeros of the padding and of a dilated lhs are multiplied like other elements: with infinite or NaN weights the products
are NaN. This is how the specification, by pad and dot_general, and its interpreter define the op; XLA on CPUs omits
zeros for some shapes and group counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd.dialects import kinds, type_sets
from spmd.dialects.checks import (
    Dimension,
    at_least,
    compatible_elements,
    constant_ints,
    dims,
    equal,
    equal_elements,
    in_range,
    is_quantized,
    listed,
    per_axis,
    positive,
    unique,
)
from spmd.dialects.contraction import (
    PRECISION_CONFIG,
    both_precisions,
    check_quantized_product,
    contraction_element,
    few_precisions,
)
from spmd.dialects.core import OpDef, Trait, attribute, define, operand, result
from spmd.dialects.forms import TYPED
from spmd.dialects.shapes import tensor, windows
from spmd.dialects.structs import ConvDimensionNumbersAttr
from spmd.ir import Op
from spmd.types import Type

#: The attributes of `dynamic_conv`; `convolution` has the padding in addition.
CONVOLUTION_ATTRIBUTES = (
    attribute("window_strides", kinds.I64_ARRAY, optional=True),
    attribute("lhs_dilation", kinds.I64_ARRAY, optional=True),
    attribute("rhs_dilation", kinds.I64_ARRAY, optional=True),
    attribute("window_reversal", kinds.BOOL_ARRAY, optional=True),
    attribute("dimension_numbers", kinds.struct(ConvDimensionNumbersAttr)),
    attribute("feature_group_count", kinds.I64),
    attribute("batch_group_count", kinds.I64),
    attribute("precision_config", PRECISION_CONFIG, optional=True),
)

CONVOLUTION = define(
    "stablehlo.convolution",
    operands=[operand("lhs"), operand("rhs", type_sets.TENSOR_OR_PER_AXIS)],
    attributes=[attribute("padding", kinds.I64_DENSE, optional=True), *CONVOLUTION_ATTRIBUTES],
    results=[result("result", type_sets.TENSOR_OR_PER_AXIS)],
    assembly="`(` operands `)` `dim_numbers` `=` custom<ConvolutionDimensions>($dimension_numbers) `,` "
    "`window` `=` `{` custom<WindowAttributes>($window_strides, $padding, $lhs_dilation, $rhs_dilation, "
    "$window_reversal) `}` " + TYPED,
    traits=[Trait.PURE],
)


def _numbers(op: Op) -> ConvDimensionNumbersAttr:
    numbers: ConvDimensionNumbersAttr = op["dimension_numbers"]
    return numbers


def _spatial(op: Op) -> int:
    return op.operands[0].tensor.rank - 2


def _window_is_known(op: Op) -> bool:
    """Return whether the padding is constant; a dynamic_conv is checked only then, as in StableHLO."""
    return len(op.operands) == 2 or constant_ints(op.operands[2]) is not None


def _array(declared: OpDef, of_size: str, of_values: str, name: str) -> None:
    """Declare an optional array with one entry per spatial dimension, positive unless `of_values` is empty."""

    def sized(op: Op) -> str | None:
        return equal(len(op[name]), _spatial(op)) if op[name] and _window_is_known(op) else None

    declared.constraint(of_size, f"size({name}) = N - 2")(sized)
    if of_values:
        declared.constraint(of_values, f"0 < {name}")(
            lambda op: positive(op[name] or ()) if _window_is_known(op) else None
        )


def _all_dimensions(op: Op, part: str) -> tuple[int, ...]:
    numbers = _numbers(op)
    if part == "kernel":
        return (
            *numbers.kernel_spatial_dimensions,
            numbers.kernel_input_feature_dimension,
            numbers.kernel_output_feature_dimension,
        )
    if part == "input":
        return (numbers.input_batch_dimension, *numbers.input_spatial_dimensions, numbers.input_feature_dimension)
    return (numbers.output_batch_dimension, *numbers.output_spatial_dimensions, numbers.output_feature_dimension)


def _divides(size: Dimension, count: int) -> str | None:
    return None if size is None or size % count == 0 else f"{size} and {count}"


def _lhs_size(op: Op, field: str) -> Dimension:
    dimension: int = getattr(_numbers(op), field)
    return op.operands[0].tensor.shape[dimension]


def _rhs_size(op: Op, field: str) -> Dimension:
    dimension: int = getattr(_numbers(op), field)
    return op.operands[1].tensor.shape[dimension]


def check_convolution(declared: OpDef) -> None:
    """Declare the constraints that convolution and dynamic_conv share, except those on padding and results."""

    @declared.constraint("C1", "2 <= N = rank(lhs) = rank(rhs)")
    def _(op: Op) -> str | None:
        ranks = op.operands[0].tensor.rank, op.operands[1].tensor.rank
        return equal(*ranks) or (listed(ranks) if ranks[0] < 2 else None)

    @declared.constraint("C27", "element_type(lhs) = element_type(rhs)")
    def _(op: Op) -> str | None:
        lhs, rhs = (value.tensor.element_type for value in op.operands[:2])
        if is_quantized(lhs) or is_quantized(rhs) or compatible_elements(lhs, rhs):
            return None
        return listed((lhs, rhs))

    declared.constraint("C21", "0 < feature_group_count")(lambda op: at_least(op["feature_group_count"], 1))
    declared.constraint("C22", "0 < batch_group_count")(lambda op: at_least(op["batch_group_count"], 1))
    _check_placement(declared)

    @declared.constraint("C23", "feature_group_count = 1 or batch_group_count = 1")
    def _(op: Op) -> str | None:
        counts = op["feature_group_count"], op["batch_group_count"]
        return None if 1 in counts else listed(counts)

    _check_sizes(declared)
    declared.constraint("C24", "size(precision_config) = 2")(few_precisions)
    declared.constraint("C24", "size(precision_config) = 2", customary=True)(both_precisions)
    _array(declared, "C2", "C3", "window_strides")
    _array(declared, "C5", "C6", "lhs_dilation")
    _array(declared, "C7", "C8", "rhs_dilation")
    _array(declared, "C9", "", "window_reversal")

    @declared.constraint("", "windows must not be empty")
    def _(op: Op) -> str | None:
        rhs = op.operands[1].tensor
        sizes = [rhs.shape[dimension] for dimension in _numbers(op).kernel_spatial_dimensions]
        return None if all(size is None or size > 0 for size in sizes) else dims(sizes)


def _check_placement(declared: OpDef) -> None:
    """Declare that each dimension of operands and result has exactly one role."""
    for size, values, part in (("C12", "C13", "input"), ("C17", "C18", "kernel"), ("C19", "C20", "output")):

        def counted(op: Op, part: str = part) -> str | None:
            return equal(len(getattr(_numbers(op), f"{part}_spatial_dimensions")), _spatial(op))

        def placed(op: Op, part: str = part) -> str | None:
            numbers = _all_dimensions(op, part)
            return in_range(numbers, op.operands[0].tensor.rank) or unique(numbers)

        declared.constraint(size, f"size({part}_spatial_dimensions) = N - 2")(counted)
        declared.constraint(values, f"{part} dimensions must be unique and in [0, N)")(placed)


def _check_sizes(declared: OpDef) -> None:
    """Declare that batch and features are divisible by the numbers of groups."""
    declared.constraint("C10", "dim(lhs, input_batch_dimension) % batch_group_count = 0")(
        lambda op: _divides(_lhs_size(op, "input_batch_dimension"), op["batch_group_count"])
    )
    declared.constraint("C11", "dim(lhs, input_feature_dimension) % feature_group_count = 0")(
        lambda op: _divides(_lhs_size(op, "input_feature_dimension"), op["feature_group_count"])
    )

    @declared.constraint(
        "C14",
        "dim(rhs, kernel_input_feature_dimension) = dim(lhs, input_feature_dimension) / feature_group_count",
    )
    def _(op: Op) -> str | None:
        expected, features = _rhs_size(op, "kernel_input_feature_dimension"), _lhs_size(op, "input_feature_dimension")
        if expected is None or features is None or expected == features // op["feature_group_count"]:
            return None
        return f"{expected}, {features} and {op['feature_group_count']}"

    for label, count in (("C15", "batch_group_count"), ("C16", "feature_group_count")):

        def divided(op: Op, count: str = count) -> str | None:
            return _divides(_rhs_size(op, "kernel_output_feature_dimension"), op[count])

        declared.constraint(label, f"dim(rhs, kernel_output_feature_dimension) % {count} = 0")(divided)


def check_convolution_results(declared: OpDef) -> None:
    """Declare the constraints on quantized results of convolution and dynamic_conv."""

    def axis(label: str, text: str, index: int, field: str) -> None:
        def check(op: Op) -> str | None:
            element = per_axis([*op.operand_types[:2], op.result.type][index])
            return None if element is None else equal(element.quantization_dimension, getattr(_numbers(op), field))

        declared.constraint(label, text, on_results=True)(check)

    axis("C29", "quantization_dimension(rhs) = kernel_output_feature_dimension", 1, "kernel_output_feature_dimension")
    axis("C30", "quantization_dimension(result) = output_feature_dimension", 2, "output_feature_dimension")
    check_quantized_product(declared, ["C28", "C31", "C32", "C33", "C34"])

    @declared.constraint(
        "C27", "element_type(lhs) = element_type(rhs) = element_type(result)", on_results=True, customary=True
    )
    def _(op: Op) -> str | None:
        types = (*op.operand_types[:2], op.result.type)
        return None if any(map(is_quantized, types)) else equal_elements(*types)


def convolved(op: Op, padding: Sequence[Sequence[int]] | None) -> list[Type]:
    """Return the result type; spatial sizes are dynamic if the padding is unknown."""
    numbers, lhs, rhs = _numbers(op), op.operands[0].tensor, op.operands[1].tensor
    count = lhs.rank - 2
    ones = (1,) * count
    shape: list[Dimension] = [None] * lhs.rank
    if padding is not None:
        sizes = windows(
            [lhs.shape[d] for d in numbers.input_spatial_dimensions],
            [rhs.shape[d] for d in numbers.kernel_spatial_dimensions],
            op["window_strides"] or ones,
            padding,
            op["lhs_dilation"] or ones,
            op["rhs_dilation"] or ones,
        )
        for dimension, size in zip(numbers.output_spatial_dimensions, sizes, strict=True):
            shape[dimension] = size
    batch = lhs.shape[numbers.input_batch_dimension]
    shape[numbers.output_batch_dimension] = None if batch is None else batch // op["batch_group_count"]
    shape[numbers.output_feature_dimension] = rhs.shape[numbers.kernel_output_feature_dimension]
    return [tensor(shape, contraction_element(op))]


def padding_values(padding: np.ndarray[tuple[int, ...], np.dtype[np.int64]] | None, count: int) -> list[list[int]]:
    """Return (low, high) of each spatial dimension; zeros if absent."""
    return [[0, 0]] * count if padding is None else padding.tolist()


check_convolution(CONVOLUTION)


@CONVOLUTION.constraint("C4", "shape(padding) = [N - 2, 2]")
def _(op: Op) -> str | None:
    return None if op["padding"] is None else equal(op["padding"].shape, (_spatial(op), 2))


CONVOLUTION.infers("C25, C26", "the result has the sizes of batch, output features and num_windows")(
    lambda op: convolved(op, padding_values(op["padding"], _spatial(op)))
)
check_convolution_results(CONVOLUTION)
