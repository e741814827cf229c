"""Random numbers. Generators whose state differs run process by process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd.compiler.stack.core import StackedValue, Stacker, Tree, rule
from spmd.compiler.stack.one_by_one import one_by_one
from spmd.ir import Op


@rule("stablehlo.rng", always=True)
def rng(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """Draw separate numbers for each process."""
    limits = [stacker.leaf(value) for value in op.operands[:2]]
    if any(limit.stacked for limit in limits):
        return one_by_one(stacker, op)
    type = stacker.tensor_of(op.result.type)
    shape = stacker.constant(np.array(type.static_shape, np.int64))
    drawn = op.clone([*(limit.value for limit in limits), shape], [type])
    stacker.ops.append(drawn)
    return [StackedValue(drawn.result, True)]
