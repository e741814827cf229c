"""Code generation for plans: one Python function of straight-line calls over local variables.

Local variables are CPython's cheapest slots, so that the overhead of a step is some tens of nanoseconds. Each step is
on a line of its own, by which an exception in a kernel is mapped to its op (`locate`). A watched program runs the same
steps through the watcher.

Results are checked against their declared types once, immediately, so that later steps can rely on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from spmd.backends.kernels import Program
from spmd.compiler.plan.result_checks import ResultCheck, is_proven, result_checks
from spmd.compiler.plan.steps import Plan, PlanStep
from spmd.compiler.schedule.watching import ScheduledUnit, UnitRun, Watch
from spmd.ir import Op, Value
from spmd.support.arrays import Array, Results

_FILE = "<spmd program>"
#: The global variable that holds the ops: line 2 + i belongs to entry i.
_OPS = "ops"


def emit(plan: Plan, watch: Watch | None = None, *, checked: bool = True) -> Program:
    """Return the program of `plan`: `program(process, *parameters) -> tuple of results`.

    `checked`: an ExecutionError names the op if a result is not of its declared type.
    """
    names: dict[Value, str] = {}
    namespace: dict[str, Any] = {}
    for index, value in enumerate(plan.parameters):
        names[value] = f"a{index}"
    for index, (value, constant) in enumerate(plan.constants.items()):
        names[value] = f"c{index}"
        namespace[f"c{index}"] = constant
    lines = [f"def program({', '.join(['process', *(names[value] for value in plan.parameters)])}):"]
    for index, step in enumerate(plan.steps):
        call = f"k{index}"
        namespace[call] = _watched(step, watch) if watch else step.kernel.call
        line = _line(step, call, names)
        checks = result_checks(step.op, step.outputs) if checked and not is_proven(step) else {}
        for number, value in enumerate(step.outputs):
            if value in checks:
                line += ";" + _check(checks[value], f"{index}_{number}", names[value], namespace)
        lines.append(" " + line + _frees(step, names))
    lines.append(f" return ({''.join(names[value] + ',' for value in plan.results)})")
    namespace[_OPS] = [step.op for step in plan.steps]
    exec(compile("\n".join(lines), _FILE, "exec"), namespace)
    program: Program = namespace["program"]
    return program


def _line(step: PlanStep, call: str, names: dict[Value, str]) -> str:
    """Return the call of `step`, and add names of its outputs to `names`.

    An output takes the name of a dead input if there is one, which assignment then frees.
    """
    arguments = (["process"] if step.kernel.needs_process else []) + [names[value] for value in step.inputs]
    if step.out is not None:
        arguments.append(f"out={names[step.out]}")
    free = [names[value] for value in step.frees if value not in step.outputs]
    for value in step.outputs:
        names[value] = free.pop() if free else f"v{len(names)}"
    text = f"{call}({', '.join(arguments)})"
    if len(step.outputs) == 1:
        text = f"{names[step.outputs[0]]}={text}"
    elif step.outputs:
        text = f"{','.join(names[value] for value in step.outputs)}={text}"
    if free:
        text += f";del {','.join(free)}"
    return text


def _frees(step: PlanStep, names: Mapping[Value, str]) -> str:
    """Return the statement that deletes dead results of `step`."""
    free = [names[value] for value in step.frees if value in step.outputs]
    return f";del {','.join(free)}" if free else ""


def _check(check: ResultCheck, label: str, name: str, namespace: dict[str, Any]) -> str:
    """Return an expression that fails if variable `name` violates `check`: static shapes are compared inline."""
    fail = f"f{label}"
    namespace[fail] = check.call
    if check.shape is None:
        return f"{fail}({name})"
    namespace[f"t{label}"], namespace[f"d{label}"] = check.shape, check.dtype
    return f"{name}.shape==t{label} and {name}.dtype is d{label} or {fail}({name})"


def _watched(step: PlanStep, watch: Watch) -> Callable[..., Results]:
    call, replay = step.kernel.call, step.replay
    unit = ScheduledUnit(step.ops or (step.op,), tuple(step.inputs), tuple(step.outputs), step.clock)

    def watched(*arguments: Array, **keywords: object) -> Results:
        results: Results = watch(unit, UnitRun(call, arguments, keywords, replay))
        return results

    return watched


def locate(traceback: TracebackType | None) -> Op | None:
    """Return the op that was running when an exception was raised: the innermost program line in `traceback`."""
    op = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == _FILE:
            ops = traceback.tb_frame.f_globals[_OPS]
            if 0 <= traceback.tb_lineno - 2 < len(ops):
                op = ops[traceback.tb_lineno - 2]
        traceback = traceback.tb_next
    return op
