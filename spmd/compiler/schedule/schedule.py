"""The schedule of a block: fused units, their order, memory and tasks.

A block is a sequence of native regions, runs of units that a back end compiles to one function each, and of ops that
Python runs. Back ends, printers, the cost model and the profiler all read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType

from spmd.analysis.constants import constant_array
from spmd.compiler.schedule.arena import Placement
from spmd.compiler.schedule.block_planner import plan_results, without_images
from spmd.compiler.schedule.buffers import Buffer, BufferAssignment, Home, nbytes
from spmd.compiler.schedule.fusion import Unit, fuse
from spmd.compiler.schedule.in_place import overwritten
from spmd.compiler.schedule.steps import BlockSchedule, KernelCall, Step, ViewStep
from spmd.compiler.schedule.target import Target
from spmd.dialects.core import is_pure
from spmd.ir import Block, Op, Value, captured_values

#: Numbers of the operands of an op that its results may alias.
Aliases = Callable[[Op], Sequence[int]]


@dataclass(frozen=True, eq=False)
class NativeRegion:
    """Units compiled to one native function from arrays of `inputs` to arrays of `outputs`.

    `overwrites` maps outputs to the inputs whose memory they reuse; `placement` gives offsets in the arena; `target` is
    what the code is compiled for.
    """

    inputs: Sequence[Value]
    outputs: Sequence[Value]
    body: BlockSchedule
    memory: BufferAssignment
    placement: Placement
    overwrites: Mapping[Value, Value]
    target: Target

    @property
    def first_op(self) -> Op:
        return self.body.units[0].outputs[0]

    @property
    def ops(self) -> list[Op]:
        return [op for step in self.body.steps for op in step.ops]


@dataclass(frozen=True, eq=False)
class Schedule:
    """What is executed for `block`, in order."""

    block: Block
    entries: Sequence[NativeRegion | KernelCall] = field(default_factory=tuple)

    @property
    def steps(self) -> list[Step]:
        """All steps, including those within native regions."""
        return [
            step
            for entry in self.entries
            for step in (entry.body.steps if isinstance(entry, NativeRegion) else [entry])
        ]

    @property
    def arena(self) -> int:
        """Size in bytes of the largest arena."""
        return max((entry.placement.size for entry in self.entries if isinstance(entry, NativeRegion)), default=0)


def schedule(
    block: Block,
    target: Target | None,
    donated: Sequence[Value] = (),
    aliases: Aliases = lambda op: (),
    *,
    split_steps: bool = False,
    check_memory: bool = True,
) -> Schedule:
    """Return the schedule of `block` for native code of `target`, or for Python alone if None.

    `donated` are arguments of the block whose memory results may reuse, unless a view by an op of Python (`aliases`) is
    still live. With `split_steps` each step is a native region, so that it can be timed separately. With `check_memory`
    a value that exceeds the memory of this process is a CompileError; programs explained or predicted for a larger
    machine are scheduled without.
    """
    if target is None:
        ops = [op for op in block.ops[:-1] if constant_array(op) is None]
        return Schedule(block, [KernelCall([Unit(False, place, outputs=[op])]) for place, op in enumerate(ops)])
    return Schedule(
        block, list(_Splitter(block, target, donated, aliases, check_memory).entries(split_steps=split_steps))
    )


class _Splitter:
    """Splits a block into native regions and ops that Python runs."""

    def __init__(
        self, block: Block, target: Target, donated: Sequence[Value], aliases: Aliases, check_memory: bool
    ) -> None:
        self.check_memory = check_memory
        self.results = list(block.terminator.operands)
        self.target, self.donated, self.aliases = target, donated, aliases
        self.units = fuse(block, self.results)
        self.numbers = {unit: number for number, unit in enumerate(self.units)}
        self.read_later = _read_later(self.units, self.results)
        #: Ops executed by Python so far.
        self.python_ops: list[Op] = []

    def entries(self, *, split_steps: bool) -> Iterator[NativeRegion | KernelCall]:
        for native, group in groupby(self.units, lambda unit: unit.fused or self.target.supports(unit.outputs[0])):
            run = list(group)
            views = run if not native or all(unit.is_view for unit in run) else _first_views(run)
            for unit in views:
                self.python_ops += unit.ops
                yield KernelCall([unit])
            in_python = set(views)
            region = self._region([unit for unit in run if unit not in in_python])
            if region is None:
                continue
            if not split_steps:
                yield region
                continue
            for step in region.body.steps:
                if isinstance(step, ViewStep):
                    yield KernelCall(step.units)
                elif (alone := self._region(step.all_units)) is not None:
                    yield alone

    def _region(self, units: Sequence[Unit]) -> NativeRegion | None:
        """Return `units` as a native region; None if they are dead."""
        written = [value for unit in units for op in unit.outputs for value in op.results]
        end = max((self.numbers[unit] for unit in units), default=-1)
        outputs = [value for value in written if self.read_later[value] > end]
        if not outputs and all(is_pure(op) for unit in units for op in unit.ops):
            return None
        defined = set(written)
        inputs = [value for value in _reads(units) if value not in defined and not _is_constant(value)]
        offered = [value for value in self.donated if value in inputs]
        later = {*_reads(self.units[end + 1 :]), *self.results} if offered else set()
        free = [value for value in offered if self._is_free(value, later.union(inputs) - {value} | later)]
        return plan_region(units, inputs, outputs, self.target, free, check_memory=self.check_memory)

    def _is_free(self, value: Value, read: Iterable[Value]) -> bool:
        """Return whether no value in `read` aliases `value` through a view that Python made earlier."""
        standing = {value}
        for op in self.python_ops:
            operands = [*op.operands, *(captured_values(op) if op.regions else ())]
            if any(operands[place] in standing for place in self.aliases(op)):
                standing.update(op.results)
        return standing.isdisjoint(read)


def plan_region(
    units: Sequence[Unit],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    target: Target,
    donated: Sequence[Value] = (),
    *,
    check_memory: bool = True,
    units_of: Mapping[Block, Sequence[Unit]] = MappingProxyType({}),
) -> NativeRegion:
    """Return `units` as one native region; outputs may overwrite inputs in `donated`. See Memory for the other
    parameters.
    """
    memory = BufferAssignment(inputs, target, check_memory=check_memory, units_of=units_of)
    targets = [Buffer(Home.ARGUMENT, nbytes(v), len(inputs) + n, values=[v]) for n, v in enumerate(outputs)]
    units = without_images(memory, units, outputs)
    over = overwritten(memory, units, donated, outputs)
    free = [buffer for value, buffer in zip(outputs, targets, strict=True) if value not in over]
    targets = [memory.of(over[v]) if v in over else buffer for v, buffer in zip(outputs, targets, strict=True)]
    body = plan_results(memory, units, outputs, targets, free)
    placement = memory.arena.place()
    return NativeRegion(inputs, outputs, body, memory, placement, over, target)


def _is_constant(value: Value) -> bool:
    return constant_array(value.defining_op) is not None


def _first_views(units: Sequence[Unit]) -> list[Unit]:
    """Return the views of values from outside, which need no copy outside of native code."""
    defined: set[Value] = set()
    views: list[Unit] = []
    for unit in units:
        (first, *_) = unit.outputs
        if unit.is_view and not any(operand in defined for operand in first.operands):
            views.append(unit)
            continue
        defined.update(value for op in unit.outputs for value in op.results)
    return views


def _reads(units: Iterable[Unit]) -> list[Value]:
    """Return the distinct live-in values of each unit."""
    values: dict[Value, None] = {}
    for unit in units:
        inside = set(unit.inlined)
        for op in unit.ops:
            for value in (*op.operands, *(captured_values(op) if op.regions else ())):
                if value.defining_op not in inside:
                    values[value] = None
    return list(values)


def _read_later(units: Sequence[Unit], results: Sequence[Value]) -> dict[Value, int]:
    """Return the number of the last unit that reads each value; one past the end for results, -1 if it is
    never read.
    """
    last: dict[Value, int] = {value: -1 for unit in units for op in unit.outputs for value in op.results}
    for number, unit in enumerate(units):
        for value in _reads([unit]):
            last[value] = number
    last.update(dict.fromkeys(results, len(units)))
    return last
