"""Resolves process ids read by ops of a single device to that device's id.

Shardy keeps partition_id, so that each device computes with its own id; an op of a single device must read what that
device computes. Source: Shardy's documentation of its export passes, sdy-resolve-single-device-sharding.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from spmd.ir import Block, Op, Value

_IDS = frozenset(("stablehlo.partition_id", "stablehlo.replica_id"))


def resolve_device_ids(
    block: Block, devices: dict[Op, int], laid_out: Container[Value], has_effects: Callable[[Op], bool]
) -> None:
    """Clone the ops that compute device ids for each op of a single device in `block`, on its device.

    Only ops without regions, effects and layouts (`laid_out`) are cloned; the clones are added to `devices`.
    """
    of_ids: dict[Op, None] = {}
    ops: list[Op] = []
    for op in block.ops:
        operands_hold_ids = any(value.defining_op in of_ids for value in op.operands)
        if op in devices:
            if operands_hold_ids:
                ops += _copied(op, of_ids, devices)
        elif any(result in laid_out for result in op.results):
            pass  # has a layout
        elif op.name in _IDS or (operands_hold_ids and not op.regions and not has_effects(op)):
            of_ids[op] = None
        ops.append(op)
    block.ops[:] = ops


def _copied(op: Op, of_ids: Iterable[Op], devices: dict[Op, int]) -> list[Op]:
    """Clone those of `of_ids` that `op` depends on for its device, in order, and make `op` use the clones."""
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
