"""Ops that make, place and rearrange elements. Source: StableHLO specification, the op of each name."""

from __future__ import annotations

from spmd.dialects import kinds
from spmd.dialects.core import attribute, define, operand, region, result
from spmd.dialects.forms import TYPED, same_types
from spmd.dialects.kinds import tensor_of_kinds

CONSTANT = define(
    "stablehlo.constant",
    attributes=[attribute("value", kinds.ELEMENTS)],
    results=[result("output", kinds.STATIC_TENSOR)],
    assembly="custom<Constant>",
    traits=["pure"],
)

IOTA = define(
    "stablehlo.iota",
    attributes=[attribute("iota_dimension", kinds.I64)],
    results=[result("output", tensor_of_kinds("signed", "unsigned", "float", "complex", "quantized", static=True))],
    assembly="`dim` `=` $iota_dimension attr-dict `:` type($output)",
    traits=["pure"],
)

BROADCAST = define(
    "stablehlo.broadcast",
    operands=[operand("operand")],
    attributes=[attribute("broadcast_sizes", kinds.I64_ARRAY)],
    results=[result("result", kinds.TENSOR_OR_PER_AXIS)],
    assembly="$operand `,` `sizes` `=` $broadcast_sizes " + TYPED,
    traits=["pure"],
)

BROADCAST_IN_DIM = define(
    "stablehlo.broadcast_in_dim",
    operands=[operand("operand", kinds.TENSOR_OR_PER_AXIS)],
    attributes=[attribute("broadcast_dimensions", kinds.I64_ARRAY)],
    results=[result("result", kinds.STATIC_OR_BOUNDED)],
    assembly="$operand `,` `dims` `=` $broadcast_dimensions " + TYPED,
    traits=["pure"],
)

CONCATENATE = define(
    "stablehlo.concatenate",
    operands=[operand("inputs", variadic=True)],
    attributes=[attribute("dimension", kinds.I64)],
    results=[result("result")],
    assembly="custom<VariadicOperandWithAttribute>($inputs) `dim` `=` $dimension " + TYPED,
    traits=["pure"],
)

PAD = define(
    "stablehlo.pad",
    operands=[operand("operand"), operand("padding_value", kinds.SCALAR)],
    attributes=[
        attribute("edge_padding_low", kinds.I64_ARRAY),
        attribute("edge_padding_high", kinds.I64_ARRAY),
        attribute("interior_padding", kinds.I64_ARRAY),
    ],
    results=[result("result")],
    assembly="$operand `,` $padding_value `,` `low` `=` $edge_padding_low `,` `high` `=` $edge_padding_high `,` "
    "`interior` `=` $interior_padding " + TYPED,
    traits=["pure"],
)

RESHAPE = define(
    "stablehlo.reshape",
    operands=[operand("operand", kinds.TENSOR_OR_PER_AXIS)],
    results=[result("result", kinds.STATIC_OR_BOUNDED)],
    assembly="operands " + TYPED,
    traits=["pure"],
)

REVERSE = define(
    "stablehlo.reverse",
    operands=[operand("operand")],
    attributes=[attribute("dimensions", kinds.I64_ARRAY)],
    results=[result("result")],
    assembly="$operand `,` `dims` `=` $dimensions " + same_types("operand", "result"),
    traits=["pure"],
)

SLICE = define(
    "stablehlo.slice",
    operands=[operand("operand")],
    attributes=[
        attribute("start_indices", kinds.I64_ARRAY),
        attribute("limit_indices", kinds.I64_ARRAY),
        attribute("strides", kinds.I64_ARRAY),
    ],
    results=[result("result")],
    assembly="$operand custom<SliceRanges>($start_indices, $limit_indices, $strides) " + TYPED,
    traits=["pure"],
)

TRANSPOSE = define(
    "stablehlo.transpose",
    operands=[operand("operand", kinds.TENSOR_OR_PER_AXIS)],
    attributes=[attribute("permutation", kinds.I64_ARRAY)],
    results=[result("result", kinds.TENSOR_OR_PER_AXIS)],
    assembly="$operand `,` `dims` `=` $permutation " + TYPED,
    traits=["pure"],
)

SORT = define(
    "stablehlo.sort",
    operands=[operand("inputs", variadic=True)],
    attributes=[
        attribute("dimension", kinds.I64, default=-1),
        attribute("is_stable", kinds.BOOL, default=False),
    ],
    results=[result("results", variadic=True)],
    regions=[region("comparator")],
    traits=["recursive"],
)
