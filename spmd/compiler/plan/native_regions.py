"""A schedule as steps: a native function for each of its regions, and a kernel for each op that Python runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from spmd.analysis.constants import constant_array
from spmd.backends.numpy.core import Kernel
from spmd.compiler.plan.emit import emit
from spmd.compiler.plan.steps import NativePart, Plan, PlanStep
from spmd.compiler.schedule.schedule import NativeRegion, Schedule
from spmd.compiler.schedule.steps import KernelCall
from spmd.compiler.schedule.watching import Watch
from spmd.dialects.core import is_pure
from spmd.ir import Block, Op, Value
from spmd.support.arrays import Results

if TYPE_CHECKING:
    from spmd.backends.llvm.emit.native_ops import Callback
    from spmd.backends.llvm.jit.loading import CompiledStretch

MakeStep = Callable[[Op], PlanStep]


def plan_steps(schedule: Schedule, make_step: MakeStep, watch: Watch | None = None) -> list[PlanStep]:
    """The steps of `schedule`; `make_step` gives the step of one op.

    `watch` sees what native code has Python run, and either each region, or the times that native functions take of
    their steps.
    """
    return [
        make_step(part.op) if isinstance(part, KernelCall) else _region_step(schedule.block, part, make_step, watch)
        for part in schedule.parts
    ]


def _region_step(block: Block, region: NativeRegion, make_step: MakeStep, watch: Watch | None) -> PlanStep:
    # Loaded late: who runs on the numpy back end alone needs no LLVM.
    from spmd.backends.llvm.native_region import compile_region

    called: list[Op] = []

    def call_back(op: Op) -> Callback:
        called.append(op)
        return callback_of(make_step(op), watch)

    compiled = compile_region(region, call_back, clocked=times_parts(watch))
    step = native_step(region.first_op, compiled, list(region.inputs), list(region.outputs), called)
    if watch is not None:
        step.ops = _in_order(block, region.ops)
        step.replay = _replay(step, make_step)
    return step


def times_parts(watch: Watch | None) -> bool:
    """Whether `watch` sees native functions whole, with the times of their steps."""
    return bool(getattr(watch, "times_parts", False))


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


def callback_of(step: PlanStep, watch: Watch | None) -> Callback:
    """`step` for native code to call: a program of its own, so that what it raises has a place."""
    from spmd.backends.llvm.emit.native_ops import Callback  # late, as above

    inputs = list(dict.fromkeys(step.inputs))
    program = emit(Plan(inputs, {}, [step], step.outputs, {}), watch)
    keeps = not step.kernel.owned or not is_pure(step.op)
    return Callback(program, inputs, step.outputs, keeps)
