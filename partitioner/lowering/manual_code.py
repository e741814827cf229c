"""Code that is per process already: in manual computations, and between GSPMD's calls into and out of such code.

Source: Shardy's dialect documentation, ManualComputationOp: manual sub-axes lead every dimension, free ones follow.
"""

from __future__ import annotations

from dataclasses import replace

from partitioner.lowering.by_rule import by_rule
from partitioner.lowering.core import Lowering, lowers
from partitioner.manual_values import is_boundary, whole_and_part
from partitioner.mesh import Axes
from partitioner.reshard import nests
from partitioner.sharding import Sharding, replicated
from spmd.dialects.sdy_attributes import TensorSharding
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Op, Value
from spmd.types import TensorType


@lowers("sdy.manual_computation")
def manual_computation(lowering: Lowering, op: Op) -> None:
    """Operands are resharded to `in_shardings`; in the body values are sharded over free sub-axes only."""
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
    with lowering.manual_over(lowering.reader.manual(op), order):
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
    """Return the layouts of a whole value, sharded as `outside` says, and of its part in `op`, cut over `free` axes."""
    annotation = lowering.reader.annotation_of(op, outside, value.type)
    if annotation is None:
        return replicated(lowering.mesh, value.tensor.rank), replicated(lowering.mesh, value.tensor.rank)
    return _layouts(value.tensor, annotation.sharding, free, lowering.reader.manual(op))


@lowers("stablehlo.custom_call")
def custom_call(lowering: Lowering, op: Op) -> None:
    """GSPMD's calls into and out of manual code reshard to the boundary; any other call is lowered by its rule."""
    if not is_boundary(op):
        by_rule(lowering, op)
        return
    outside, inside = whole_and_part(op)
    annotation = lowering.program.annotations.get(outside)
    outer = replicated(lowering.mesh, outside.tensor.rank) if annotation is None else annotation.sharding
    free = lowering.target_sharding(inside).whole()
    whole, part = _layouts(outside.tensor, outer, free, lowering.program.manual.get(inside, frozenset()))
    _check_parts(op, outside, inside, whole, part)
    if inside is op.result:
        lowering.set(inside, lowering.get(outside, whole), replace(part, mesh=lowering.mesh))
    else:
        lowering.set(outside, lowering.get(inside, replace(part, mesh=lowering.mesh)), whole)


def _check_parts(op: Op, outside: Value, inside: Value, whole: Sharding, part: Sharding) -> None:
    """CompileError where the sharding of the whole value leaves a process other parts than the call declares."""
    cuts = zip(outside.tensor.static_shape, whole.dimensions, part.dimensions, strict=True)
    parts = tuple(-(-size // whole.mesh.count(axes[: len(axes) - len(free)])) for size, axes, free in cuts)
    if parts != inside.tensor.static_shape:
        expected = outside.tensor.with_shape(parts)
        text = f"{outside.type}, cut along its manual axes as {whole}, has parts of type {expected}, not {inside.type}"
        raise CompileError(Diagnostic(op.location, text, op.name))


def _layouts(type: TensorType, outer: Sharding, free: Sharding, manual: frozenset[int]) -> tuple[Sharding, Sharding]:
    """Return the layouts of a whole value of `type`, of which `outer` says the manual part, and of its part, cut as
    `free`.

    Free sub-axes cut a dimension where the blocks of its manual blocks are blocks of the whole. What is unreduced over
    manual sub-axes is each process's own share inside.
    """
    whole: list[Axes] = []
    part: list[Axes] = []
    mesh = outer.mesh
    for size, axes, finer in zip(type.static_shape, outer.dimensions, free.dimensions, strict=True):
        leading = tuple(axis for axis in axes if axis in manual)
        following = finer if nests(size, mesh.count(leading), mesh.count(leading + finer)) else ()
        whole.append(leading + following)
        part.append(following)
    of_part = tuple(axis for axis in outer.partial if axis not in manual)
    return (
        Sharding(mesh, tuple(whole), outer.partial, outer.reduction),
        Sharding(mesh, tuple(part), of_part, outer.reduction),
    )
