"""Ops that fold elements with a region. Source: StableHLO specification, the op of each name."""

from __future__ import annotations

from spmd.dialects import kinds
from spmd.dialects.core import attribute, define, operand, region, result

MAP = define(
    "stablehlo.map",
    operands=[operand("inputs", variadic=True)],
    attributes=[attribute("dimensions", kinds.I64_ARRAY)],
    results=[result("result")],
    regions=[region("computation")],
    traits=["recursive"],
)

REDUCE = define(
    "stablehlo.reduce",
    operands=[operand("inputs", variadic=True), operand("init_values", variadic=True)],
    attributes=[attribute("dimensions", kinds.I64_ARRAY)],
    results=[result("results", variadic=True)],
    regions=[region("body")],
    assembly="custom<Reduce>",
    traits=["recursive"],
)

REDUCE_WINDOW = define(
    "stablehlo.reduce_window",
    operands=[operand("inputs", variadic=True), operand("init_values", variadic=True)],
    attributes=[
        attribute("window_dimensions", kinds.I64_ARRAY),
        attribute("window_strides", kinds.I64_ARRAY, optional=True),
        attribute("base_dilations", kinds.I64_ARRAY, optional=True),
        attribute("window_dilations", kinds.I64_ARRAY, optional=True),
        attribute("padding", kinds.I64_DENSE, optional=True),
    ],
    results=[result("results", variadic=True)],
    regions=[region("body")],
    traits=["recursive"],
)

SELECT_AND_SCATTER = define(
    "stablehlo.select_and_scatter",
    operands=[operand("operand"), operand("source"), operand("init_value")],
    attributes=[
        attribute("window_dimensions", kinds.I64_ARRAY, optional=True),
        attribute("window_strides", kinds.I64_ARRAY, optional=True),
        attribute("padding", kinds.I64_DENSE, optional=True),
    ],
    results=[result("result")],
    regions=[region("select"), region("scatter")],
    traits=["recursive"],
)
