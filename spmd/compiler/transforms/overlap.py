"""Large all_reduces go on while the program computes.

A training step computes the gradients of one layer after another, and reduces all of them in the end. Here an
all_reduce is started as soon as its operand is there, and waited for where its result is first read, so that the
gradients of later layers travel while those of earlier ones are computed. The order of starts follows from the
program, so that processes that run one program agree; those of different programs must not be rewritten so.

Among ranks of one machine, communicating is copying and adding, which takes a processor: on two ranks that have a core
each, a step takes 1.10 times as long with overlap for gradients of 8 MiB, 1.15 times for those of 1 MiB. So "auto" is
for ranks that have a core to spare. (Where the cores are shared with other jobs, so that ranks wait for each other
rather than for data, it took 0.75 of the time.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from collectives.mpi_background import LEAST
from spmd.analysis.constants import constant_array
from spmd.dialects.make import make_op
from spmd.ir import Block, Op, Region, Value, captured_values
from spmd.types import TensorType

_ALL_REDUCE = "stablehlo.all_reduce"
#: Bytes that ops read and write beside a transfer that is worth starting.
_WORK = LEAST // 4


def overlap(block: Block) -> None:
    """Makes a large all_reduce of `block` that much is computed beside an async_start and an async_done."""
    places = {value: place for place, op in enumerate(block.ops) for value in op.results}
    first_reads = _first_reads(block)
    before: defaultdict[int, list[Op]] = defaultdict(list)  # what comes before the op of a place
    replaced: dict[Value, Value] = {}
    gone: set[Op] = set()
    for place, op in enumerate(block.ops):
        if not _is_large(op):
            continue
        ready = max((places[value] + 1 for value in op.operands if value in places), default=0)
        read = min((first_reads[value] for value in op.results if value in first_reads), default=len(block.ops) - 1)
        if sum(map(_work, block.ops[ready:place] + block.ops[place + 1 : read])) >= _WORK:
            start, done = _pair(op)
            before[ready].append(start)
            before[read].insert(0, done)
            replaced[op.result] = done.result
            gone.add(op)
    block.ops = [each for place, op in enumerate(block.ops) for each in (*before[place], op) if each not in gone]
    for op in block.ops:
        for inner in op.walk():
            inner.replace_operands(replaced)


def _first_reads(block: Block) -> Mapping[Value, int]:
    """The place of the first op that reads each value."""
    reads: dict[Value, int] = {}
    for place, op in enumerate(block.ops):
        for value in (*op.operands, *captured_values(op)):
            reads.setdefault(value, place)
    return reads


def _is_large(op: Op) -> bool:
    if op.name != _ALL_REDUCE or len(op.operands) != 1:
        return False
    type = op.operands[0].type
    return isinstance(type, TensorType) and type.is_static and type.nbytes >= LEAST


def _work(op: Op) -> int:
    """Bytes that `op` reads and writes: as much as it computes, or less. Other collectives do not count."""
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
