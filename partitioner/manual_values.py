"""Finds the per-process values of manual code: those between GSPMD's calls into and out of it.

Source: XLA's SPMDFullToShardShape and SPMDShardToFullShape, whose operand or result is manual over the subgroup that
its sharding names; values computed from such values are manual over the same sub-axes.
"""

from __future__ import annotations

from collections.abc import Iterator

from partitioner.reading import ShardingReader
from spmd.analysis.shardings import TO_FULL_CALL, TO_SHARD_CALL
from spmd.ir import Block, Op, Value
from spmd.types import TensorType


def is_boundary(op: Op) -> bool:
    """Return whether `op` is a call into or out of manual code."""
    return op.name == "stablehlo.custom_call" and op["call_target_name"] in (TO_SHARD_CALL, TO_FULL_CALL)


def global_and_local(op: Op) -> tuple[Value, Value]:
    """Return the global and the per-process value of a call into or out of manual code."""
    return (op.operands[0], op.result) if op["call_target_name"] == TO_SHARD_CALL else (op.result, op.operands[0])


def manual_values(block: Block, reader: ShardingReader) -> dict[Value, frozenset[int]]:
    """Return the manual sub-axes of values of `block` by GSPMD's calls; values of the global program are omitted.

    Values connected by ops are in manual code together; only the calls cross its boundary.
    """
    boundaries = [op for op in _all_ops(block) if is_boundary(op)]
    if not boundaries:
        return {}
    roots = _Components()
    for op in _all_ops(block):
        if not is_boundary(op):
            roots.join(list(_connected(op)))
    manual: dict[Value, frozenset[int]] = {}
    for op in boundaries:
        part = roots.of(global_and_local(op)[1])
        manual[part] = manual.get(part, frozenset()) | reader.manual_call(op)
    for op in _all_ops(block):
        axes = frozenset() if is_boundary(op) else _annotated_axes(op, reader)
        for value in _connected(op) if axes else ():
            manual[roots.of(value)] = manual.get(roots.of(value), frozenset()) | axes
    for _ in boundaries:  # nested manual code is manual over the outer sub-axes, too
        for op in boundaries:
            whole, part = map(roots.of, global_and_local(op))
            manual[part] |= manual.get(whole, frozenset())
    return {value: manual[roots.of(value)] for value in roots.values() if roots.of(value) in manual}


def _annotated_axes(op: Op, reader: ShardingReader) -> frozenset[int]:
    """Return the sub-axes over which `op`, or an op in its regions, is annotated as manual.

    Empty for control flow that contains calls into or out of manual code, as it may itself be outside.
    """
    inner = list(op.walk())
    if any(map(is_boundary, inner)):
        return frozenset()
    return frozenset().union(*map(reader.manual_axes, inner))


def _connected(op: Op) -> Iterator[Value]:
    """Yield the tensors that `op` and the arguments and terminators of its regions read and write."""
    values = [*op.operands, *op.results]
    for region in op.regions:
        for block in region.blocks:
            values += block.arguments
            values += block.terminator.operands if block.ops else ()
    return (value for value in values if isinstance(value.type, TensorType))


def _all_ops(block: Block) -> Iterator[Op]:
    for op in block.ops:
        yield from op.walk()


class _Components:
    """A union-find structure of values connected by ops."""

    def __init__(self) -> None:
        self._parents: dict[Value, Value] = {}

    def of(self, value: Value) -> Value:
        """Return the representative of the set of `value`."""
        root = value
        while (parent := self._parents.get(root, root)) is not root:
            root = parent
        while (parent := self._parents.get(value, value)) is not root and value is not root:
            self._parents[value] = root
            value = parent
        return root

    def join(self, values: list[Value]) -> None:
        """Merge the sets of `values`."""
        for value in values:
            self._parents.setdefault(value, value)
            self._parents[self.of(value)] = self.of(values[0])

    def values(self) -> list[Value]:
        """Return all values in any set."""
        return list(self._parents)
