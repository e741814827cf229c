"""Ops that multiply and add up. Source: StableHLO specification, the op of each name."""

from __future__ import annotations

from spmd.dialects import kinds
from spmd.dialects.core import attribute, define, operand, result
from spmd.dialects.forms import TYPED
from spmd.dialects.structs import ConvDimensionNumbers, DotAlgorithm, DotDimensionNumbers

PRECISION_CONFIG = kinds.array_of(kinds.enum("stablehlo", "precision", "DEFAULT", "HIGH", "HIGHEST"))

DOT = define(
    "stablehlo.dot",
    operands=[operand("lhs"), operand("rhs", kinds.TENSOR_OR_PER_AXIS)],
    attributes=[attribute("precision_config", PRECISION_CONFIG, optional=True)],
    results=[result("result", kinds.TENSOR_OR_PER_AXIS)],
    assembly="$lhs `,` $rhs `` custom<PrecisionConfig>($precision_config) " + TYPED,
    traits=["pure"],
)

DOT_GENERAL = define(
    "stablehlo.dot_general",
    operands=[operand("lhs"), operand("rhs", kinds.TENSOR_OR_PER_AXIS)],
    attributes=[
        attribute("dot_dimension_numbers", kinds.struct(DotDimensionNumbers)),
        attribute("precision_config", PRECISION_CONFIG, optional=True),
        attribute("algorithm", kinds.struct(DotAlgorithm), optional=True),
    ],
    results=[result("result", kinds.TENSOR_OR_PER_AXIS)],
    assembly="$lhs `,` $rhs `,` custom<DotDimensionNumbers>($dot_dimension_numbers) `` "
    "custom<PrecisionConfigAndAlgorithm>($precision_config, $algorithm) " + TYPED,
    traits=["pure"],
)

EINSUM = define(
    "stablehlo.einsum",
    operands=[operand("lhs"), operand("rhs")],
    attributes=[attribute("einsum_config", kinds.STRING)],
    results=[result("result")],
    assembly="$lhs `,` $rhs `,` `config` `=` $einsum_config " + TYPED,
    traits=["pure"],
)

UNARY_EINSUM = define(
    "stablehlo.unary_einsum",
    operands=[operand("operand")],
    attributes=[attribute("einsum_config", kinds.STRING)],
    results=[result("result")],
    assembly="$operand `,` `config` `=` $einsum_config " + TYPED,
    traits=["pure"],
)

CONVOLUTION = define(
    "stablehlo.convolution",
    operands=[operand("lhs"), operand("rhs", kinds.TENSOR_OR_PER_AXIS)],
    attributes=[
        attribute("window_strides", kinds.I64_ARRAY, optional=True),
        attribute("padding", kinds.I64_DENSE, optional=True),
        attribute("lhs_dilation", kinds.I64_ARRAY, optional=True),
        attribute("rhs_dilation", kinds.I64_ARRAY, optional=True),
        attribute("window_reversal", kinds.BOOL_ARRAY, optional=True),
        attribute("dimension_numbers", kinds.struct(ConvDimensionNumbers)),
        attribute("feature_group_count", kinds.I64),
        attribute("batch_group_count", kinds.I64),
        attribute("precision_config", PRECISION_CONFIG, optional=True),
    ],
    results=[result("result", kinds.TENSOR_OR_PER_AXIS)],
    assembly="`(` operands `)` `dim_numbers` `=` custom<ConvolutionDimensions>($dimension_numbers) `,` "
    "`window` `=` `{` custom<WindowAttributes>($window_strides, $padding, $lhs_dilation, $rhs_dilation, "
    "$window_reversal) `}` " + TYPED,
    traits=["pure"],
)
