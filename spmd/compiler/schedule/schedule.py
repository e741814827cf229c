"""The schedule of a block: all that decides what runs when, and in which memory, made once.

A block is a sequence of native regions, stretches of units that a back end compiles to one function each, and of ops
that Python runs. Whoever writes, shows, prices or profiles a program reads this object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType

from spmd.analysis.constants import constant_array
from spmd.compiler.schedule.arena import Placement
from spmd.compiler.schedule.block_planner import plan_results, without_images
from spmd.compiler.schedule.buffers import Buffer, Home, Memory, nbytes
from spmd.compiler.schedule.fusion import VIEWS, Unit, fuse
from spmd.compiler.schedule.in_place import overwritten
from spmd.compiler.schedule.steps import BlockSchedule, KernelCall, Step, ViewStep
from spmd.compiler.schedule.target import Target
from spmd.dialects.core import is_pure
from spmd.ir import Block, Op, Value, captured_values

#: The operands of an op whose memory its results may stand on, by number.
Aliases = Callable[[Op], Sequence[int]]


@dataclass(frozen=True, eq=False)
class NativeRegion:
    """Units that become one native function: arrays of `inputs` in, of `outputs` out.

    `overwrites` are inputs whose memory outputs take over, by output; `placement` says where in the arena buffers lie,
    `target` what its code is made for.
    """

    inputs: Sequence[Value]
    outputs: Sequence[Value]
    body: BlockSchedule
    memory: Memory
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
    """What runs of `block`, in order."""

    block: Block
    parts: Sequence[NativeRegion | KernelCall] = field(default_factory=tuple)

    @property
    def steps(self) -> list[Step]:
        """All steps, those of native regions among them."""
        return [step for part in self.parts for step in (part.body.steps if isinstance(part, NativeRegion) else [part])]

    @property
    def arena(self) -> int:
        """Bytes of the largest arena."""
        return max((part.placement.size for part in self.parts if isinstance(part, NativeRegion)), default=0)


def schedule(
    block: Block,
    target: Target | None,
    donated: Sequence[Value] = (),
    aliases: Aliases = lambda op: (),
    *,
    apart: bool = False,
    runs_here: bool = True,
) -> Schedule:
    """The schedule of `block` for native code of `target`; None: Python runs all ops, one by one.

    `donated` are arguments of the block whose memory results may take over; `aliases` says what may keep them from it.
    `apart`: each step of a native region is a region of its own, so that it can be timed from outside. CompileError
    where a value would need more memory than the process may have, if the schedule `runs_here`: what is explained or
    predicted may be for a larger machine.
    """
    if target is None:
        ops = [op for op in block.ops[:-1] if constant_array(op) is None]
        return Schedule(block, [KernelCall([Unit(False, place, outputs=[op])]) for place, op in enumerate(ops)])
    return Schedule(block, list(_Parts(block, target, donated, aliases, runs_here).parts(apart=apart)))


class _Parts:
    """Makes the native regions of a block, and what is left to Python."""

    def __init__(
        self, block: Block, target: Target, donated: Sequence[Value], aliases: Aliases, runs_here: bool
    ) -> None:
        self.runs_here = runs_here
        self.results = list(block.terminator.operands)
        self.target, self.donated, self.aliases = target, donated, aliases
        self.units = fuse(block, self.results)
        self.numbers = {unit: number for number, unit in enumerate(self.units)}
        self.read_later = _read_later(self.units, self.results)
        #: Ops that Python has run so far.
        self.before: list[Op] = []

    def parts(self, *, apart: bool) -> Iterator[NativeRegion | KernelCall]:
        for native, group in groupby(self.units, lambda unit: unit.fused or self.target.supports(unit.outputs[0])):
            stretch = list(group)
            views = stretch if not native or all(map(_is_view, stretch)) else _first_views(stretch)
            for unit in views:
                self.before += unit.ops
                yield KernelCall([unit])
            in_python = set(views)
            region = self._region([unit for unit in stretch if unit not in in_python])
            if region is None:
                continue
            if not apart:
                yield region
                continue
            for step in region.body.steps:
                if isinstance(step, ViewStep):
                    yield KernelCall(step.units)
                elif (alone := self._region(step.all_units)) is not None:
                    yield alone

    def _region(self, units: Sequence[Unit]) -> NativeRegion | None:
        """`units` as a region; None where nothing comes of them."""
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
        return plan_region(units, inputs, outputs, self.target, free, runs_here=self.runs_here)

    def _is_free(self, value: Value, read: Iterable[Value]) -> bool:
        """Whether none of `read` stands on the memory of `value`, of which Python may have made views before."""
        standing = {value}
        for op in self.before:
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
    runs_here: bool = True,
    units_of: Mapping[Block, Sequence[Unit]] = MappingProxyType({}),
) -> NativeRegion:
    """`units` as one native region. Of the inputs, `donated` may be written over. For the others see Memory."""
    memory = Memory(inputs, target, runs_here=runs_here, units_of=units_of)
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


def _is_view(unit: Unit) -> bool:
    return not unit.fused and unit.outputs[0].name in VIEWS


def _first_views(units: Sequence[Unit]) -> list[Unit]:
    """Views of what comes from elsewhere, which need no copy outside of native code."""
    defined: set[Value] = set()
    views: list[Unit] = []
    for unit in units:
        (first, *_) = unit.outputs
        if _is_view(unit) and not any(operand in defined for operand in first.operands):
            views.append(unit)
            continue
        defined.update(value for op in unit.outputs for value in op.results)
    return views


def _reads(units: Iterable[Unit]) -> list[Value]:
    """The values that the ops of units read, whatever makes them, each once."""
    values: dict[Value, None] = {}
    for unit in units:
        inside = set(unit.taken)
        for op in unit.ops:
            for value in (*op.operands, *(captured_values(op) if op.regions else ())):
                if value.defining_op not in inside:
                    values[value] = None
    return list(values)


def _read_later(units: Sequence[Unit], results: Sequence[Value]) -> dict[Value, int]:
    """The number of the last unit that reads each value; one past the end for results, -1 for what is never read."""
    last: dict[Value, int] = {value: -1 for unit in units for op in unit.outputs for value in op.results}
    for number, unit in enumerate(units):
        for value in _reads([unit]):
            last[value] = number
    last.update(dict.fromkeys(results, len(units)))
    return last
