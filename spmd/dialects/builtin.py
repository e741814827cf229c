"""The module op, a symbol table. Source: MLIR's builtin dialect."""

from __future__ import annotations

from spmd.dialects import kinds, type_sets
from spmd.dialects.core import Trait, attribute, define, operand, region, result

MODULE = define(
    "builtin.module",
    attributes=[
        attribute("sym_name", kinds.STRING, optional=True),
        attribute("sym_visibility", kinds.STRING, optional=True),
    ],
    regions=[region("bodyRegion")],
    assembly="custom<Module>",
    traits=[Trait.ISOLATED],
)

UNREALIZED_CONVERSION_CAST = define(
    "builtin.unrealized_conversion_cast",
    operands=[operand("inputs", type_sets.ANY_TYPE, variadic=True)],
    results=[result("outputs", type_sets.ANY_TYPE, variadic=True)],
    assembly="($inputs^ `:` type($inputs))? `to` type($outputs) attr-dict",
    traits=[Trait.PURE],
)
