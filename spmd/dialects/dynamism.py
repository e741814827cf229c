"""Ops whose result shape is a run-time value. Source: StableHLO specification, the op of each name."""

from __future__ import annotations

from spmd.dialects import kinds
from spmd.dialects.contraction import PRECISION_CONFIG
from spmd.dialects.core import attribute, define, operand, result
from spmd.dialects.forms import TYPED
from spmd.dialects.kinds import tensor_of_kinds, tensor_of_types
from spmd.dialects.structs import ConvDimensionNumbers, GatherDimensionNumbers
from spmd.types import I32

DYNAMIC_BROADCAST_IN_DIM = define(
    "stablehlo.dynamic_broadcast_in_dim",
    operands=[operand("operand", kinds.TENSOR_OR_PER_AXIS), operand("output_dimensions", kinds.STATIC_DIMENSIONS)],
    attributes=[
        attribute("broadcast_dimensions", kinds.I64_ARRAY),
        attribute("known_expanding_dimensions", kinds.I64_ARRAY, optional=True),
        attribute("known_nonexpanding_dimensions", kinds.I64_ARRAY, optional=True),
    ],
    results=[result("result", kinds.TENSOR_OR_PER_AXIS)],
    assembly="$operand `,` $output_dimensions `,` `dims` `=` $broadcast_dimensions " + TYPED,
    traits=["pure", "reads_constants"],
)

DYNAMIC_CONV = define(
    "stablehlo.dynamic_conv",
    operands=[
        operand("lhs"),
        operand("rhs"),
        operand("padding", tensor_of_kinds("signed", "unsigned", rank=2, static=True)),
    ],
    attributes=[
        attribute("window_strides", kinds.I64_ARRAY, optional=True),
        attribute("lhs_dilation", kinds.I64_ARRAY, optional=True),
        attribute("rhs_dilation", kinds.I64_ARRAY, optional=True),
        attribute("window_reversal", kinds.BOOL_ARRAY, optional=True),
        attribute("dimension_numbers", kinds.struct(ConvDimensionNumbers)),
        attribute("feature_group_count", kinds.I64),
        attribute("batch_group_count", kinds.I64),
        attribute("precision_config", PRECISION_CONFIG, optional=True),
    ],
    results=[result("result")],
    traits=["pure", "reads_constants"],
)

DYNAMIC_GATHER = define(
    "stablehlo.dynamic_gather",
    operands=[
        operand("operand"),
        operand("start_indices", kinds.INTEGER),
        operand("slice_sizes", tensor_of_kinds("signed", "unsigned", rank=1, static=True)),
    ],
    attributes=[
        attribute("dimension_numbers", kinds.struct(GatherDimensionNumbers)),
        attribute("indices_are_sorted", kinds.BOOL, default=False),
    ],
    results=[result("result")],
    traits=["pure", "reads_constants"],
)

DYNAMIC_IOTA = define(
    "stablehlo.dynamic_iota",
    operands=[operand("output_shape", kinds.STATIC_DIMENSIONS)],
    attributes=[attribute("iota_dimension", kinds.I64)],
    results=[result("result")],
    assembly="$output_shape `,` `dim` `=` $iota_dimension " + TYPED,
    traits=["pure", "reads_constants"],
)

DYNAMIC_PAD = define(
    "stablehlo.dynamic_pad",
    operands=[
        operand("operand"),
        operand("padding_value", kinds.SCALAR),
        operand("edge_padding_low", kinds.STATIC_DIMENSIONS),
        operand("edge_padding_high", kinds.STATIC_DIMENSIONS),
        operand("interior_padding", kinds.STATIC_DIMENSIONS),
    ],
    results=[result("result")],
    assembly="operands " + TYPED,
    traits=["pure", "reads_constants"],
)

DYNAMIC_RESHAPE = define(
    "stablehlo.dynamic_reshape",
    operands=[operand("operand", kinds.TENSOR_OR_PER_AXIS), operand("output_shape", kinds.STATIC_DIMENSIONS)],
    results=[result("result", kinds.TENSOR_OR_PER_AXIS)],
    assembly="operands " + TYPED,
    traits=["pure", "reads_constants"],
)

REAL_DYNAMIC_SLICE = define(
    "stablehlo.real_dynamic_slice",
    operands=[
        operand("operand"),
        operand("start_indices", kinds.DIMENSIONS),
        operand("limit_indices", kinds.DIMENSIONS),
        operand("strides", kinds.DIMENSIONS),
    ],
    results=[result("result")],
    assembly="operands " + TYPED,
    traits=["pure"],
)

GET_DIMENSION_SIZE = define(
    "stablehlo.get_dimension_size",
    operands=[operand("operand", kinds.TENSOR_OR_PER_AXIS)],
    attributes=[attribute("dimension", kinds.I64)],
    results=[result("result", tensor_of_types(I32))],
    assembly="$operand `,` `dim` `=` $dimension " + TYPED,
    traits=["pure"],
)

SET_DIMENSION_SIZE = define(
    "stablehlo.set_dimension_size",
    operands=[operand("operand"), operand("size", tensor_of_types(I32))],
    attributes=[attribute("dimension", kinds.I64)],
    results=[result("result")],
    assembly="$operand `,` $size `,` `dim` `=` $dimension " + TYPED,
    traits=["pure", "reads_constants"],
)
