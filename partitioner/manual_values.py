"""Finds the per-process values of manual code: those between GSPMD's calls into and out of it.

Source: XLA's SPMDFullToShardShape and SPMDShardToFullShape, whose operand or result is manual over the subgroup that
its sharding names; values computed from such values are manual over the same sub-axes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from partitioner.disjoint_sets import DisjointSets
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
    boundaries = [op for op in block.walk() if is_boundary(op)]
    if not boundaries:
        return {}
    sets = DisjointSets()
    numbers: defaultdict[Value, int] = defaultdict(sets.new)
    for op in block.walk():
        if not is_boundary(op):
            for value in (values := list(_connected(op))):
                sets.join(numbers[values[0]], numbers[value])
    connected = tuple(numbers)

    def part_of(value: Value) -> int:
        return sets.find(numbers[value])

    manual: defaultdict[int, frozenset[int]] = defaultdict(frozenset)
    for op in boundaries:
        manual[part_of(global_and_local(op)[1])] |= reader.manual_call(op)
    for op in block.walk():
        axes = frozenset() if is_boundary(op) else _annotated_axes(op, reader)
        for value in _connected(op) if axes else ():
            manual[part_of(value)] |= axes
    for _ in boundaries:  # nested manual code is manual over the outer sub-axes, too
        for op in boundaries:
            whole, part = map(part_of, global_and_local(op))
            manual[part] |= manual.get(whole, frozenset())
    return {value: manual[part_of(value)] for value in connected if part_of(value) in manual}


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
