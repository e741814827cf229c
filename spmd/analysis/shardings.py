"""Sharding annotations of a program, Shardy's or GSPMD's."""

from __future__ import annotations

from spmd.dialects.sdy_attributes import SHARDING_NAME
from spmd.dialects.sdy_values import is_collective
from spmd.ir import Function, Module, Op

#: The attribute of GSPMD's shardings, on arguments, results and ops.
GSPMD_NAME = "mhlo.sharding"
#: Custom calls that annotate a value's sharding.
SHARDING_CALL, TO_SHARD_CALL, TO_FULL_CALL = "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"
#: The call by which older exporters annotate a function's result with a Shardy sharding.
RESULT_CALL = "xla.sdy.FuncResultSharding"
SHARDING_CALLS = frozenset((SHARDING_CALL, TO_SHARD_CALL, TO_FULL_CALL, RESULT_CALL))
_SDY_ONLY = frozenset(("sdy.sharding_constraint", "sdy.reshard", "sdy.manual_computation"))


def is_sharded(module: Module) -> bool:
    """Return whether the module has any sharding annotation."""
    return any(has_sharding(op) for op in module.walk())


def is_layout_call(op: Op) -> bool:
    """Return whether `op` is a custom call that returns its operand annotated with a sharding."""
    return op.name == "stablehlo.custom_call" and op["call_target_name"] in (SHARDING_CALL, RESULT_CALL)


def has_sharding(op: Op) -> bool:
    """Return whether `op` itself has a sharding annotation."""
    if op.name in _SDY_ONLY or is_collective(op) or SHARDING_NAME in op.discardable or GSPMD_NAME in op.discardable:
        return True
    if isinstance(op, Function):
        entries = [*op.argument_attributes, *op.result_attributes]
        return any(SHARDING_NAME in entry or GSPMD_NAME in entry for entry in entries)
    return op.name == "stablehlo.custom_call" and op["call_target_name"] in SHARDING_CALLS
