"""Values of a block as expressions over its arguments, equal if they compute the same.

The form is canonical: it does not depend on whether constants are inside the block or captured, on the order of ops,
or on the order of arguments of commutative ops; ops that return a scalar unchanged are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from spmd.analysis.constants import constant_array
from spmd.ir import AttributeValue, Block, Op, Value

#: ("argument", index), ("constant", type, bytes), ("captured", value), or (op, attributes, *operands).
Expression = tuple[Any, ...]

#: Commutative ops.
COMMUTATIVE = frozenset(("add", "multiply", "maximum", "minimum", "and", "or", "xor"))

#: Ops that return their operand unchanged if operand and result types are the same.
_SEEN_THROUGH = frozenset(
    (
        "stablehlo.broadcast_in_dim",
        "stablehlo.convert",
        "stablehlo.reshape",
        "stablehlo.transpose",
        "sdy.sharding_constraint",
    )
)


class Expressions:
    """The expressions of a block's values; None for values of ops with regions or side effects."""

    def __init__(self, block: Block) -> None:
        self._table: dict[Value, Expression | None] = {
            argument: ("argument", index) for index, argument in enumerate(block.arguments)
        }
        for op in block.ops:
            for result in op.results:
                self._table[result] = self._of_result(op, result)

    def __getitem__(self, value: Value) -> Expression | None:
        if value not in self._table:
            constant = _constant(value.defining_op)
            self._table[value] = ("captured", value) if constant is None else constant
        return self._table[value]

    def _of_result(self, op: Op, result: Value) -> Expression | None:
        constant = _constant(op)
        if constant is not None:
            return constant
        if op.regions or op.definition is None or not (op.definition.is_pure or op.name.startswith("stablehlo.")):
            return None
        operands = [self[operand] for operand in op.operands]
        if any(operand is None for operand in operands):
            return None
        if returns_operand(op):
            return operands[0]
        name = op.name.removeprefix("stablehlo.")
        if name in COMMUTATIVE or (name == "compare" and op["comparison_direction"] in ("EQ", "NE")):
            operands.sort(key=repr)
        return (name, (result.index, result.type, _frozen(op.attributes)), *operands)


def returns_operand(op: Op) -> bool:
    """Return whether `op` returns its scalar operand unchanged."""
    return op.name in _SEEN_THROUGH and op.operands[0].type is op.results[0].type and not op.operands[0].tensor.rank


def _constant(op: Op | None) -> Expression | None:
    array = constant_array(op)
    if op is None or array is None:
        return None
    return ("constant", op.attributes["value"].type, np.ascontiguousarray(array).tobytes())


def _frozen(attributes: Mapping[str, AttributeValue]) -> tuple[Any, ...]:
    return tuple((name, repr(attributes[name])) for name in sorted(attributes))
