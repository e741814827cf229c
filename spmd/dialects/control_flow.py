"""Branches, loops, tuples, tokens and calls of other programs. Source: StableHLO specification, the op of each name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from spmd.dialects import kinds, type_sets
from spmd.dialects.checks import all_compatible, at_least, listed, parameters, returned, signature
from spmd.dialects.core import Lookup, OpDef, Trait, attribute, define, operand, region, result
from spmd.dialects.declarations import define_unary
from spmd.dialects.forms import TYPED
from spmd.dialects.shapes import least_specific
from spmd.ir import Function, Op
from spmd.ir.attributes import DictAttr
from spmd.types import I1, I32, TOKEN, FunctionType, TensorType, TupleType, Type


def _check_branches(declared: OpDef, labels: tuple[str, str, str]) -> None:
    """Declare that branches take no arguments and return values of the results' types."""
    no_inputs, same_outputs, of_results = labels
    declared.constraint("", "the operand is a scalar")(
        lambda op: None if op.operands[0].tensor.rank == 0 else str(op.operands[0].type)
    )

    @declared.constraint(no_inputs, "branches take no values")
    def _(op: Op) -> str | None:
        taken = [len(parameters(branch)) for branch in op.regions]
        return listed(taken) if any(taken) else None

    @declared.constraint(same_outputs, "branches return values of the same types")
    def _(op: Op) -> str | None:
        first = returned(op.regions[0])
        if all(all_compatible(first, returned(branch)) for branch in op.regions):
            return None
        return listed(f"({', '.join(map(str, returned(branch)))})" for branch in op.regions)

    declared.infers(of_results, "results have the types that branches return")(
        lambda op: [least_specific(types) for types in zip(*map(returned, op.regions), strict=True)]
    )


IF = define(
    "stablehlo.if",
    operands=[operand("pred", type_sets.PREDICATE)],
    results=[result("results", type_sets.VALUE, variadic=True)],
    regions=[region("true_branch"), region("false_branch")],
    traits=[Trait.RECURSIVE, Trait.RUNS_REGIONS, Trait.BRANCH],
)

_check_branches(IF, ("C1", "C2", "C3"))

CASE = define(
    "stablehlo.case",
    operands=[operand("index", type_sets.tensor_of_types(I32))],
    results=[result("results", type_sets.VALUE, variadic=True)],
    regions=[region("branches", variadic=True)],
    traits=[Trait.RECURSIVE, Trait.RUNS_REGIONS, Trait.BRANCH],
)

CASE.constraint("C1", "0 < size(branches)")(lambda op: at_least(len(op.regions), 1))
_check_branches(CASE, ("C2", "C3", "C4"))

WHILE = define(
    "stablehlo.while",
    operands=[operand("operand", type_sets.VALUE_OR_BUFFER, variadic=True)],
    results=[result("results", type_sets.VALUE_OR_BUFFER, variadic=True)],
    regions=[region("cond"), region("body")],
    assembly="custom<While>",
    traits=[Trait.RECURSIVE, Trait.RUNS_REGIONS, Trait.LOOP],
)


@WHILE.constraint("C1", "cond has type (T0, ..., TN-1) -> tensor<i1> where Ti = type(operand[i])")
def _(op: Op) -> str | None:
    cond, types = op.regions[0], op.operand_types
    if all_compatible(types, parameters(cond)) and returned(cond) == [TensorType((), I1)]:
        return None
    return f"{signature(cond)} for operands {listed(types)}"


@WHILE.constraint("C2", "body has type (T0, ..., TN-1) -> (T0, ..., TN-1) where Ti = type(operand[i])")
def _(op: Op) -> str | None:
    body, types = op.regions[1], op.operand_types
    if all_compatible(types, parameters(body)) and all_compatible(types, returned(body)):
        return None
    return f"{signature(body)} for operands {listed(types)}"


WHILE.infers("C3", "type(results...) = type(operand...)")(lambda op: op.operand_types)

RETURN = define(
    "stablehlo.return",
    operands=[operand("results", type_sets.VALUE_OR_BUFFER, variadic=True)],
    assembly="$results attr-dict (`:` type($results)^)?",
    traits=[Trait.PURE, Trait.TERMINATOR],
)

OPTIMIZATION_BARRIER = define(
    "stablehlo.optimization_barrier",
    operands=[operand("operand", type_sets.TENSOR_OR_TOKEN, variadic=True)],
    results=[result("result", type_sets.TENSOR_OR_TOKEN, variadic=True)],
    assembly="attr-dict ($operand^ `:` custom<PairwiseOpType>(type($operand), type($result))):(`(` `)`)?",
    traits=[Trait.PURE, Trait.VIEW],
)

OPTIMIZATION_BARRIER.constraint("C1", "type(operand...) = type(result...)", on_results=True)(
    lambda op: None if op.operand_types == op.result_types else listed((*op.operand_types, *op.result_types))
)
OPTIMIZATION_BARRIER.infers("C1", "type(operand...) = type(result...)")(lambda op: op.operand_types)

AFTER_ALL = define(
    "stablehlo.after_all",
    operands=[operand("inputs", type_sets.TOKEN, variadic=True)],
    results=[result("result", type_sets.TOKEN)],
    assembly="$inputs attr-dict `:` "
    "custom<VariadicSameOperandsAndResultType>(ref($inputs), type($inputs), type($result))",
    traits=[Trait.PURE],
)

AFTER_ALL.infer(lambda op: [TOKEN])

CREATE_TOKEN = define(
    "stablehlo.create_token",
    results=[result("output", type_sets.TOKEN)],
    assembly="attr-dict `:` type(results)",
    traits=[Trait.PURE],
)

CREATE_TOKEN.infer(lambda op: [TOKEN])

TUPLE = define(
    "stablehlo.tuple",
    operands=[operand("val", type_sets.VALUE_BUFFER_OR_TUPLE, variadic=True)],
    results=[result("result", type_sets.TUPLE)],
    assembly="$val attr-dict `:` custom<TupleOpType>(type($val), type($result))",
    traits=[Trait.PURE],
)

TUPLE.infers("C1", "the result has type tuple<E0, ..., EN-1> where Ei = type(val[i])")(
    lambda op: [TupleType(tuple(op.operand_types))]
)

GET_TUPLE_ELEMENT = define_unary(
    "stablehlo.get_tuple_element",
    "$operand `[` $index `]` " + TYPED,
    attribute("index", kinds.I32),
    types=type_sets.TUPLE,
    results=type_sets.VALUE_BUFFER_OR_TUPLE,
)


def _elements(op: Op) -> tuple[Type, ...]:
    type = op.operands[0].type
    assert isinstance(type, TupleType)
    return type.types


@GET_TUPLE_ELEMENT.constraint("C1", "0 <= index < size(operand)")
def _(op: Op) -> str | None:
    size = len(_elements(op))
    return None if 0 <= op["index"] < size else f"{op['index']} for {size} elements"


GET_TUPLE_ELEMENT.infers("C2", "type(result) = tuple_element_types(operand)[index]")(
    lambda op: [_elements(op)[op["index"]]]
)

COMPOSITE = define(
    "stablehlo.composite",
    operands=[operand("inputs", type_sets.VALUE_OR_TUPLE, variadic=True)],
    attributes=[
        attribute("name", kinds.STRING),
        attribute("composite_attributes", kinds.DICTIONARY, default=DictAttr({})),
        attribute("decomposition", kinds.SYMBOL),
        attribute("version", kinds.I32, default=0),
    ],
    results=[result("results", type_sets.VALUE_OR_TUPLE, variadic=True)],
    regions=[region("composite_regions", variadic=True, free=True)],
    assembly="$name operands (` ` `(` $composite_regions^ `)`)? " + TYPED,
)

_NAMESPACED = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*([.][a-zA-Z0-9_$]+)+")


@COMPOSITE.constraint("C1", "is_namespaced_op_name(name)")
def _(op: Op) -> str | None:
    return None if _NAMESPACED.fullmatch(op["name"]) else f'"{op["name"]}"'


@COMPOSITE.symbol_constraint("C2", "decomposition must be a function of the module")
def _(op: Op, lookup: Lookup) -> str | None:
    return None if isinstance(lookup(op["decomposition"]), Function) else f"@{op['decomposition']}"


def _declared_types(op: Op, lookup: Lookup) -> FunctionType:
    function = lookup(op["decomposition"])
    assert isinstance(function, Function)
    return function.type


def _equal_types(types: Sequence[Type], declared: Sequence[Type]) -> str | None:
    return None if tuple(types) == tuple(declared) else f"({listed(types)}) and ({listed(declared)})"


COMPOSITE.symbol_constraint("C3", "types(inputs...) = input_types(decomposition)")(
    lambda op, lookup: _equal_types(op.operand_types, _declared_types(op, lookup).inputs)
)
COMPOSITE.symbol_constraint("C4", "types(results...) = output_types(decomposition)")(
    lambda op, lookup: _equal_types(op.result_types, _declared_types(op, lookup).results)
)
