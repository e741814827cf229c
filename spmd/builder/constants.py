"""Finds values that are compile-time constants of a computation."""

from __future__ import annotations

from spmd.builder.computation import XlaComputation
from spmd.builder.shape import ProgramShape, Shape
from spmd.dialects.core import Trait, has_trait
from spmd.ir import Block, Op, Value

#: Ops, besides the collectives, whose results come from outside the program.
_OUTSIDE = frozenset(
    f"stablehlo.{name}" for name in ("infeed", "outfeed", "send", "recv", "replica_id", "partition_id", "custom_call")
)


def _needed(value: Value) -> dict[Value, None]:
    """Return `value` and its transitive operands, captured values included."""
    needed: dict[Value, None] = {}
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if current in needed:
            continue
        needed[current] = None
        origin = current.defining_op
        if origin is not None:
            inside = {result for op in origin.walk() if op is not origin for result in op.results}
            blocks = (block for op in origin.walk() for region in op.regions for block in region.blocks)
            inside.update(argument for block in blocks for argument in block.arguments)
            waiting.extend(v for op in origin.walk() for v in op.operands if v not in inside)
    return needed


def is_constant(value: Value) -> bool:
    """Return whether `value` depends on no parameter, transfer, collective, custom call or device id; random numbers
    count as constants.

    Source: ComputeConstant of the TensorFlow compiler framework document.
    """
    return blocker(value) is None


def blocker(value: Value) -> str | None:
    """Return the reason why `value` is not a constant, or None."""
    for needed in _needed(value):
        origin = needed.defining_op
        if origin is None:
            return f"it depends on parameter {needed.index}" + (f" ({needed.name_hint})" if needed.name_hint else "")
        outside = next((op for op in origin.walk() if op.name in _OUTSIDE or has_trait(op, Trait.COLLECTIVE)), None)
        if outside is not None:
            return f"it depends on {outside.name}"
    return None


def subgraph(name: str, block: Block, value: Value, called: dict[str, XlaComputation]) -> XlaComputation:
    """Return the computation without parameters that computes `value`."""
    needed = _needed(value)
    ops: list[Op] = [op for op in block.ops if any(result in needed for result in op.results)]
    return XlaComputation(name, Block((), ops), value, ProgramShape((), Shape.of(value.type)), dict(called))
