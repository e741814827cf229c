"""Counted loops: the trip count of a `while`."""

from __future__ import annotations

from dataclasses import dataclass

from spmd.analysis.constants import constant_integer
from spmd.ir import Op, Value
from spmd.types import ElementType, storage_range


@dataclass(frozen=True)
class CountedLoop:
    """A loop that runs while a carried counter is less than `bound` and adds `step` (> 0) in each iteration.

    `start` is the counter's initial value, `limit` the largest value of its type.
    """

    start: Value
    bound: Value
    step: int
    limit: int

    def iterations(self, start: int, bound: int) -> int | None:
        """Return the trip count from `start`; None if the counter would overflow before reaching `bound`."""
        count = max(0, -((start - bound) // self.step))
        return None if start + count * self.step > self.limit else count


def counted_loop(op: Op) -> CountedLoop | None:
    """Return the while `op` as a counted loop, or None. `bound` may be carried, if it is never changed."""
    condition, body = (region.block for region in op.regions)
    compare = condition.terminator.operands[0].defining_op
    if compare is None or compare.name != "stablehlo.compare" or compare["comparison_direction"] != "LT":
        return None
    counter, bound = compare.operands
    if counter.owner is not condition:
        return None
    if bound.owner is condition:  # carried: must be loop-invariant
        if body.terminator.operands[bound.index] is not body.arguments[bound.index]:
            return None
        bound = op.operands[bound.index]
    step = _step(body.terminator.operands[counter.index], body.arguments[counter.index])
    element = body.arguments[counter.index].tensor.element_type
    if step is None or step <= 0 or not isinstance(element, ElementType):
        return None
    return CountedLoop(op.operands[counter.index], bound, step, int(storage_range(element)[1]))


def trip_count(op: Op) -> int | None:
    """Return the trip count of `op`, a while, if it counts up to a constant by constant steps; else None."""
    loop = counted_loop(op)
    if loop is None:
        return None
    start, bound = constant_integer(loop.start), constant_integer(loop.bound)
    return None if start is None or bound is None else loop.iterations(start, bound)


def _step(value: Value, argument: Value) -> int | None:
    """Return the constant that is added to `argument` to compute `value`; None if there is none."""
    add = value.defining_op
    if add is None or add.name != "stablehlo.add" or argument not in add.operands:
        return None
    return constant_integer(add.operands[1] if add.operands[0] is argument else add.operands[0])
