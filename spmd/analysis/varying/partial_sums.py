"""Partial sums: values that each process summed over its own elements, without a reduction across processes.

A value may differ between processes because each summed its own elements (of a batch, of a split dimension). Ops that
are linear in it commute with the missing reduction; results of other ops are not partial sums.
"""

from __future__ import annotations

from collections.abc import Sequence

from spmd.analysis.varying.facts import Fact
from spmd.ir import Op

#: Ops that sum elements.
SUMMING = ("stablehlo.dot_general", "stablehlo.reduce")


def partial_after(op: Op, operands: Sequence[Fact]) -> Op | None:
    """Return the op whose partial sum the results of `op` are; None if they are none."""
    if op.name == SUMMING[0]:
        contracted = bool(len(op["dot_dimension_numbers"].lhs_contracting_dimensions))
        if contracted and not any(fact.is_uniform for fact in operands):
            return op
    if op.name == SUMMING[1] and not operands[0].is_uniform:
        folds = [inner.name for inner in op.regions[0].block.ops[:-1]]
        return op if folds == ["stablehlo.add"] else None
    partial = [fact for fact in operands if fact.partial is not None]
    others = [fact for fact in operands if fact.partial is None]
    if not partial or not all(fact.is_uniform for fact in others):
        return None
    return partial[0].partial if len(partial) <= _LINEAR.get(op.name, 0) else None


#: The number of operands in which each op is jointly linear.
_LINEAR = {
    **dict.fromkeys((f"stablehlo.{name}" for name in ("add", "subtract", "select", "concatenate")), 9),
    **dict.fromkeys(
        (
            f"stablehlo.{name}"
            for name in (
                *("multiply", "divide", "negate", "convert", "reshape", "broadcast_in_dim", "transpose", "slice"),
                *("dot_general", "pad", "reverse", "dynamic_slice", "dynamic_update_slice", "optimization_barrier"),
            )
        ),
        1,
    ),
}
