"""Branches, loops, tuples, tokens and calls of other programs. Source: StableHLO specification, the op of each name."""

from __future__ import annotations

from spmd.attributes import DictAttr
from spmd.dialects import kinds
from spmd.dialects.core import attribute, define, operand, region, result
from spmd.dialects.forms import TYPED
from spmd.dialects.structs import OutputOperandAlias
from spmd.types import I32

IF = define(
    "stablehlo.if",
    operands=[operand("pred", kinds.PREDICATE)],
    results=[result("results", kinds.VALUE, variadic=True)],
    regions=[region("true_branch"), region("false_branch")],
    traits=["recursive"],
)

CASE = define(
    "stablehlo.case",
    operands=[operand("index", kinds.tensor_of_types(I32))],
    results=[result("results", kinds.VALUE, variadic=True)],
    regions=[region("branches", variadic=True)],
    traits=["recursive"],
)

WHILE = define(
    "stablehlo.while",
    operands=[operand("operand", kinds.VALUE_OR_BUFFER, variadic=True)],
    results=[result("results", kinds.VALUE_OR_BUFFER, variadic=True)],
    regions=[region("cond"), region("body")],
    assembly="custom<While>",
    traits=["recursive"],
)

RETURN = define(
    "stablehlo.return",
    operands=[operand("results", kinds.VALUE_OR_BUFFER, variadic=True)],
    assembly="$results attr-dict (`:` type($results)^)?",
    traits=["pure", "terminator"],
)

OPTIMIZATION_BARRIER = define(
    "stablehlo.optimization_barrier",
    operands=[operand("operand", kinds.TENSOR_OR_TOKEN, variadic=True)],
    results=[result("result", kinds.TENSOR_OR_TOKEN, variadic=True)],
    assembly="attr-dict ($operand^ `:` custom<PairwiseOpType>(type($operand), type($result))):(`(` `)`)?",
    traits=["pure"],
)

AFTER_ALL = define(
    "stablehlo.after_all",
    operands=[operand("inputs", kinds.TOKEN, variadic=True)],
    results=[result("result", kinds.TOKEN)],
    assembly="$inputs attr-dict `:` "
    "custom<VariadicSameOperandsAndResultType>(ref($inputs), type($inputs), type($result))",
    traits=["pure"],
)

CREATE_TOKEN = define(
    "stablehlo.create_token",
    results=[result("output", kinds.TOKEN)],
    assembly="attr-dict `:` type(results)",
    traits=["pure"],
)

TUPLE = define(
    "stablehlo.tuple",
    operands=[operand("val", kinds.VALUE_BUFFER_OR_TUPLE, variadic=True)],
    results=[result("result", kinds.TUPLE)],
    assembly="$val attr-dict `:` custom<TupleOpType>(type($val), type($result))",
    traits=["pure"],
)

GET_TUPLE_ELEMENT = define(
    "stablehlo.get_tuple_element",
    operands=[operand("operand", kinds.TUPLE)],
    attributes=[attribute("index", kinds.I32)],
    results=[result("result", kinds.VALUE_BUFFER_OR_TUPLE)],
    assembly="$operand `[` $index `]` " + TYPED,
    traits=["pure"],
)

COMPOSITE = define(
    "stablehlo.composite",
    operands=[operand("inputs", kinds.VALUE_OR_TUPLE, variadic=True)],
    attributes=[
        attribute("name", kinds.STRING),
        attribute("composite_attributes", kinds.DICTIONARY, default=DictAttr({})),
        attribute("decomposition", kinds.SYMBOL),
        attribute("version", kinds.I32, default=0),
    ],
    results=[result("results", kinds.VALUE_OR_TUPLE, variadic=True)],
    regions=[region("composite_regions", variadic=True)],
    assembly="$name operands (` ` `(` $composite_regions^ `)`)? " + TYPED,
)

_LAYOUT = kinds.INDEX_DENSE

CUSTOM_CALL = define(
    "stablehlo.custom_call",
    operands=[operand("inputs", kinds.CUSTOM_CALL_VALUE, variadic=True)],
    attributes=[
        attribute("call_target_name", kinds.STRING),
        attribute("has_side_effect", kinds.BOOL, default=False),
        attribute("backend_config", kinds.either(kinds.STRING, kinds.DICTIONARY), optional=True),
        attribute("api_version", kinds.I32, default=1),
        attribute("called_computations", kinds.array_of(kinds.SYMBOL), default=()),
        attribute("operand_layouts", kinds.array_of(_LAYOUT), optional=True),
        attribute("result_layouts", kinds.array_of(_LAYOUT), optional=True),
        attribute("output_operand_aliases", kinds.array_of(kinds.struct(OutputOperandAlias)), default=()),
        attribute("result_tilings", kinds.array_of(kinds.array_of(_LAYOUT)), optional=True),
    ],
    results=[result("results", kinds.CUSTOM_CALL_VALUE, variadic=True)],
    assembly="custom<CustomCallTarget>($call_target_name) `(` $inputs `)` " + TYPED,
)
