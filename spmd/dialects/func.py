"""Functions and their calls. Source: StableHLO specification, "Functions"; MLIR's func dialect."""

from __future__ import annotations

from spmd.dialects import kinds, type_sets
from spmd.dialects.checks import listed
from spmd.dialects.core import Lookup, Trait, attribute, define, operand, region, result
from spmd.ir import Function, Op
from spmd.types import FunctionType

_DICTIONARIES = kinds.array_of(kinds.DICTIONARY)

FUNC = define(
    "func.func",
    attributes=[
        attribute("sym_name", kinds.STRING),
        attribute("function_type", kinds.TYPE),
        attribute("sym_visibility", kinds.STRING, optional=True),
        attribute("arg_attrs", _DICTIONARIES, optional=True),
        attribute("res_attrs", _DICTIONARIES, optional=True),
        attribute("no_inline", kinds.UNIT_FLAG, default=False),
    ],
    regions=[region("body")],
    assembly="custom<Func>",
    traits=[Trait.ISOLATED],
)

_VISIBILITIES = ("public", "private", "nested")


@FUNC.constraint("", "sym_visibility must be public, private or nested")
def _(op: Op) -> str | None:
    visibility = op["sym_visibility"]
    return None if visibility is None or visibility in _VISIBILITIES else repr(visibility)


RETURN = define(
    "func.return",
    operands=[operand("operands", type_sets.ANY_TYPE, variadic=True)],
    assembly="attr-dict ($operands^ `:` type($operands))?",
    traits=[Trait.PURE, Trait.TERMINATOR, Trait.READS_CONTEXT],
)

CALL = define(
    "func.call",
    operands=[operand("operands", type_sets.ANY_TYPE, variadic=True)],
    attributes=[
        attribute("callee", kinds.SYMBOL),
        attribute("arg_attrs", _DICTIONARIES, optional=True),
        attribute("res_attrs", _DICTIONARIES, optional=True),
        attribute("no_inline", kinds.UNIT_FLAG, default=False),
    ],
    results=[result("results", type_sets.ANY_TYPE, variadic=True)],
    assembly="$callee `(` $operands `)` attr-dict `:` functional-type($operands, results)",
)


@CALL.symbol_constraint("", "callee must be a function that takes the operands and returns the results")
def _(op: Op, lookup: Lookup) -> str | None:
    function = lookup(op["callee"])
    if not isinstance(function, Function):
        return f"no function @{op['callee']}"
    types = tuple(op.operand_types), tuple(op.result_types)
    if types == (function.type.inputs, function.type.results):
        return None
    return f"({listed(types[0])}) -> ({listed(types[1])}) for @{function.symbol}, which is {function.type}"


def function_fault(function: Function) -> str | None:
    """Return the fault of a function's type, attributes or body; None if there is none."""
    declared = function.attributes.get("function_type")
    if not isinstance(declared, FunctionType):
        return f"function_type must be a function type, got {declared}"
    for name, types in (("arg_attrs", declared.inputs), ("res_attrs", declared.results)):
        dictionaries = function.attributes.get(name)
        if dictionaries and len(dictionaries) != len(types):
            return f"{name} must have an entry for each of {len(types)} values, got {len(dictionaries)}"
        bare = [attribute for entry in dictionaries or () for attribute in entry.entries if "." not in attribute]
        if bare:
            return f"attributes of arguments and results must name their dialect, got {listed(bare)}"
    if function.is_declaration:
        return "a declaration must be private, got a public one" if function.is_public else None
    entry = function.regions[0].blocks[0]
    arguments = tuple(argument.type for argument in entry.arguments)
    if arguments != declared.inputs:
        return f"the body's arguments must be the function's, got ({listed(arguments)}) and ({listed(declared.inputs)})"
    if not all(block.ops for block in function.regions[0].blocks):
        return "the body must end with func.return, got nothing"
    return None
