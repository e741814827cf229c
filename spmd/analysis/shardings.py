"""Whether a program says how it is laid out over devices, in sdy's words or GSPMD's."""

from __future__ import annotations

from spmd.dialects.sdy_attributes import SHARDING_NAME
from spmd.dialects.sdy_values import is_collective
from spmd.ir import Function, Module, Op

#: Where GSPMD's strings stand, on arguments, results and ops.
GSPMD_NAME = "mhlo.sharding"
#: Custom calls that say how a value is laid out.
SHARDING_CALL, TO_SHARD_CALL, TO_FULL_CALL = "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"
#: How exporters of some years write Shardy's layout of a function's result.
RESULT_CALL = "xla.sdy.FuncResultSharding"
SHARDING_CALLS = frozenset((SHARDING_CALL, TO_SHARD_CALL, TO_FULL_CALL, RESULT_CALL))
_SDY_ONLY = frozenset(("sdy.sharding_constraint", "sdy.reshard", "sdy.manual_computation"))


def is_sharded(module: Module) -> bool:
    """Return whether the module says how anything is laid out over devices."""
    return any(speaks_of_shardings(op) for op in module.walk())


def is_layout_call(op: Op) -> bool:
    """Return whether `op` is a custom call that gives its operand back, and says how it is laid out."""
    return op.name == "stablehlo.custom_call" and op["call_target_name"] in (SHARDING_CALL, RESULT_CALL)


def speaks_of_shardings(op: Op) -> bool:
    """Return whether `op` itself says how anything is laid out."""
    if op.name in _SDY_ONLY or is_collective(op) or SHARDING_NAME in op.discardable or GSPMD_NAME in op.discardable:
        return True
    if isinstance(op, Function):
        entries = [*op.argument_attributes, *op.result_attributes]
        return any(SHARDING_NAME in entry or GSPMD_NAME in entry for entry in entries)
    return op.name == "stablehlo.custom_call" and op["call_target_name"] in SHARDING_CALLS
