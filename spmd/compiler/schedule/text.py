"""The textual form of a schedule, for FileCheck tests and for reading.

    region (%0, %1) -> (%5), threads 1, arena 4096
      step 0: loop nests
        unit reduction over 4x256 fold [1] of (%4) -> (%5) : reduce, multiply
        nest [i0 < 4, i1 < 256], lanes 64 of i1, tasks 2 of i0 by 2
          load f32 %0[256*i0 + i1]
          fold [i1] maximum.f32 -> f32 %5[i0]
        buffers %5 in result 2
        cost 1024 operations, 4096 bytes read, 16 bytes written

Values are numbered as the program has them: arguments, then what ops give, those of regions behind their op's. Loops of
a nest are i0, i1, ..., outermost first; an address counts elements of its buffer. A unit is of the ops that make the
values in its first brackets, and gives those behind the arrow. parse.py reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from spmd.analysis.affine import Affine
from spmd.analysis.constants import constant_array
from spmd.analysis.scalar.expression import Expression, Primitive, walk
from spmd.compiler.schedule.arena import Placement
from spmd.compiler.schedule.buffers import Buffer, Home
from spmd.compiler.schedule.fusion import Unit
from spmd.compiler.schedule.lanes import SIDE
from spmd.compiler.schedule.loop_plan import LoopPlan, PlannedNest
from spmd.compiler.schedule.nest import Load, Stage, Store
from spmd.compiler.schedule.schedule import NativeRegion, Schedule
from spmd.compiler.schedule.step_costs import cost_of_step
from spmd.compiler.schedule.steps import (
    BatchRun,
    Branches,
    CallbackStep,
    KernelCall,
    LibraryCall,
    LoopNests,
    RowGroup,
    Step,
    ViewStep,
    WhileLoop,
)
from spmd.compiler.schedule.tasks import Cut, FoldCut
from spmd.compiler.schedule.watching import name_of
from spmd.dialects.core import Trait, has_trait
from spmd.ir import Block, Op, Value

_KINDS: dict[type[Step], str] = {
    LoopNests: "loop nests",
    RowGroup: "row by row",
    BatchRun: "batch by batch",
    LibraryCall: "library call",
    ViewStep: "view",
    CallbackStep: "callback",
    Branches: "branches",
    WhileLoop: "loop",
    KernelCall: "kernel",
}


def schedule_text(schedule: Schedule, schedule_of: Callable[[Block], Schedule]) -> str:
    """Return `schedule` as text; `schedule_of` gives the schedule of a block that Python runs."""
    return "\n".join(_Printer(numbered(schedule.block), schedule_of).entries(schedule, "")) + "\n"


def numbered(block: Block) -> dict[Value, str]:
    """Return the names of all values in a block, including nested blocks, in program order."""
    names: dict[Value, str] = {}
    pending: list[Block | Op] = [block]
    while pending:
        each = pending.pop()
        values = each.arguments if isinstance(each, Block) else each.results
        for value in values:
            names[value] = f"%{len(names)}"
        inner = each.ops if isinstance(each, Block) else [b for region in each.regions for b in region.blocks]
        pending += reversed(inner)
    return names


class _Printer:
    def __init__(self, names: dict[Value, str], schedule_of: Callable[[Block], Schedule]) -> None:
        self.names, self.schedule_of = names, schedule_of
        self.number = 0

    def entries(self, schedule: Schedule, indent: str) -> Iterator[str]:
        for part in schedule.entries:
            if isinstance(part, KernelCall):
                yield from self.step(part, None, indent)
                continue
            over = [f"{self.name(new)} over {self.name(old)}" for new, old in part.overwrites.items()]
            ends = f"{self.list(part.inputs)} -> {self.list(part.outputs)}"
            text = [f"region {ends}", f"threads {part.target.threads}", f"arena {part.placement.size}", *over]
            yield indent + ", ".join(text)
            for step in part.body.steps:
                yield from self.step(step, part, indent + "  ")

    # --- steps ---

    def step(self, step: Step, region: NativeRegion | None, indent: str) -> Iterator[str]:
        yield f"{indent}step {self.number}: {_KINDS[type(step)]}{_how(step)}"
        self.number += 1
        inner = indent + "  "
        for unit in step.all_units:
            yield inner + self.unit(unit)
        for nest, cut in _nests(step):
            yield from self.nest(nest, cut, inner)
        if region is not None:
            for text in self.memory(step, region):
                yield f"{inner}buffers {text}"
        cost = cost_of_step(step)
        yield f"{inner}cost {cost.operations} operations, {cost.read} bytes read, {cost.written} bytes written"
        yield from self.blocks(step, region, inner)

    def blocks(self, step: Step, region: NativeRegion | None, indent: str) -> Iterator[str]:
        """Yield the blocks of a step."""
        for number, block in enumerate(step.blocks):
            yield f"{indent}block {number} -> {self.list(block.results)}"
            for each in block.steps:
                yield from self.step(each, region, indent + "  ")
        if isinstance(step, KernelCall) and has_trait(step.op, Trait.RUNS_REGIONS):
            for number, region_of_op in enumerate(step.op.regions):
                inner = region_of_op.block
                yield f"{indent}block {number} -> {self.list(inner.terminator.operands)}"
                yield from self.entries(self.schedule_of(inner), indent + "  ")

    def unit(self, unit: Unit) -> str:
        """Return the iteration space, ops and results of a unit."""
        if not unit.fused:
            return op_text(unit.outputs[0], self.names)
        kind = "update" if unit.is_update else "reduction" if unit.is_reduction else "points"
        fold = f" fold [{', '.join(map(str, unit.reduced))}]" if unit.reduced else ""
        results = self.list([value for op in unit.outputs for value in op.results])
        inlined = self.list([value for op in unit.inlined for value in op.results])
        return f"unit {kind} over {_shape(unit.shape)}{fold} of {inlined} -> {results} : {name_of(unit.ops)}"

    # --- loop nests ---

    def nest(self, nest: PlannedNest, cut: str, indent: str) -> Iterator[str]:
        shared = f", shared [{', '.join(f'i{v}' for v in nest.outer)}]" if nest.outer else ""
        lanes = ", ".join(dict.fromkeys(filter(None, map(_lanes, nest.plans))))
        yield f"{indent}nest {_loops(nest)}{shared}{f', lanes {lanes}' if lanes else ''}{cut}"
        for stage, plan in zip(nest.stages, nest.plans, strict=True):
            if loops := ", ".join(_loop_plan(plan)):
                yield f"{indent}  loops {loops}"
            for load in stage.loads():
                masked = " where masked" if load.mask is not None else ""
                how = " transposed" if load in plan.strided else ""
                yield f"{indent}  load {load.type.value} {self.at(load, stage)}{masked}{how}"
            for reduction in stage.reductions:
                folded = ", ".join(f"i{variable}" for variable in stage.reduced)
                codes = ", ".join(_root(code) for code in reduction.combine)
                stored = ", ".join(self.stored(store, stage) for store in reduction.stores)
                yield f"{indent}  fold [{folded}] {codes} -> {stored}"
            for store in stage.stores:
                yield f"{indent}  store {self.stored(store, stage)} = {_root(store.code)}"
            for update in stage.updates:
                for value, address, code in update.writes:
                    yield f"{indent}  update {code.type.value} {self.name(value)}[{_affine(address)}] = {_root(code)}"

    def at(self, load: Load, stage: Stage) -> str:
        return f"{self.name(load.value)}[{_affine(load.address)}]"

    def stored(self, store: Store, stage: Stage) -> str:
        return f"{store.code.type.value} {self.name(store.value)}[{_affine(store.address)}]"

    # --- memory ---

    def memory(self, step: Step, region: NativeRegion) -> Iterator[str]:
        """Yield the buffers of the step's results and scratch memory."""
        values = [value for unit in step.units for op in unit.outputs for value in op.results]
        buffers = region.memory.buffer_of
        for value in values:
            if value in buffers and (value not in step.private or isinstance(step, RowGroup)):
                yield f"{self.name(value)} in {_buffer(buffers[value], region.placement)}"
        standing = {buffers[value] for value in values if value in buffers}
        for buffer in step.made:
            if buffer not in standing:
                yield f"scratch in {_buffer(buffer, region.placement)}"
        if isinstance(step, LoopNests):
            for initial in step.initial:
                how = "filled" if initial.element is not None else f"copied from {self.name(initial.operand)}"
                yield f"{self.name(initial.result)} {how} before"
        for state in step.carried if isinstance(step, WhileLoop) else ():
            if state.successor is None:
                how = "stays"
            elif state.successor is state.buffer:
                how = "in place"
            else:
                how = "swapped" if state.swaps else "copied back"
            yield f"{self.name(state.argument)} carried {how} in {_buffer(state.home, region.placement)}"

    # --- names ---

    def name(self, value: Value) -> str:
        return _name(value, self.names)

    def list(self, values: Sequence[Value]) -> str:
        return f"({', '.join(map(self.name, values))})"


def _how(step: Step) -> str:
    """Return the parameters of a step as a whole."""
    if isinstance(step, BatchRun):
        return f", batches {step.count}, tasks {step.tasks}, room {step.room}"
    if isinstance(step, LibraryCall):
        form = f", {step.plan.form}" if str(step.plan.form) else ""
        images = f", images of {step.images.nbytes} bytes" if step.images else ""
        return f", tasks {step.plan.tasks}{form}{images}"
    return ""


def _nests(step: Step) -> Iterator[tuple[PlannedNest, str]]:
    """Yield the nests of a step, each with the text of its split."""
    if isinstance(step, LoopNests):
        for tasked in step.nests:
            yield tasked.nest, _cut(tasked.cut, outlined=tasked.outlined)
    elif isinstance(step, RowGroup):
        yield step.nest, _cut(step.cut, outlined=step.outlined)
    elif isinstance(step, BatchRun):
        for number, (nest, variable) in step.nests.items():
            yield nest, f", batch i{variable}, group {number}"
    elif isinstance(step, LibraryCall) and step.images is not None:
        yield step.images.nest, ""


def _cut(cut: Cut | FoldCut | None, *, outlined: bool) -> str:
    if isinstance(cut, Cut):
        return f", tasks {cut.count} of i{cut.variable} by {cut.size}"
    if cut is None:
        return ", outlined" if outlined else ""
    return f", tasks {cut.count} of blocks by {cut.size}"


def _lanes(plan: LoopPlan) -> str:
    """Return the lanes of a stage."""
    lanes = plan.lanes
    if lanes.variable is None:
        return ""
    outer = "" if lanes.outer is None else f" flattened with i{lanes.outer}"
    inner = "" if lanes.inner is None else f" unrolled i{lanes.inner}"
    return f"{lanes.width} of i{lanes.variable}{outer}{inner}"


def _loop_plan(plan: LoopPlan) -> Iterator[str]:
    """Yield how the loops of a stage run, apart from its lanes."""
    if plan.unrolled:
        yield "unrolled"
    if plan.transposed is not None:
        yield f"tiles {SIDE} of i{plan.transposed}"
    if plan.small_axis:
        yield f"rows {SIDE} {'transposed' if plan.strided else 'as vectors'}"
    if plan.columns:
        yield f"tiles {plan.columns} of i{plan.lanes.variable}"
    if plan.levels:
        yield f"blocks {' of '.join(map(str, reversed(plan.levels)))}"
    if plan.interleaved > 1:
        yield f"interleaved {plan.interleaved}"
    if plan.interior is not None:
        spans = (f"{first} <= i{variable} < {stop}" for variable, (first, stop) in plan.interior.spans.items())
        yield f"interior [{', '.join(spans)}]"


def _buffer(buffer: Buffer, placement: Placement) -> str:
    """Return the location and size of a buffer."""
    size = f" ({buffer.nbytes} bytes)"
    if buffer.alias is not None:
        return _buffer(buffer.alias, placement)
    if buffer.home is not Home.ARENA:
        return f"{buffer.home.value}{f' {buffer.number}' if buffer.home is Home.ARGUMENT else ''}{size}"
    block, offset = placement.blocks[buffer.number], placement.offsets[buffer.number]
    return f"{'arena' if block is None else f'argument {block}'} at {offset}{size}"


def _loops(nest: PlannedNest) -> str:
    """Return the loops of a nest, without collapsed ones."""
    variables = sorted({*nest.outer, *(variable for stage in nest.stages for variable in stage.loops)})
    return f"[{', '.join(f'i{variable} < {nest.extents[variable]}' for variable in variables)}]"


def _affine(form: Affine) -> str:
    terms = [f"{c}*i{v}" if c != 1 else f"i{v}" for v, c in form.terms]
    terms += [f"{c}*computed" if c != 1 else "computed" for _, c in form.dynamic]
    terms += [str(form.offset)] if form.offset or not terms else []
    return " + ".join(terms)


def _root(code: Expression) -> str:
    """Return the root operation of an expression, and the number of operations."""
    if code.primitive is Primitive.PARAMETER:
        return "loaded"
    if code.primitive is Primitive.CONSTANT:
        return "constant"
    inner = (Primitive.PARAMETER, Primitive.CONSTANT)
    count = sum(node.primitive not in inner for node in walk([code]))
    return f"{code.primitive.value}.{code.type.value}" + (f" of {count}" if count > 1 else "")


def _shape(extents: Sequence[int]) -> str:
    return "x".join(map(str, extents)) or "()"


def _name(value: Value, names: dict[Value, str]) -> str:
    name = names.get(value)
    return name if name is not None else "constant" if constant_array(value.defining_op) is not None else "%outer"


def op_text(op: Op, names: dict[Value, str]) -> str:
    """Return the text of a single-op unit."""
    operands, results = (", ".join(_name(value, names) for value in values) for values in (op.operands, op.results))
    return f"op {op.name} ({operands}) -> ({results})"
