"""Code that is a process's own already: in manual computations, and between GSPMD's calls into and out of such code.

Source: Shardy's dialect documentation, ManualComputationOp: manual sub-axes lead every dimension, free ones follow.
"""

from __future__ import annotations

from dataclasses import replace

from partitioner.lowering.by_rule import by_rule
from partitioner.lowering.core import Lowering, lowers
from partitioner.mesh import Axes
from partitioner.reshard import nests
from partitioner.sharding import Sharding, replicated
from spmd.analysis.shardings import TO_FULL_CALL, TO_SHARD_CALL
from spmd.dialects.sdy_attributes import TensorSharding
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Op, Value
from spmd.types import TensorType


@lowers("sdy.manual_computation")
def manual_computation(lowering: Lowering, op: Op) -> None:
    """Operands come in the layouts asked for; the body's values are theirs as they are, cut over free sub-axes only."""
    order = lowering.reader.order(op)
    if order is not lowering.mesh and lowering.mesh is not lowering.reader.mesh:
        text = "a computation that is manual inside of another one runs on the devices in its order"
        raise CompileError(Diagnostic(op.location, text, op.name))
    body = op.region("body").block
    taken: list[tuple[Value, Value, Sharding | None]] = []
    for value, argument, outside in zip(op.operands, body.arguments, op["in_shardings"].shardings, strict=True):
        if not isinstance(value.type, TensorType):
            taken.append((argument, lowering.whole(value), None))
            continue
        whole, part = _boundary(lowering, op, outside, value, lowering.target_sharding(argument))
        taken.append((argument, lowering.get(value, whole), part))
    returned: list[tuple[Value, Value, Sharding | None]] = []
    with lowering.in_order_of(order):
        for argument, local, layout in taken:
            lowering.set(argument, local, layout)
        lowering.ops(body.ops[:-1])
        for result, value, outside in zip(
            op.results, body.terminator.operands, op["out_shardings"].shardings, strict=True
        ):
            if not isinstance(result.type, TensorType):
                returned.append((result, lowering.whole(value), None))
                continue
            whole, part = _boundary(lowering, op, outside, result, lowering.target_sharding(value).whole())
            returned.append((result, lowering.get(value, part), whole))
    for result, local, layout in returned:
        lowering.set(result, local, layout)


def _boundary(
    lowering: Lowering, op: Op, outside: TensorSharding, value: Value, free: Sharding
) -> tuple[Sharding, Sharding]:
    """The layouts of a whole value, sharded as `outside` says, and of its part in `op`, cut over `free` axes."""
    annotation = lowering.reader.annotation_of(op, outside, value.type)
    if annotation is None:
        return replicated(lowering.mesh, value.tensor.rank), replicated(lowering.mesh, value.tensor.rank)
    return _layouts(value.tensor, annotation.sharding, free, lowering.reader.manual(op))


@lowers("stablehlo.custom_call")
def custom_call(lowering: Lowering, op: Op) -> None:
    target = op["call_target_name"]
    if target not in (TO_SHARD_CALL, TO_FULL_CALL):
        by_rule(lowering, op)
        return
    manual = lowering.reader.manual_call(op)
    if target == TO_SHARD_CALL:
        outer = _annotated_layout(lowering, op.operands[0])
        whole, part = _layouts(op.operands[0].tensor, outer, lowering.target_sharding(op.result), manual)
        lowering.set(op.result, lowering.get(op.operands[0], whole), replace(part, mesh=lowering.mesh))
    else:
        free = lowering.target_sharding(op.operands[0]).whole()
        whole, part = _layouts(op.result.tensor, _annotated_layout(lowering, op.result), free, manual)
        lowering.set(op.result, lowering.get(op.operands[0], replace(part, mesh=lowering.mesh)), whole)


def _annotated_layout(lowering: Lowering, value: Value) -> Sharding:
    """The layout of a value, over devices in the order of the mesh that the program names for it."""
    annotation = lowering.program.annotations.get(value)
    target = lowering.target_sharding(value)
    return target if annotation is None else replace(target, mesh=annotation.sharding.mesh)


def _layouts(type: TensorType, outer: Sharding, free: Sharding, manual: frozenset[int]) -> tuple[Sharding, Sharding]:
    """The layouts of a whole value of `type`, of which `outer` says the manual part, and of its part, cut as `free`.

    Free sub-axes cut a dimension where the blocks of its manual blocks are blocks of the whole.
    """
    whole: list[Axes] = []
    part: list[Axes] = []
    mesh = outer.mesh
    for size, axes, finer in zip(type.static_shape, outer.dimensions, free.dimensions, strict=True):
        leading = tuple(axis for axis in axes if axis in manual)
        following = finer if nests(size, mesh.count(leading), mesh.count(leading + finer)) else ()
        whole.append(leading + following)
        part.append(following)
    return Sharding(mesh, tuple(whole)), Sharding(mesh, tuple(part))
