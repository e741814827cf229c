"""The cost of recomputing an element in each user, including its producers.

An op may be cheap where its producers are not: the last addition of a stencil is one operation, and recomputing it
loads five elements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import prod

from spmd.analysis.constants import constant_array
from spmd.compiler.schedule.fusibility import cost_of
from spmd.compiler.schedule.reductions import is_reduction
from spmd.compiler.schedule.updates import is_update
from spmd.ir import Op, Value

#: Most operations and loads that are recomputed rather than stored and loaded.
LIGHT = 20


def recompute_costs(ops: Sequence[Op], is_fusible: Callable[[Op], bool]) -> dict[Op, int]:
    """Return the operations and loads per element of each fusible op that is no reduction or update.

    Producers with several users that are not light are assumed to be in memory.
    """
    user_counts = Counter(value for op in ops for value in set(op.operands))
    weights: dict[Op, int] = {}

    def read(value: Value, elements: int) -> int:
        op, shape = value.defining_op, value.tensor.static_shape
        if not shape or constant_array(op) is not None:
            return 0
        weight = weights.get(op) if op is not None else None
        if weight is None or prod(shape) < elements:  # broadcast: computed once, read many times
            return 1
        return 1 if user_counts[value] > 1 and weight > LIGHT else weight

    for op in ops:
        if not is_fusible(op) or is_reduction(op) or is_update(op):
            continue
        elements = prod(op.results[0].tensor.static_shape)
        weights[op] = cost_of(op) + sum(read(value, elements) for value in set(op.operands))
    return weights
