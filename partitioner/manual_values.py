"""Which values are one process's part: those between GSPMD's calls into and out of manual code.

Source: XLA's SPMDFullToShardShape and SPMDShardToFullShape, whose operand or result is manual over the subgroup that
its sharding names; what ops compute of such values is manual over the same sub-axes.
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


def whole_and_part(op: Op) -> tuple[Value, Value]:
    """Return the value outside of manual code and the one inside, of a call into or out of it."""
    return (op.operands[0], op.result) if op["call_target_name"] == TO_SHARD_CALL else (op.result, op.operands[0])


def manual_values(block: Block, reader: ShardingReader) -> dict[Value, frozenset[int]]:
    """Return the sub-axes over which values of `block` are manual by GSPMD's calls; values of the global program are
    left out.

    Values that ops tie together are in manual code together; the calls alone lead from one side to the other.
    """
    boundaries = [op for op in _all_ops(block) if is_boundary(op)]
    if not boundaries:
        return {}
    roots = _Components()
    for op in _all_ops(block):
        if not is_boundary(op):
            roots.join(list(_tied(op)))
    manual: dict[Value, frozenset[int]] = {}
    for op in boundaries:
        part = roots.of(whole_and_part(op)[1])
        manual[part] = manual.get(part, frozenset()) | reader.manual_call(op)
    for op in _all_ops(block):
        axes = frozenset() if is_boundary(op) else _said_of(op, reader)
        for value in _tied(op) if axes else ():
            manual[roots.of(value)] = manual.get(roots.of(value), frozenset()) | axes
    for _ in boundaries:  # manual code within manual code is manual over the outer sub-axes, too
        for op in boundaries:
            whole, part = map(roots.of, whole_and_part(op))
            manual[part] |= manual.get(whole, frozenset())
    return {value: manual[roots.of(value)] for value in roots.values() if roots.of(value) in manual}


def _said_of(op: Op, reader: ShardingReader) -> frozenset[int]:
    """Return the sub-axes over which `op` says that it is manual, or control flow by what it holds.

    Not control flow that holds calls into manual code, or out of it: it may stand outside.
    """
    inner = list(op.walk())
    if any(map(is_boundary, inner)):
        return frozenset()
    return frozenset().union(*map(reader.manual_axes, inner))


def _tied(op: Op) -> Iterator[Value]:
    """Yield the tensors that `op` and the ends of its regions read and write."""
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
    """Sets of values, joined where an op ties them."""

    def __init__(self) -> None:
        self._parents: dict[Value, Value] = {}

    def of(self, value: Value) -> Value:
        """Return the value that stands for the set of `value`."""
        root = value
        while (parent := self._parents.get(root, root)) is not root:
            root = parent
        while (parent := self._parents.get(value, value)) is not root and value is not root:
            self._parents[value] = root
            value = parent
        return root

    def join(self, values: list[Value]) -> None:
        """Put `values` into one set."""
        for value in values:
            self._parents.setdefault(value, value)
            self._parents[self.of(value)] = self.of(values[0])

    def values(self) -> list[Value]:
        """Return all values that have been joined."""
        return list(self._parents)
