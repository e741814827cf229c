"""Lowers ops of a single device, which computes them on replicated operands and broadcasts the results.

These are ops that the program assigns to a device (`maximal device=k`), and calls with side effects in the global
program, which are issued once. Source: Shardy's documentation of its export passes,
sdy-resolve-single-device-sharding; XLA's HloSharding, "maximal".
"""

from __future__ import annotations

from collections.abc import Sequence

from partitioner.lowering.by_rule import by_rule
from partitioner.lowering.core import ON_DEVICE, Lowering, lowers
from partitioner.manual_values import is_boundary
from partitioner.sharding import replicated
from spmd.dialects.core import Trait, has_trait
from spmd.dialects.make import make_op
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Block, Op, Region, Value
from spmd.types import TensorType, TokenType, Type


@lowers(ON_DEVICE)
def on_device(lowering: Lowering, op: Op) -> None:
    """Emit an `if` whose true branch contains `op` and is taken by its device, and broadcast each result."""
    device = lowering.device_of(op)
    assert device is not None
    _check(lowering, op)
    emitter = lowering.emitter
    operands = [lowering.replicated(value) for value in op.operands]
    taken, skipped = Block(), Block()
    outer, emitter.ops = emitter.ops, taken.ops
    _finish(lowering, lowering.clone(op, operands, [None] * len(op.results), types=op.result_types))
    emitter.ops = skipped.ops
    _finish(lowering, [_nothing(lowering, op, type) for type in op.result_types])
    emitter.ops = outer
    regions = [Region([taken]), Region([skipped])]
    chosen = emitter.op("stablehlo.if", [emitter.is_device(device)], op.result_types, regions=regions)
    for value, local in zip(op.results, chosen.results, strict=True):
        if isinstance(value.type, TensorType):
            whole = replicated(lowering.mesh, value.tensor.rank)
            lowering.set(value, emitter.broadcast_from(local, device), whole)
        else:
            lowering.set(value, local, None)


def _check(lowering: Lowering, op: Op) -> None:
    if lowering.manual_around(op):
        text = "an op of a single device must not be in manual code, which every device executes"
        raise CompileError(Diagnostic(op.location, text, op.name))
    for inner in op.walk():
        if inner.name == "sdy.manual_computation" or is_boundary(inner) or has_trait(inner, Trait.COLLECTIVE):
            text = f"an op of a single device must not contain {inner.name}, which involves all devices"
            raise CompileError(Diagnostic(inner.location, text, op.name))


def _finish(lowering: Lowering, results: Sequence[Value]) -> None:
    emitter = lowering.emitter
    emitter.ops.append(make_op("stablehlo.return", results, location=emitter.location))


def _nothing(lowering: Lowering, op: Op, type: Type) -> Value:
    """Return a placeholder for a result of `op` on other devices, which is never read."""
    if isinstance(type, TensorType):
        return lowering.emitter.splat(0, type)
    if isinstance(type, TokenType):
        return lowering.emitter.one("create_token", (), type)
    text = f"the results of an op on a single device are sent to the others, which is not possible for type {type}"
    raise CompileError(Diagnostic(op.location, text, op.name))


@lowers("stablehlo.partition_id", "stablehlo.replica_id")
def process_id(lowering: Lowering, op: Op) -> None:
    """Lower a process id in manual code; raise CompileError in the global program.

    Ids that all processes of the mesh share (replica_id if devices are partitions) are valid anywhere.
    """
    processes = lowering.emitter.processes
    differs = "stablehlo.replica_id" if processes.by_replica else "stablehlo.partition_id"
    manual = lowering.manual_around(op)
    if op.name == differs and lowering.mesh.size > 1 and len(manual) < len(lowering.mesh.sub_axes):
        runs = lowering.mesh.runs([axis for axis in range(len(lowering.mesh.sub_axes)) if axis not in manual])
        free = ", ".join(f'"{run.name}"' for run in runs)
        text = (
            "must be in code that is manual over all axes of the mesh, or in an op of one device, since it differs "
            f"between devices: axes {free} are not manual"
        )
        raise CompileError(Diagnostic(op.location, text, op.name))
    by_rule(lowering, op)
