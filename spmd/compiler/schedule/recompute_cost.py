"""What an element of a value takes in all, when it is computed where it is read: with what it is computed of.

An op may be cheap where what it is made of is not: a stencil's last addition is one operation, and whoever does it
again reads five elements again.
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

#: Operations and loads that may be done again rather than written to memory and read back.
LIGHT = 20


def weights_of(ops: Sequence[Op], is_fusible: Callable[[Op], bool]) -> dict[Op, int]:
    """Operations and loads of an element of the result of each fusible op, which reads no region's result.

    What is read more than once, and is not light, is expected to lie in memory.
    """
    readers = Counter(value for op in ops for value in set(op.operands))
    weights: dict[Op, int] = {}

    def read(value: Value, elements: int) -> int:
        op, shape = value.defining_op, value.tensor.static_shape
        if not shape or constant_array(op) is not None:
            return 0
        weight = weights.get(op) if op is not None else None
        if weight is None or prod(shape) < elements:  # what is broadcast is computed less often than it is read
            return 1
        return 1 if readers[value] > 1 and weight > LIGHT else weight

    for op in ops:
        if not is_fusible(op) or is_reduction(op) or is_update(op):
            continue
        elements = prod(op.results[0].tensor.static_shape)
        weights[op] = cost_of(op) + sum(read(value, elements) for value in set(op.operands))
    return weights
