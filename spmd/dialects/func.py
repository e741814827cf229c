"""Functions and their calls. Source: StableHLO specification, "Functions"; MLIR's func dialect."""

from __future__ import annotations

from spmd.dialects import kinds
from spmd.dialects.checks import listed
from spmd.dialects.core import Lookup, Trait, attribute, define, operand, region, result
from spmd.ir import Function, Op

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

RETURN = define(
    "func.return",
    operands=[operand("operands", kinds.ANY_TYPE, variadic=True)],
    assembly="attr-dict ($operands^ `:` type($operands))?",
    traits=[Trait.PURE, Trait.TERMINATOR, Trait.READS_CONTEXT],
)

CALL = define(
    "func.call",
    operands=[operand("operands", kinds.ANY_TYPE, variadic=True)],
    attributes=[
        attribute("callee", kinds.SYMBOL),
        attribute("arg_attrs", _DICTIONARIES, optional=True),
        attribute("res_attrs", _DICTIONARIES, optional=True),
        attribute("no_inline", kinds.UNIT_FLAG, default=False),
    ],
    results=[result("results", kinds.ANY_TYPE, variadic=True)],
    assembly="$callee `(` $operands `)` attr-dict `:` functional-type($operands, results)",
)


@CALL.symbol_constraint("", "callee is a function that takes the operands and gives the results")
def _(op: Op, lookup: Lookup) -> str | None:
    function = lookup(op["callee"])
    if not isinstance(function, Function):
        return f"no function @{op['callee']}"
    types = tuple(op.operand_types), tuple(op.result_types)
    if types == (function.type.inputs, function.type.results):
        return None
    return f"({listed(types[0])}) -> ({listed(types[1])}) for @{function.symbol}, which is {function.type}"
