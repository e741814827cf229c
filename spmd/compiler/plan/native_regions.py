"""A block's units as steps: neighbouring ones with a native form are one native function, the others a kernel an op."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from spmd.analysis.constants import constant_array
from spmd.backends.numpy.core import Kernel
from spmd.compiler.plan.emit import emit
from spmd.compiler.plan.steps import NativePart, Plan, PlanStep
from spmd.compiler.schedule.fusion import VIEWS, Unit, fuse
from spmd.compiler.schedule.rows import row_groups
from spmd.compiler.schedule.watching import Watch
from spmd.dialects.core import is_pure
from spmd.ir import Block, Op, Value, captured_values
from spmd.support.arrays import Results

if TYPE_CHECKING:
    from spmd.backends.llvm.emit.native_ops import Callback
    from spmd.backends.llvm.jit.loading import CompiledStretch

MakeStep = Callable[[Op], PlanStep]


def native_steps(
    block: Block,
    make_step: MakeStep,
    threads: int,
    donated: Sequence[Value] = (),
    *,
    apart: bool = False,
    watch: Watch | None = None,
) -> list[PlanStep]:
    """The steps of `block`, natively as far as can be, by up to `threads`; `make_step` gives the step of one op.

    `donated` are arguments of the block whose memory results may take over. `apart` keeps units, and groups of them
    that run row by row, as steps of their own, by which they can be timed. `watch` sees what native code has Python
    run, and either each unit apart, or the times that native functions take of their parts.
    """
    # Loaded late: who runs on the numpy back end alone needs no LLVM.
    from spmd.backends.llvm.native_region import compile_stretch, is_native

    clocked = bool(getattr(watch, "times_parts", False))
    apart = apart or (watch is not None and not clocked)
    results = list(block.terminator.operands)
    units = fuse(block, results)
    steps: list[PlanStep] = []
    read_later = _read_later(units, results)
    alike = ((is_native(group[0]), group) for group in row_groups(units)) if apart else _groups(units, is_native)
    for native, group in alike:
        if not native or all(_is_view(unit) for unit in group):
            steps += [make_step(op) for unit in group for op in unit.ops]
            continue
        before, stretch = _without_first_views(group)
        steps += [make_step(op) for unit in before for op in unit.outputs]
        defined = {value for unit in stretch for op in unit.outputs for value in op.results}
        inputs = [value for value in _reads(stretch) if value not in defined and not _is_constant(value)]
        end = units.index(stretch[-1])
        outputs = [value for unit in stretch for op in unit.outputs for value in op.results if read_later[value] > end]
        if not outputs and all(is_pure(op) for unit in stretch for op in unit.ops):
            continue
        offered = [value for value in donated if value in inputs]
        later = {*_reads(units[end + 1 :]), *results} if offered else set()
        free = [value for value in offered if _is_free(value, steps, later.union(inputs) - {value} | later)]
        called: list[Op] = []

        def call_back(op: Op, called: list[Op] = called) -> Callback:
            called.append(op)
            return callback_of(make_step(op), watch)

        compiled = compile_stretch(stretch, inputs, outputs, call_back, threads, free, clocked=clocked)
        step = native_step(stretch[0].outputs[0], compiled, inputs, outputs, called)
        if watch is not None:
            step.ops = _in_order(block, [op for unit in stretch for op in unit.ops])
            step.replay = _replay(step, make_step)
        steps.append(step)
    return steps


def native_step(
    op: Op, compiled: CompiledStretch, inputs: list[Value], outputs: list[Value], called: Sequence[Op]
) -> PlanStep:
    """The native function as a step, which stands where `op` does and has Python run `called`."""
    from spmd.backends.llvm.jit.loading import load_stretch  # late, as above

    stretch = load_stretch(compiled)
    kernel = Kernel(
        stretch.call, needs_process=stretch.needs_process, overwrites=stretch.overwrites, is_native=stretch.is_plain
    )
    native = NativePart(compiled.code, tuple(called))
    return PlanStep(op, kernel, inputs, outputs, clock=compiled.clock, native=native)


def _in_order(block: Block, ops: Sequence[Op]) -> tuple[Op, ...]:
    """`ops`, each once, as `block` has them."""
    members = set(ops)
    return tuple(op for op in block.ops if op in members)


def _replay(unit: PlanStep, make_step: MakeStep) -> Callable[..., Iterator[tuple[Op, Results]]] | None:
    """What runs the ops of `unit` one after another on its arguments; None where that has effects."""
    if not all(is_pure(inner) for op in unit.ops for inner in op.walk()):
        return None

    def replay(*arguments: Results) -> Iterator[tuple[Op, Results]]:
        # The process comes first where an op inside asks for it; elsewhere nobody looks at it.
        before = len(arguments) - len(unit.inputs)
        process, inputs = arguments[:before] or (None,), arguments[before:]
        values: dict[Value, Results] = dict(zip(unit.inputs, inputs, strict=True))
        for op in unit.ops:
            step = make_step(op)
            call_inputs = [values[v] if v in values else constant_array(v.defining_op) for v in step.inputs]
            with np.errstate(all="ignore"):
                results = step.kernel.call(*(process if step.kernel.needs_process else ()), *call_inputs)
            values.update(zip(step.outputs, (results,) if len(step.outputs) == 1 else results, strict=True))
            yield op, results

    return replay


def _is_free(value: Value, steps: Iterable[PlanStep], read: Iterable[Value]) -> bool:
    """Whether none of `read` stands on the memory of `value`, from which `steps` made what they made."""
    standing = {value}
    for step in steps:
        if any(step.inputs[index] in standing for index in step.kernel.aliases):
            standing.update(step.outputs)
    return standing.isdisjoint(read)


def callback_of(step: PlanStep, watch: Watch | None) -> Callback:
    """`step` for native code to call: a program of its own, so that what it raises has a place."""
    from spmd.backends.llvm.emit.native_ops import Callback  # late, as above

    inputs = list(dict.fromkeys(step.inputs))
    program = emit(Plan(inputs, {}, [step], step.outputs, {}), watch)
    keeps = not step.kernel.owned or not is_pure(step.op)
    return Callback(program, inputs, step.outputs, keeps)


def _is_constant(value: Value) -> bool:
    return constant_array(value.defining_op) is not None


def _is_view(unit: Unit) -> bool:
    return not unit.fused and unit.outputs[0].name in VIEWS


def _groups(units: list[Unit], is_native: Callable[[Unit], bool]) -> Iterator[tuple[bool, list[Unit]]]:
    """Neighbouring units that are all native, or all not."""
    group: list[Unit] = []
    kind = False
    for unit in units:
        native = is_native(unit)
        if group and native is not kind:
            yield kind, group
            group = []
        kind = native
        group.append(unit)
    if group:
        yield kind, group


def _without_first_views(group: list[Unit]) -> tuple[list[Unit], list[Unit]]:
    """Views of what comes from elsewhere, which need no copy outside of native code, and the other units."""
    defined: set[Value] = set()
    views: list[Unit] = []
    others: list[Unit] = []
    for unit in group:
        (first, *_) = unit.outputs
        if _is_view(unit) and not any(operand in defined for operand in first.operands):
            views.append(unit)
            continue
        others.append(unit)
        defined.update(value for op in unit.outputs for value in op.results)
    return views, others


def _reads(units: Iterable[Unit]) -> list[Value]:
    """The values that the ops of units read, whoever makes them, each once."""
    values: dict[Value, None] = {}
    for unit in units:
        inside = set(unit.taken)
        for op in unit.ops:
            for value in (*op.operands, *(captured_values(op) if op.regions else ())):
                if value.defining_op not in inside:
                    values[value] = None
    return list(values)


def _read_later(units: list[Unit], results: list[Value]) -> dict[Value, int]:
    """The number of the last unit that reads each value; one past the end for results, -1 for what nobody reads."""
    last: dict[Value, int] = {value: -1 for unit in units for op in unit.outputs for value in op.results}
    for number, unit in enumerate(units):
        for value in _reads([unit]):
            last[value] = number
    last.update(dict.fromkeys(results, len(units)))
    return last
