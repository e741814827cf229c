"""Plans: a block as a flat list of steps, with liveness, alias sets and buffer reuse.

Each value is a slot. The alias set of a value holds the values whose buffers it may share. A step may overwrite a
buffer that is fresh (allocated by a step, or donated), whose aliases are all dead, if its kernel supports that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from spmd.backends.kernels import Kernel
from spmd.backends.native import NativeCode, NativeFunction
from spmd.compiler.schedule.watching import Clock
from spmd.ir import Op, Value
from spmd.support.arrays import Results
from spmd.types import TensorType


def static_shape(value: Value) -> tuple[int, ...] | None:
    """Return the shape of a tensor of static shape; None for anything else."""
    type = value.type
    return type.static_shape if isinstance(type, TensorType) and type.is_static else None


@dataclass(frozen=True, slots=True)
class NativePart:
    """The code of a native function, the ops that it calls back, and its entry point for callers without Python."""

    code: NativeCode
    called: tuple[Op, ...]
    function: NativeFunction | None


@dataclass(slots=True)
class PlanStep:
    """One op of the flat program, or several: kernel, inputs and outputs, and buffer reuse.

    `ops` are all that the kernel runs, if not `op` alone; `clock` and `replay` serve watchers, `native` the cache.
    `out` is the input whose buffer the result overwrites; `frees` the values that are dead after this step.
    """

    op: Op
    kernel: Kernel
    inputs: list[Value]
    outputs: list[Value]
    out: Value | None = None
    frees: list[Value] = field(default_factory=list)
    ops: tuple[Op, ...] = ()
    clock: Clock | None = None
    replay: Callable[..., Iterator[tuple[Op, Results]]] | None = None
    native: NativePart | None = None


@dataclass(slots=True)
class Plan:
    """The steps of a block.

    `parameters` are block arguments, then captured values. `donated` are the indices of parameters whose memory may be
    overwritten, `overwrites` of those that are.
    """

    parameters: list[Value]
    constants: dict[Value, object]
    steps: list[PlanStep]
    results: list[Value]
    alias_sets: dict[Value, frozenset[Value]]
    overwrites: frozenset[int] = frozenset()
    donated: frozenset[int] = frozenset()


def plan_buffers(plan: Plan, donated: frozenset[int] = frozenset()) -> None:
    """Fill in `alias_sets`, `frees`, `out` and `overwrites`. `donated`: parameters whose buffers may be overwritten."""
    plan.donated = donated
    donated_arguments = {value for index, value in enumerate(plan.parameters) if index in donated}
    fresh = fresh_values(plan) | donated_arguments
    last_use = _last_uses(plan, _alias_sets_without_reuse(plan))
    alias_sets = _own_alias_sets(plan)
    written: set[Value] = set()
    for index, step in enumerate(plan.steps):
        step.out = _reusable(step, index, alias_sets, fresh, last_use)
        if step.out is None:
            _add_alias_sets(step, alias_sets)
            written.update(*(alias_sets[step.inputs[k]] & donated_arguments for _, k in step.kernel.overwrites))
            continue
        # The result, and all later views of it, are in the operand's buffer.
        (result,) = step.outputs
        alias_sets[result] = alias_sets[step.out]
        for buffer in alias_sets[result]:
            last_use[buffer] = max(last_use[buffer], last_use.get(result, index))
        written |= alias_sets[result] & donated_arguments
    plan.alias_sets = alias_sets
    _find_frees(plan)
    plan.overwrites = frozenset(index for index, value in enumerate(plan.parameters) if value in written)


def _own_alias_sets(plan: Plan) -> dict[Value, frozenset[Value]]:
    return {value: frozenset((value,)) for value in (*plan.parameters, *plan.constants)}


def _alias_sets_without_reuse(plan: Plan) -> dict[Value, frozenset[Value]]:
    alias_sets = _own_alias_sets(plan)
    for step in plan.steps:
        _add_alias_sets(step, alias_sets)
    return alias_sets


def _add_alias_sets(step: PlanStep, alias_sets: dict[Value, frozenset[Value]]) -> None:
    """Add the alias sets of the results of `step` if it reuses no operand."""
    shared = frozenset().union(*(alias_sets[step.inputs[index]] for index in step.kernel.aliases))
    for value in step.outputs:
        alias_sets[value] = shared or frozenset((value,))
    for result, operand in step.kernel.overwrites:
        alias_sets[step.outputs[result]] = alias_sets[step.inputs[operand]]


def fresh_values(plan: Plan) -> set[Value]:
    """Return the values that steps allocate."""
    return {value for step in plan.steps if step.kernel.owned and not step.kernel.aliases for value in step.outputs}


def _last_uses(plan: Plan, alias_sets: dict[Value, frozenset[Value]]) -> dict[Value, int]:
    """Return the last step that reads each buffer; one past the end for results."""
    last: dict[Value, int] = {}
    for index, step in enumerate(plan.steps):
        for value in step.inputs:
            for buffer in alias_sets[value]:
                last[buffer] = index
    for value in plan.results:
        for buffer in alias_sets[value]:
            last[buffer] = len(plan.steps)
    return last


def _reusable(
    step: PlanStep, index: int, alias_sets: dict[Value, frozenset[Value]], fresh: set[Value], last_use: dict[Value, int]
) -> Value | None:
    kernel = step.kernel
    if not kernel.accepts_out or not kernel.reuses or len(step.outputs) != 1:
        return None
    result_type = step.outputs[0].type
    if not isinstance(result_type, TensorType) or not result_type.is_static or result_type.rank == 0:
        return None
    for position in kernel.reuses:
        value = step.inputs[position]
        if not isinstance(value.type, TensorType) or value.type.shape != result_type.shape:
            continue
        if value.type.dtype != result_type.dtype or not is_whole(value, alias_sets, fresh):
            continue
        (buffer,) = alias_sets[value]
        if last_use.get(buffer, -1) > index:
            continue
        others = [other for k, other in enumerate(step.inputs) if k != position]
        if any(buffer in alias_sets[other] for other in others if other is not value):
            continue
        if value in others and not kernel.pointwise:
            continue
        return value
    return None


def shared_results(plan: Plan) -> frozenset[int]:
    """Return positions of results whose memory has another owner: the caller, a constant, a custom call, or an earlier
    result.
    """
    held: set[Value] = {*plan.parameters, *plan.constants} - {plan.parameters[index] for index in plan.donated}
    held |= {value for step in plan.steps if not step.kernel.owned for value in step.outputs}
    shared = set()
    for index, value in enumerate(plan.results):
        if plan.alias_sets[value] & held:
            shared.add(index)
        held |= plan.alias_sets[value]
    return frozenset(shared)


def is_whole(value: Value, alias_sets: dict[Value, frozenset[Value]], fresh: set[Value]) -> bool:
    """Return whether `value` is a whole buffer that this program owns."""
    if len(alias_sets[value]) != 1:
        return False
    (buffer,) = alias_sets[value]
    return buffer in fresh and (buffer is value or value in fresh)


def _find_frees(plan: Plan) -> None:
    needed = set(plan.results) | set(plan.constants)
    for step in reversed(plan.steps):
        step.frees = []
        for value in dict.fromkeys([*step.inputs, *step.outputs]):
            if value not in needed:
                needed.add(value)
                step.frees.append(value)
