"""Watched programs: ops are annotated with the processes of their rows, and inactive rows are masked.

Inactive processes compute as well, and their results are dropped. A watcher that looks for NaN must not see them: it
sees zeros instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from spmd.analysis.process_rows import ROWS, UNSEEN, ProcessRows
from spmd.compiler.stack.core import StackedValue, Stacker, Tree, leaves, rebuilt
from spmd.dialects.core import Trait, has_trait
from spmd.ir import Op, Value
from spmd.ir.attributes import UNIT
from spmd.types import TensorType


def mark_rows(stacker: Stacker, op: Op, start: int, results: Sequence[Tree]) -> Sequence[Tree]:
    """Annotate the ops from number `start` on, emitted for `op`; return its results with inactive rows masked."""
    if has_trait(op, Trait.RUNS_REGIONS):
        return results
    if stacker.mask is not None:
        for inner in (inner for each in stacker.ops[start:] for inner in each.walk()):
            inner.discardable = {**inner.discardable, UNSEEN: UNIT}
        results = [rebuilt(tree, iter([_masked(stacker, leaf) for leaf in leaves(tree)])) for tree in results]
    written = set(stacker.ops[start:])
    for leaf in (leaf for tree in results for leaf in leaves(tree)):
        if leaf.stacked:
            _mark(stacker, op, leaf.value, written)
    return results


def _masked(stacker: Stacker, leaf: StackedValue) -> StackedValue:
    """Return a value with zeros for inactive processes; a uniform value is zero if none is active."""
    if stacker.mask is None or not isinstance(leaf.value.type, TensorType) or leaf.value.type.dtype.kind not in "fcV":
        return leaf
    zeros = StackedValue(stacker.splat(0, leaf.value.tensor), leaf.stacked)
    if leaf.stacked:
        return stacker.chosen(stacker.mask, leaf, zeros)
    return StackedValue(stacker.select(stacker.any_active(stacker.mask), leaf.value, zeros.value))


def _mark(stacker: Stacker, op: Op, value: Value, written: set[Op]) -> None:
    """Annotate the producer of `value`, and those that it rearranges, with the processes of rows."""
    dimension, block = 0, 1
    maker = value.defining_op
    while maker is not None and maker in written and ROWS not in maker.discardable:
        rows = ProcessRows(op.name, dimension, block, stacker.grid, stacker.row_ranks)
        maker.discardable = {**maker.discardable, ROWS: rows.attribute()}
        if maker.name == "stablehlo.transpose":
            dimension = maker["permutation"][dimension]
        elif maker.name == "stablehlo.reshape":
            split = _joined(maker, dimension, block * stacker.size)
            if split is None:
                return
            dimension, block = split
        else:
            return
        maker = maker.operands[0].defining_op


def _joined(reshape: Op, dimension: int, count: int) -> tuple[int, int] | None:
    """Return the dimension of a reshape's operand that holds the processes in `dimension` of its result, and rows per
    process.
    """
    shape, whole = reshape.operands[0].tensor.static_shape, reshape.result.tensor.static_shape
    before = prod(whole[:dimension])
    for place, size in enumerate(shape):
        if prod(shape[:place]) == before and size and size % count == 0 and len(whole) >= len(shape):
            return place, size // count
    return None
