"""Plans from schedules: a native function per region, a kernel per op that Python runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from spmd.analysis.constants import constant_array
from spmd.backends.kernels import Kernel
from spmd.backends.native import Callback, CompiledRegion, NativeBackend
from spmd.backends.refusals import naming
from spmd.compiler.plan.emit import emit
from spmd.compiler.plan.steps import NativePart, Plan, PlanStep
from spmd.compiler.schedule.schedule import NativeRegion, Schedule
from spmd.compiler.schedule.steps import KernelCall
from spmd.compiler.schedule.watching import Watch
from spmd.dialects.core import is_pure
from spmd.ir import Block, Op, Value
from spmd.support.arrays import Results

MakeStep = Callable[[Op], PlanStep]


def plan_steps(
    schedule: Schedule, backend: NativeBackend | None, make_step: MakeStep, watch: Watch | None = None
) -> list[PlanStep]:
    """Return the steps of `schedule`, compiling regions with `backend`; `make_step` makes the step of one op.

    `watch` is called around callbacks, and either around each region or with the timings of its steps.
    """
    steps = []
    for entry in schedule.entries:
        if isinstance(entry, KernelCall):
            steps.append(make_step(entry.op))
        else:
            assert backend is not None, "a schedule without a target has no regions"
            steps.append(_region_step(schedule.block, entry, backend, make_step, watch))
    return steps


def _region_step(
    block: Block, region: NativeRegion, backend: NativeBackend, make_step: MakeStep, watch: Watch | None
) -> PlanStep:
    called: list[Op] = []

    def call_back(op: Op) -> Callback:
        called.append(op)
        return callback_of(make_step(op), watch)

    with naming(region.ops):
        compiled = backend.compile(region, call_back, clocked=times_parts(watch))
        step = native_step(backend, region.first_op, compiled, list(region.inputs), list(region.outputs), called)
    if watch is not None:
        step.ops = _in_order(block, region.ops)
        step.replay = _replay(step, make_step)
    return step


def times_parts(watch: Watch | None) -> bool:
    """Return whether `watch` sees native functions as a whole, with the timings of their steps."""
    return bool(getattr(watch, "times_parts", False))


def native_step(
    backend: NativeBackend,
    op: Op,
    compiled: CompiledRegion,
    inputs: list[Value],
    outputs: list[Value],
    called: Sequence[Op],
) -> PlanStep:
    """Return the native function as a step in the position of `op`; `called` are the ops called back."""
    loaded = backend.load(compiled)
    kernel = Kernel(
        loaded.call, needs_process=loaded.needs_process, overwrites=loaded.overwrites, is_native=loaded.is_plain
    )
    native = NativePart(compiled.code, tuple(called), loaded.function)
    return PlanStep(op, kernel, inputs, outputs, clock=compiled.clock, native=native)


def _in_order(block: Block, ops: Sequence[Op]) -> tuple[Op, ...]:
    """Return the distinct `ops` in the order of `block`."""
    members = set(ops)
    return tuple(op for op in block.ops if op in members)


def _replay(unit: PlanStep, make_step: MakeStep) -> Callable[..., Iterator[tuple[Op, Results]]] | None:
    """Return a function that runs the ops of `unit` one by one on its arguments; None if they have effects."""
    if not all(is_pure(inner) for op in unit.ops for inner in op.walk()):
        return None

    def replay(*arguments: Results) -> Iterator[tuple[Op, Results]]:
        # The process is the first argument if an op needs it, else unused.
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
    """Return `step` as a callback of native code: a program of its own, so that errors have a location."""
    inputs = list(dict.fromkeys(step.inputs))
    program = emit(Plan(inputs, {}, [step], step.outputs, {}), watch)
    keeps = not step.kernel.owned or not is_pure(step.op)
    return Callback(program, inputs, step.outputs, keeps)
