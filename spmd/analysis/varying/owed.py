"""Sums that are owed: values made of a sum over what one process has, where a sum over all processes is meant.

Where a value differs between processes because each summed its own elements (of a batch, of a split dimension), what
is linear in it may wait for the sum over processes; what is not linear takes it for what it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from spmd.analysis.varying.facts import Fact
from spmd.ir import Op

#: Ops that sum elements.
SUMMING = ("stablehlo.dot_general", "stablehlo.reduce")


def owed_after(op: Op, operands: Sequence[Fact]) -> Op | None:
    """Return the op whose sum over processes is owed, of what `op` gives; None where none is."""
    if op.name == SUMMING[0]:
        contracted = bool(len(op["dot_dimension_numbers"].lhs_contracting_dimensions))
        if contracted and not any(fact.is_uniform for fact in operands):
            return op
    if op.name == SUMMING[1] and not operands[0].is_uniform:
        folds = [inner.name for inner in op.regions[0].block.ops[:-1]]
        return op if folds == ["stablehlo.add"] else None
    owed = [fact for fact in operands if fact.owed is not None]
    others = [fact for fact in operands if fact.owed is None]
    if not owed or not all(fact.is_uniform for fact in others):
        return None
    return owed[0].owed if len(owed) <= _LINEAR.get(op.name, 0) else None


#: Ops that are linear in as many of their operands at once.
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
