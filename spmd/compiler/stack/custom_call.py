"""Custom calls: batched if the target supports it, else process by process."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.analysis.custom_calls import is_registered, takes_batch
from spmd.compiler.stack.core import StackedValue, Stacker, Tree, rule
from spmd.compiler.stack.each_process import each_process
from spmd.compiler.stack.one_by_one import one_by_one
from spmd.ir import Op
from spmd.types import TensorType


@rule("stablehlo.custom_call", always=True)
def custom_call(stacker: Stacker, op: Op) -> Sequence[Tree]:
    target = op["call_target_name"]
    if op["has_side_effect"]:
        return each_process(stacker, op)
    if stacker.mask is not None and is_registered(target) and not takes_batch(target):
        return each_process(stacker, op)  # users' code is not called with values of inactive processes
    differs = stacker.differs(op)
    if takes_batch(target) and differs and _is_plain(op):
        leaves_of = [StackedValue(stacker.stack(leaf), True) for leaf in stacker.all_leaves(op.operands)]
        attributes = {name: value for name, value in op.attributes.items() if not name.endswith("_layouts")}
        types = [stacker.type_of(type) for type in op.result_types]
        call = op.clone([leaf.value for leaf in leaves_of], types, attributes=attributes)
        stacker.ops.append(call)
        return [StackedValue(value, True) for value in call.results]
    return one_by_one(stacker, op) if differs else stacker.copied(op)


def _is_plain(op: Op) -> bool:
    return all(isinstance(type, TensorType) for type in (*op.operand_types, *op.result_types))
