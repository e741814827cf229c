"""To and from quantized tensors. Source: StableHLO specification, uniform_quantize and uniform_dequantize."""

from __future__ import annotations

from spmd.dialects import kinds
from spmd.dialects.core import define, operand, result
from spmd.dialects.forms import same_types
from spmd.dialects.kinds import tensor_of_kinds

_QUANTIZED = tensor_of_kinds("quantized", "quantized_axis")

UNIFORM_QUANTIZE = define(
    "stablehlo.uniform_quantize",
    operands=[operand("operand", tensor_of_kinds("float", "quantized", "quantized_axis"))],
    results=[result("result", _QUANTIZED)],
    assembly="$operand " + same_types("operand", "result"),
    traits=["pure", "elementwise"],
)

UNIFORM_DEQUANTIZE = define(
    "stablehlo.uniform_dequantize",
    operands=[operand("operand", _QUANTIZED)],
    results=[result("result", kinds.FLOAT)],
    assembly="$operand " + same_types("operand", "result"),
    traits=["pure", "elementwise"],
)
