"""Combining of consecutive small all_reduces.

A training step reduces the gradient of each parameter; most are small, and each costs a latency. All_reduces with one
reduction and equal groups, without a dependence between them, become one variadic op, which packs its operands into one
message. The order of other ops with effects is kept, so that processes that run one program still agree. Programs that
differ between processes must not be combined, since the ops in between may differ. The combined op is placed at the
last one, which spmd.compiler.transforms.rewrite does not support.
"""

from __future__ import annotations

from collections.abc import Hashable

from spmd.analysis.reducers import monoid_of
from spmd.compiler.transforms.simplify import hashable
from spmd.dialects.core import is_pure
from spmd.ir import Block, Op, Value, captured_values
from spmd.types import TensorType

ALL_REDUCE = "stablehlo.all_reduce"


def combine(block: Block, threshold: int) -> None:
    """Combine all_reduces of `block` and its regions in place, up to `threshold` bytes each; 0 disables."""
    if threshold > 0:
        _Combiner(threshold).run(block)


class _Combiner:
    def __init__(self, threshold: int) -> None:
        self._threshold = threshold
        self._replaced: dict[Value, Value] = {}

    def run(self, block: Block) -> None:
        kept: list[Op] = []
        pending: list[Op] = []
        awaited: set[Value] = set()
        for op in block.ops:
            op.replace_operands(self._replaced)
            if _key(op) is None:
                if pending and (not is_pure(op) or awaited.intersection([*op.operands, *captured_values(op)])):
                    self._flush(pending, awaited, kept)
                for region in op.regions:
                    for inner in region.blocks:
                        self.run(inner)
                op.replace_operands(self._replaced)
                kept.append(op)
                continue
            if _bytes(op) > self._threshold and not awaited.intersection(op.operands):
                kept.append(op)  # too large to combine, and independent
                continue
            if pending and not self._joins(op, pending, awaited):
                self._flush(pending, awaited, kept)
                op.replace_operands(self._replaced)
            pending.append(op)
            awaited.update(op.results)
        block.ops = kept

    def _joins(self, op: Op, pending: list[Op], awaited: set[Value]) -> bool:
        if _key(op) != _key(pending[0]) or awaited.intersection(op.operands):
            return False
        return sum(map(_bytes, pending)) + _bytes(op) <= self._threshold

    def _flush(self, pending: list[Op], awaited: set[Value], kept: list[Op]) -> None:
        kept.append(pending[0] if len(pending) == 1 else self._merged(pending))
        pending.clear()
        awaited.clear()

    def _merged(self, ops: list[Op]) -> Op:
        first = ops[0]
        operands = [value for op in ops for value in op.operands]
        merged = first.clone(operands, [type for op in ops for type in op.result_types])
        results = [value for op in ops for value in op.results]
        self._replaced.update(zip(results, merged.results, strict=True))
        return merged


def _bytes(op: Op) -> int:
    return sum(value.tensor.nbytes for value in op.results)


def _key(op: Op) -> Hashable | None:
    """Return a key of all_reduces that can be combined; None if `op` is not combined."""
    if op.name != ALL_REDUCE or not all(isinstance(v.type, TensorType) and v.type.is_static for v in op.operands):
        return None
    monoid = monoid_of(op.regions[0])
    if monoid is None:
        return None
    elements = {(v.tensor.element_type, r.tensor.element_type) for v, r in zip(op.operands, op.results, strict=True)}
    return (monoid.kind, frozenset(elements), hashable(op.attributes)) if len(elements) == 1 else None
