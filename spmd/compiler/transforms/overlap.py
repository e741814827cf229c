"""Overlap of large all_reduces with computation.

A training step computes gradients layer by layer, and reduces them at the end. This pass starts an all_reduce as soon
as its operand is ready and waits for it at its first use, so that gradients are communicated while others are computed.
The order of starts follows from the program, so that processes that run one program agree; programs that differ between
processes must not be rewritten.

On one machine, communication is copying and adding, which takes a core: on two ranks with a core each, a step takes
1.10 times as long with overlap for gradients of 8 MiB, 1.15 times for 1 MiB. So "auto" requires a spare core per rank.
(On cores shared with other jobs, where ranks wait for each other rather than for data, it took 0.75 of the time.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from collectives.mpi.background import LEAST
from spmd.analysis.constants import constant_array
from spmd.dialects.make import make_op
from spmd.ir import Block, Op, Region, Value, captured_values
from spmd.types import TensorType

_ALL_REDUCE = "stablehlo.all_reduce"
#: Least bytes read and written by ops that a transfer can overlap with.
_WORK = LEAST // 4


def overlap(block: Block) -> None:
    """Split each large all_reduce of `block` with enough independent work into async_start and async_done; in place."""
    indices = {value: index for index, op in enumerate(block.ops) for value in op.results}
    first_reads = _first_reads(block)
    before: defaultdict[int, list[Op]] = defaultdict(list)  # new ops before the op at each index
    replaced: dict[Value, Value] = {}
    replaced_ops: set[Op] = set()
    for index, op in enumerate(block.ops):
        if not _is_large(op):
            continue
        ready = max((indices[value] + 1 for value in op.operands if value in indices), default=0)
        read = min((first_reads[value] for value in op.results if value in first_reads), default=len(block.ops) - 1)
        if sum(map(_work, block.ops[ready:index] + block.ops[index + 1 : read])) >= _WORK:
            start, done = _pair(op)
            before[ready].append(start)
            before[read].insert(0, done)
            replaced[op.result] = done.result
            replaced_ops.add(op)
    block.ops = [
        each for index, op in enumerate(block.ops) for each in (*before[index], op) if each not in replaced_ops
    ]
    for op in block.ops:
        for inner in op.walk():
            inner.replace_operands(replaced)


def _first_reads(block: Block) -> Mapping[Value, int]:
    """Return the index of the first op that reads each value."""
    reads: dict[Value, int] = {}
    for index, op in enumerate(block.ops):
        for value in (*op.operands, *captured_values(op)):
            reads.setdefault(value, index)
    return reads


def _is_large(op: Op) -> bool:
    if op.name != _ALL_REDUCE or len(op.operands) != 1:
        return False
    type = op.operands[0].type
    return isinstance(type, TensorType) and type.is_static and type.nbytes >= LEAST


def _work(op: Op) -> int:
    """Return the bytes that `op` reads and writes, a measure of its work; 0 for other collectives."""
    if op.name == _ALL_REDUCE or constant_array(op) is not None:
        return 0
    types = [value.type for value in (*op.operands, *op.results)]
    return sum(type.nbytes for type in types if isinstance(type, TensorType) and type.is_static)


def _pair(op: Op) -> tuple[Op, Op]:
    body = Block([op.operands[0].type])
    inner = op.clone(list(body.arguments))
    body.ops = [inner, make_op("stablehlo.return", inner.results, location=op.location)]
    start = make_op("stablehlo.async_start", op.operands, None, regions=[Region([body])], location=op.location)
    return start, make_op("stablehlo.async_done", start.results, None, location=op.location)
