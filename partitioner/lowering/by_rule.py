"""The default lowering: ops that compute on blocks as they do on complete arrays."""

from __future__ import annotations

from dataclasses import replace

from partitioner.lowering.assign import Assignment, repair, sharding_of
from partitioner.lowering.core import Lowering, lowers
from partitioner.lowering.partial import forwarded_partial
from partitioner.rules.core import PASS, Rule, is_known, local_rule
from partitioner.rules.elementwise import is_elementwise
from spmd.dialects.sdy_attributes import RULE_NAME
from spmd.ir import AttributeValue, Op, Value
from spmd.types import TensorType


@lowers("")
def by_rule(lowering: Lowering, op: Op) -> None:
    """Lower an op by its factor rule: the same op on blocks."""
    if _lower_in_target_layout(lowering, op):
        return
    rule = local_rule(op)
    pending = forwarded_partial(lowering, op)
    if pending is not None:
        _lower_partial(lowering, op, rule, pending)
        return
    is_strict = rule.is_custom or op.name in ("stablehlo.custom_call", "stablehlo.reshape")
    shared = _shared(rule) if is_strict else None
    assignment = lowering.choose(
        op, rule, lambda factor: rule.kinds[factor] == PASS and (shared is None or factor in shared)
    )
    if not is_known(op) and any(
        any(lowering.current_sharding(value).dimensions) for value in op.operands if _is_tensor(value)
    ):
        lowering.note(op, "it has no sharding rule: every process computes all of it")
    emit_plain(lowering, op, rule, assignment)


def _lower_in_target_layout(lowering: Lowering, op: Op) -> bool:
    """Append an elementwise op if its operands are available in the target layout; return whether they are."""
    if len(op.results) != 1 or not is_elementwise(op) or RULE_NAME in op.discardable:
        return False
    layout = lowering.target_sharding(op.result)
    shape = op.result.tensor.shape
    if layout.partial or not shape:
        return False
    operands = []
    for value in op.operands:
        available = lowering.find_available(value, layout.dimensions if value.tensor.shape == shape else ())
        if available is None:
            return False
        operands.append(available)
    lowering.set(op.result, lowering.clone(op, operands, [layout])[0], layout)
    return True


def _shared(rule: Rule) -> set[int]:
    """Return the factors that both an operand and a result have: those of reshapes and custom calls may be sharded."""
    operands, results = (
        {f for m in side for dimension in m for f in dimension} for side in (rule.operands, rule.results)
    )
    return operands & results


def _is_tensor(value: Value) -> bool:
    return isinstance(value.type, TensorType)


def emit_plain(
    lowering: Lowering, op: Op, rule: Rule, assignment: Assignment, attributes: dict[str, AttributeValue] | None = None
) -> None:
    """Reshard operands to an assignment's layouts, append `op`, and register its results."""
    operands = [
        lowering.get(value, sharding_of(lowering.mesh, mapping, assignment))
        for value, mapping in zip(op.operands, rule.operands, strict=True)
    ]
    layouts = [sharding_of(lowering.mesh, mapping, assignment) for mapping in rule.results]
    locals_ = lowering.clone(op, operands, layouts, attributes)
    filed = [layout if _is_tensor(value) else None for value, layout in zip(op.results, layouts, strict=True)]
    lowering.set_all(op.results, locals_, filed)


def _lower_partial(
    lowering: Lowering, op: Op, rule: Rule, pending: tuple[tuple[int, ...], frozenset[int], str]
) -> None:
    """Lower an op that is linear in partial operands: `pending` names those that stay partial, and over which axes."""
    axes, positions, kind = pending
    free = frozenset(axes)
    shared = _shared(rule) if op.name == "stablehlo.reshape" else set(range(len(rule.sizes)))
    assignment = lowering.choose(op, rule, lambda factor: rule.kinds[factor] == PASS and factor in shared)
    assignment = repair(lowering.mesh, rule, [tuple(axis for axis in cut if axis not in free) for cut in assignment])
    operands = []
    for index, (value, mapping) in enumerate(zip(op.operands, rule.operands, strict=True)):
        layout = sharding_of(lowering.mesh, mapping, assignment)
        if index in positions:
            layout = replace(layout, partial=axes, reduction=kind)
        operands.append(lowering.get(value, layout))
    (mapping,) = rule.results
    layout = replace(sharding_of(lowering.mesh, mapping, assignment), partial=axes, reduction=kind)
    lowering.set(op.result, lowering.clone(op, operands, [layout])[0], layout)
