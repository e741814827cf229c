"""Conversions to and from quantized tensors. Source: StableHLO specification, uniform_quantize, uniform_dequantize."""

from __future__ import annotations

from spmd.dialects import type_sets
from spmd.dialects.checks import element_of, listed, same_shape
from spmd.dialects.core import Trait, define, operand, result
from spmd.dialects.forms import one_type
from spmd.dialects.shapes import with_element
from spmd.dialects.type_sets import tensor_of_kinds
from spmd.ir import Op
from spmd.types import QuantizedType, Type

_QUANTIZED = tensor_of_kinds("quantized", "quantized_axis")

UNIFORM_QUANTIZE = define(
    "stablehlo.uniform_quantize",
    operands=[operand("operand", tensor_of_kinds("float", "quantized", "quantized_axis"))],
    results=[result("result", _QUANTIZED)],
    assembly="$operand " + one_type("operand", "result"),
    traits=[Trait.PURE, Trait.ELEMENTWISE],
)

UNIFORM_QUANTIZE.constraint("C1", "shape(operand) = shape(result)", on_results=True)(
    lambda op: same_shape(op.operands[0].type, op.result.type)
)


def _expressed(type: Type) -> Type:
    element = element_of(type)
    return element.expressed if isinstance(element, QuantizedType) else element


@UNIFORM_QUANTIZE.constraint(
    "C2", "expressed_type(result) is the operand's element type, or its expressed type", on_results=True
)
def _(op: Op) -> str | None:
    expressed = _expressed(op.result.type), _expressed(op.operands[0].type)
    return None if expressed[0] is expressed[1] else listed(expressed)


UNIFORM_DEQUANTIZE = define(
    "stablehlo.uniform_dequantize",
    operands=[operand("operand", _QUANTIZED)],
    results=[result("result", type_sets.FLOAT)],
    assembly="$operand " + one_type("operand", "result"),
    traits=[Trait.PURE, Trait.ELEMENTWISE],
)

UNIFORM_DEQUANTIZE.infers("C1, C2", "the result must have the operand's shape and expressed type")(
    lambda op: [with_element(op.operands[0].type, _expressed(op.operands[0].type))]
)
