"""A block as a flat list of steps, and what is known of its buffers.

Each value of the block is a slot. Liveness says where a slot is used last; ownership says which memory a value stands
on: `roots` of a value are the values whose buffers it may share. A buffer may be overwritten by a step when it is
fresh (made by a step here, or a parameter the caller gave away), when nothing that shares it is used later, and when
the step's kernel allows it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from spmd.backends.numpy.core import Kernel
from spmd.ir import Op, Value
from spmd.types import TensorType


def static_shape(value: Value) -> tuple[int, ...] | None:
    """The shape of a tensor whose sizes are all known; None of anything else."""
    type = value.type
    return type.static_shape if isinstance(type, TensorType) and type.is_static else None


@dataclass(slots=True)
class Step:
    """One op of the flat program: its kernel, input and output values, and where its result may be written.

    `out` is the input whose buffer the result takes over; `frees` the values that nobody needs after this step.
    """

    op: Op
    kernel: Kernel
    inputs: list[Value]
    outputs: list[Value]
    out: Value | None = None
    frees: list[Value] = field(default_factory=list)


@dataclass(slots=True)
class Plan:
    """The steps of a block.

    `parameters` are block arguments, then captured values. `overwrites` are indices of parameters whose memory the
    program writes into; only parameters that the caller offered (`donated`) are ever among them.
    """

    parameters: list[Value]
    constants: dict[Value, object]
    steps: list[Step]
    results: list[Value]
    roots: dict[Value, frozenset[Value]]
    overwrites: frozenset[int] = frozenset()


def plan_buffers(plan: Plan, donated: frozenset[int] = frozenset()) -> None:
    """Fills in `roots`, `frees`, `out` and `overwrites`. `donated`: parameters whose buffers may be overwritten."""
    given = {value for index, value in enumerate(plan.parameters) if index in donated}
    fresh = fresh_values(plan) | given
    last_use = _last_uses(plan, _roots_without_reuse(plan))
    roots = _roots_of_given(plan)
    written: set[Value] = set()
    for index, step in enumerate(plan.steps):
        step.out = _reusable(step, index, roots, fresh, last_use)
        if step.out is None:
            _add_roots(step, roots)
            continue
        # The result stands on the operand's buffer, and so does all that will be a view of it.
        (result,) = step.outputs
        roots[result] = roots[step.out]
        for root in roots[result]:
            last_use[root] = max(last_use[root], last_use.get(result, index))
        written |= roots[result] & given
    plan.roots = roots
    _find_frees(plan)
    plan.overwrites = frozenset(index for index, value in enumerate(plan.parameters) if value in written)


def _roots_of_given(plan: Plan) -> dict[Value, frozenset[Value]]:
    return {value: frozenset((value,)) for value in (*plan.parameters, *plan.constants)}


def _roots_without_reuse(plan: Plan) -> dict[Value, frozenset[Value]]:
    roots = _roots_of_given(plan)
    for step in plan.steps:
        _add_roots(step, roots)
    return roots


def _add_roots(step: Step, roots: dict[Value, frozenset[Value]]) -> None:
    """The memory that the results of `step` stand on when none is written over an operand."""
    shared = frozenset().union(*(roots[step.inputs[index]] for index in step.kernel.aliases))
    for value in step.outputs:
        roots[value] = shared or frozenset((value,))


def fresh_values(plan: Plan) -> set[Value]:
    """Values that steps of the plan make in memory of their own."""
    return {value for step in plan.steps if step.kernel.owned and not step.kernel.aliases for value in step.outputs}


def _last_uses(plan: Plan, roots: dict[Value, frozenset[Value]]) -> dict[Value, int]:
    """The last step at which each root's memory is read; one past the end for what the program returns."""
    last: dict[Value, int] = {}
    for index, step in enumerate(plan.steps):
        for value in step.inputs:
            for root in roots[value]:
                last[root] = index
    for value in plan.results:
        for root in roots[value]:
            last[root] = len(plan.steps)
    return last


def _reusable(
    step: Step, index: int, roots: dict[Value, frozenset[Value]], fresh: set[Value], last_use: dict[Value, int]
) -> Value | None:
    kernel = step.kernel
    if not kernel.accepts_out or not kernel.reuses or len(step.outputs) != 1:
        return None
    wanted = step.outputs[0].type
    if not isinstance(wanted, TensorType) or not wanted.is_static or wanted.rank == 0:
        return None
    for position in kernel.reuses:
        value = step.inputs[position]
        if not isinstance(value.type, TensorType) or value.type.shape != wanted.shape:
            continue
        if value.type.dtype != wanted.dtype or not is_whole(value, roots, fresh):
            continue
        (root,) = roots[value]
        if last_use.get(root, -1) > index:
            continue
        others = [other for k, other in enumerate(step.inputs) if k != position]
        if any(root in roots[other] for other in others if other is not value):
            continue
        if value in others and not kernel.pointwise:
            continue
        return value
    return None


def is_whole(value: Value, roots: dict[Value, frozenset[Value]], fresh: set[Value]) -> bool:
    """Whether `value` is the whole of one buffer that belongs to this program."""
    standing_on = roots[value]
    if len(standing_on) != 1:
        return False
    (root,) = standing_on
    return root in fresh and (root is value or value in fresh)


def _find_frees(plan: Plan) -> None:
    needed = set(plan.results) | set(plan.constants)
    for step in reversed(plan.steps):
        step.frees = []
        for value in dict.fromkeys([*step.inputs, *step.outputs]):
            if value not in needed:
                needed.add(value)
                step.frees.append(value)
