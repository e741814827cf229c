"""Ops that read or write at indices. Source: StableHLO specification, the op of each name."""

from __future__ import annotations

from spmd.dialects import kinds
from spmd.dialects.core import attribute, define, operand, region, result
from spmd.dialects.forms import TYPED
from spmd.dialects.kinds import tensor_of_kinds
from spmd.dialects.structs import GatherDimensionNumbers, ScatterDimensionNumbers

DYNAMIC_SLICE = define(
    "stablehlo.dynamic_slice",
    operands=[operand("operand"), operand("start_indices", kinds.INTEGER_SCALAR, variadic=True)],
    attributes=[attribute("slice_sizes", kinds.I64_ARRAY)],
    results=[result("result")],
    assembly="$operand `,` custom<VariadicOperandWithAttribute>($start_indices) `sizes` `=` $slice_sizes " + TYPED,
    traits=["pure"],
)

DYNAMIC_UPDATE_SLICE = define(
    "stablehlo.dynamic_update_slice",
    operands=[
        operand("operand"),
        operand("update"),
        operand("start_indices", kinds.INTEGER_SCALAR, variadic=True),
    ],
    results=[result("result")],
    assembly="operands " + TYPED,
    traits=["pure"],
)

GATHER = define(
    "stablehlo.gather",
    operands=[operand("operand"), operand("start_indices", kinds.INTEGER)],
    attributes=[
        attribute("dimension_numbers", kinds.struct(GatherDimensionNumbers)),
        attribute("slice_sizes", kinds.I64_ARRAY),
        attribute("indices_are_sorted", kinds.BOOL, default=False),
    ],
    results=[result("result")],
    traits=["pure"],
)

SCATTER = define(
    "stablehlo.scatter",
    operands=[
        operand("inputs", variadic=True),
        operand("scatter_indices", tensor_of_kinds("i1", "signed", "unsigned", "index")),
        operand("updates", variadic=True),
    ],
    attributes=[
        attribute("scatter_dimension_numbers", kinds.struct(ScatterDimensionNumbers)),
        attribute("indices_are_sorted", kinds.BOOL, default=False),
        attribute("unique_indices", kinds.BOOL, default=False),
    ],
    results=[result("results", variadic=True)],
    regions=[region("update_computation")],
    traits=["recursive"],
)

TORCH_INDEX_SELECT = define(
    "stablehlo.torch_index_select",
    operands=[operand("operand"), operand("index")],
    attributes=[attribute("dim", kinds.I64), attribute("batch_dims", kinds.I64)],
    results=[result("result")],
    traits=["pure"],
)
