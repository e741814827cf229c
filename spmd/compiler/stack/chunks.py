"""Chunking: if the stacked values of all processes exceed memory, processes are computed some at a time.

Between communications processes are independent. The ops in between become a loop over chunks of processes: it slices
the chunk's rows of the live-in values, computes on them, and updates its rows of the live-out values, so that
intermediates exist for one chunk only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby

from spmd.analysis.collectives import COMMUNICATING
from spmd.compiler.stack.core import StackedValue, Stacker
from spmd.dialects.core import is_pure
from spmd.ir import Block, Op, Region, Value, captured_values
from spmd.types import TensorType

#: Pure ops whose results differ between processes.
_POSITIONS = ("stablehlo.replica_id", "stablehlo.partition_id")
#: Most chunks in an unrolled loop.
_MOST_WATCHED = 64
#: Ops fused into a sum over all processes (spmd.compiler.stack.products): their results are never stored per process.
_SUMMED = ("stablehlo.dot_general", "stablehlo.transpose")
_SUMS = ("stablehlo.all_reduce", "stablehlo.reduce_scatter")


def write_in_chunks(memory: int, stacker: Stacker, block: Block) -> None:
    """Emit the ops of `block`; those between communications in chunks of processes that fit into `memory` bytes."""
    ops = block.ops[:-1]
    for op in ops:  # a loop body is emitted repeatedly: forget earlier results
        for value in op.results:
            stacker.trees.pop(value, None)
    last = _last_uses(block)
    number = {op: place for place, op in enumerate(ops)}
    summed = set() if stacker.options.reproducible else _summed(block)
    for is_local, run in groupby(ops, _is_local):
        segment = list(run)
        if not is_local:
            for op in segment:
                stacker.apply(op)
            continue
        differing = [op for op in segment if not _written_once(stacker, op)]
        rest, after = [op for op in differing if op not in summed], [op for op in differing if op in summed]
        end = number[segment[-1]]
        needed = {value for op in after for value in op.operands}
        outputs = [v for op in rest for v in op.results if v in needed or last.get(v, -1) > end]
        peak = _peak(rest, set(outputs))
        size = max(_least(stacker), memory // peak) if peak else stacker.size
        if size >= stacker.size:
            after = differing
        else:
            chunks = _Chunks(stacker, rest, outputs, size)
            chunks.write_loop() if stacker.after_op is None else chunks.write_unrolled()
        for op in after:
            stacker.apply(op)


def _summed(block: Block) -> set[Op]:
    """Return the products, and transposes of them, whose users are all sums over processes."""
    users: dict[Value, list[Op]] = {}
    for op in block.ops:
        for value in (*op.operands, *(captured_values(op) if op.regions else ())):
            users.setdefault(value, []).append(op)
    ops: set[Op] = set()
    for op in reversed(block.ops[:-1]):
        own_users = [user for value in op.results for user in users.get(value, ())]
        if op.name in _SUMMED and own_users and all(u.name in _SUMS or u in ops for u in own_users):
            ops.add(op)
    return ops


def _is_local(op: Op) -> bool:
    """Return whether `op` depends on tensors of its own process only."""
    if op.name in _POSITIONS or any(inner.name in COMMUNICATING or not is_pure(inner) for inner in op.walk()):
        return False
    types = [value.type for value in (*op.operands, *op.results, *(captured_values(op) if op.regions else ()))]
    return all(isinstance(type, TensorType) and type.is_static for type in types)


def _written_once(stacker: Stacker, op: Op) -> bool:
    """Emit `op` if it is the same for all processes; return whether it was. Its operands may not be emitted yet."""
    read = [*op.operands, *(captured_values(op) if op.regions else ())]
    if any(value not in stacker.trees for value in read) or stacker.differs(op):
        return False
    if any(inner.name in _POSITIONS for inner in op.walk()):
        return False
    stacker.apply(op)
    return True


def _last_uses(block: Block) -> dict[Value, int]:
    """Return the number of the last op in a block that reads each value; one past the end for results."""
    last: dict[Value, int] = {}
    for number, op in enumerate(block.ops[:-1]):
        last |= dict.fromkeys([*op.operands, *(captured_values(op) if op.regions else ())], number)
    return last | dict.fromkeys(block.terminator.operands, len(block.ops))


def _peak(ops: Sequence[Op], kept: set[Value]) -> int:
    """Return the peak bytes per process of values between `ops`, without those in `kept`."""
    last: dict[Value, int] = {}
    for number, op in enumerate(ops):
        last |= dict.fromkeys([*op.operands, *(captured_values(op) if op.regions else ())], number)
    leaving: dict[int, int] = {}
    live = most = 0
    for number, op in enumerate(ops):
        inside = max((_peak(inner.ops[:-1], set()) for region in op.regions for inner in region.blocks), default=0)
        for value in op.results:
            if value not in kept:
                live += value.tensor.nbytes
                end = max(number, last.get(value, number))
                leaving[end] = leaving.get(end, 0) + value.tensor.nbytes
        most = max(most, live + inside)
        live -= leaving.pop(number, 0)
    return most


def _least(stacker: Stacker) -> int:
    """Return the least processes per chunk: chunks of watched programs are unrolled, so their number is limited."""
    return 1 if stacker.after_op is None else -(-stacker.size // _MOST_WATCHED)


class _Chunks:
    """Ops of all processes, in chunks of `size`."""

    def __init__(self, stacker: Stacker, ops: Sequence[Op], outputs: Sequence[Value], size: int) -> None:
        self.stacker, self.ops, self.outputs, self.size = stacker, ops, outputs, size

    def write_loop(self) -> None:
        """Emit a loop over the chunks; the last one overlaps the previous one to be complete."""
        stacker = self.stacker
        totals = [stacker.splat(0, stacker.tensor_of(value.type)) for value in self.outputs]
        init = [stacker.index(0), *totals]
        types = [value.type for value in init]
        with stacker.block(types) as condition:
            end = stacker.index(-(-stacker.size // self.size))
            stacker.finish([stacker.compare(condition.arguments[0], end, "LT")])
        with stacker.block(types) as body:
            chunk, *rows = body.arguments
            start = stacker.binary("multiply", chunk, stacker.index(self.size))
            parts = self._chunk(lambda value: stacker.dynamic_slice(value, 0, start, self.size), 0, self.size)
            new = [stacker.dynamic_update(total, part, 0, start) for total, part in zip(rows, parts, strict=True)]
            stacker.finish([stacker.binary("add", chunk, stacker.index(1)), *new])
        loop = stacker.op("stablehlo.while", init, types, regions=[Region([condition]), Region([body])])
        for value, result in zip(self.outputs, loop.results[1:], strict=True):
            stacker.trees[value] = StackedValue(result, True)

    def write_unrolled(self) -> None:
        """Emit one chunk after another, so that the rows of each are static."""
        stacker = self.stacker
        parts = []
        for start in range(0, stacker.size, self.size):
            stop = min(start + self.size, stacker.size)
            parts.append(self._chunk(partial(stacker.slice, dimension=0, start=start, stop=stop), start, stop))
        for value, rows in zip(self.outputs, zip(*parts, strict=True), strict=True):
            stacker.trees[value] = StackedValue(stacker.concatenate(rows, 0), True)

    def _chunk(self, rows_of: Callable[[Value], Value], start: int, stop: int) -> list[Value]:
        """Emit the ops for processes `start` to `stop`, whose rows `rows_of` slices; return their rows of
        the outputs.
        """
        stacker, trees, row_ranks = self.stacker, dict(self.stacker.trees), self.stacker.row_ranks
        try:
            for value in self._inputs():
                leaf = stacker.leaf(value)
                if leaf.stacked:
                    stacker.trees[value] = StackedValue(rows_of(leaf.value), True)
            stacker.row_ranks = range(start, stop)
            for op in self.ops:
                stacker.apply(op)
            return [stacker.stack(stacker.leaf(value)) for value in self.outputs]
        finally:
            stacker.trees, stacker.row_ranks = trees, row_ranks

    def _inputs(self) -> Iterator[Value]:
        """Return the live-in values of the ops."""
        defined = {value for op in self.ops for value in op.results}
        read = (v for op in self.ops for v in (*op.operands, *(captured_values(op) if op.regions else ())))
        return iter(dict.fromkeys(value for value in read if value not in defined))
