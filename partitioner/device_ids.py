"""Ids of processes that ops of a single device read: there an id is the device's own.

Shardy leaves partition_id as it is, so that each device computes with its own id; of that, what an op of a single
device reads is what its device has. Source: Shardy's documentation of its export passes,
sdy-resolve-single-device-sharding.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from spmd.ir import Block, Op, Value

_IDS = frozenset(("stablehlo.partition_id", "stablehlo.replica_id"))


def give_ids(
    block: Block, devices: dict[Op, int], laid_out: Container[Value], has_effects: Callable[[Op], bool]
) -> None:
    """Give each op of a single device in `block` copies, on its device, of the ops by which its operands hold an id.

    Copied are ops without regions, effects and layouts of their own (values in `laid_out`); `devices` gains the copies.
    """
    of_ids: dict[Op, None] = {}
    ops: list[Op] = []
    for op in block.ops:
        operands_hold_ids = any(value.defining_op in of_ids for value in op.operands)
        if op in devices:
            if operands_hold_ids:
                ops += _copied(op, of_ids, devices)
        elif any(result in laid_out for result in op.results):
            pass  # it has a layout of its own
        elif op.name in _IDS or (operands_hold_ids and not op.regions and not has_effects(op)):
            of_ids[op] = None
        ops.append(op)
    block.ops[:] = ops


def _copied(op: Op, of_ids: Iterable[Op], devices: dict[Op, int]) -> list[Op]:
    """Copy for the device of `op` of those `of_ids` that it reads, in order; `op` reads them from here on."""
    chain: list[Op] = []
    read = {value.defining_op for value in op.operands}
    for maker in reversed(list(of_ids)):
        if maker in read:
            chain.append(maker)
            read.update(value.defining_op for value in maker.operands)
    copies: list[Op] = []
    values: dict[Value, Value] = {}
    for maker in reversed(chain):
        clone = maker.clone([values.get(value, value) for value in maker.operands])
        values.update(zip(maker.results, clone.results, strict=True))
        devices[clone] = devices[op]
        copies.append(clone)
    op.replace_operands(values)
    return copies
