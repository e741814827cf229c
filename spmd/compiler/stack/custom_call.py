"""Calls of what the implementation provides: as a batch where the target takes one, else process by process."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.analysis.custom_calls import takes_batch
from spmd.compiler.stack.core import StackedValue, Stacker, Tree, rule
from spmd.ir import Op
from spmd.types import TensorType


@rule("stablehlo.custom_call", always=True)
def custom_call(stacker: Stacker, op: Op) -> Sequence[Tree]:
    differs = stacker.differs(op)
    if takes_batch(op["call_target_name"]) and differs and _is_plain(op):
        given = [StackedValue(stacker.stack(leaf), True) for leaf in stacker.all_leaves(op.operands)]
        attributes = {name: value for name, value in op.attributes.items() if not name.endswith("_layouts")}
        types = [stacker.type_of(type) for type in op.result_types]
        made = op.clone([leaf.value for leaf in given], types, attributes=attributes)
        stacker.ops.append(made)
        return [StackedValue(value, True) for value in made.results]
    return stacker.one_by_one(op) if differs or op["has_side_effect"] else stacker.copied(op)


def _is_plain(op: Op) -> bool:
    return all(isinstance(type, TensorType) for type in (*op.operand_types, *op.result_types))
