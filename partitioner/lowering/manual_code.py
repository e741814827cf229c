"""Lowers per-process code: manual computations, and code between GSPMD's calls into and out of it.

Source: Shardy's dialect documentation, ManualComputationOp: manual sub-axes are major to free ones in every dimension.
"""

from __future__ import annotations

from dataclasses import replace

from partitioner.lowering.by_rule import by_rule
from partitioner.lowering.core import Lowering, lowers
from partitioner.manual_values import global_and_local, is_boundary
from partitioner.mesh import Axes
from partitioner.reshard import nests
from partitioner.sharding import Sharding, replicated
from spmd.dialects.sdy_attributes import TensorSharding
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Op, Value
from spmd.types import TensorType


@lowers("sdy.manual_computation")
def manual_computation(lowering: Lowering, op: Op) -> None:
    """Lower a manual computation: operands are resharded to `in_shardings`, the body is sharded over free sub-axes."""
    order = lowering.reader.order(op)
    if order is not lowering.mesh and lowering.mesh is not lowering.reader.mesh:
        text = "a nested manual computation must have the device order of the outer one"
        raise CompileError(Diagnostic(op.location, text, op.name))
    body = op.region("body").block
    taken: list[tuple[Value, Value, Sharding | None]] = []
    for value, argument, outside in zip(op.operands, body.arguments, op["in_shardings"].shardings, strict=True):
        if not isinstance(value.type, TensorType):
            taken.append((argument, lowering.replicated(value), None))
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
                returned.append((result, lowering.replicated(value), None))
                continue
            whole, part = _boundary(lowering, op, outside, result, lowering.target_sharding(value).without_partial())
            returned.append((result, lowering.get(value, part), whole))
    for result, local, layout in returned:
        lowering.set(result, local, layout)


def _boundary(
    lowering: Lowering, op: Op, outside: TensorSharding, value: Value, free: Sharding
) -> tuple[Sharding, Sharding]:
    """Return the layouts of a global value, sharded as `outside`, and of its per-process value, as `free`."""
    annotation = lowering.reader.annotation_of(op, outside, value.type)
    if annotation is None:
        return replicated(lowering.mesh, value.tensor.rank), replicated(lowering.mesh, value.tensor.rank)
    return _layouts(value.tensor, annotation.sharding, free, lowering.reader.manual(op))


@lowers("stablehlo.custom_call")
def custom_call(lowering: Lowering, op: Op) -> None:
    """Lower GSPMD's calls into and out of manual code as reshards to the boundary, and any other call by its rule."""
    if not is_boundary(op):
        by_rule(lowering, op)
        return
    outside, inside = global_and_local(op)
    annotation = lowering.program.annotations.get(outside)
    outer = replicated(lowering.mesh, outside.tensor.rank) if annotation is None else annotation.sharding
    free = lowering.target_sharding(inside).without_partial()
    whole, part = _layouts(outside.tensor, outer, free, lowering.program.manual.get(inside, frozenset()))
    _check_parts(op, outside, inside, whole, part)
    if inside is op.result:
        lowering.set(inside, lowering.get(outside, whole), replace(part, mesh=lowering.mesh))
    else:
        lowering.set(outside, lowering.get(inside, replace(part, mesh=lowering.mesh)), whole)


def _check_parts(op: Op, outside: Value, inside: Value, whole: Sharding, part: Sharding) -> None:
    """Raise CompileError if the per-process type that the sharding gives is not the type that the call declares."""
    cuts = zip(outside.tensor.static_shape, whole.dimensions, part.dimensions, strict=True)
    parts = tuple(-(-size // whole.mesh.count(axes[: len(axes) - len(free)])) for size, axes, free in cuts)
    if parts != inside.tensor.static_shape:
        expected = outside.tensor.with_shape(parts)
        text = f"{outside.type}, sharded along manual axes as {whole}, needs blocks of {expected}, got {inside.type}"
        raise CompileError(Diagnostic(op.location, text, op.name))


def _layouts(type: TensorType, outer: Sharding, free: Sharding, manual: frozenset[int]) -> tuple[Sharding, Sharding]:
    """Return the layouts of a global value of `type`, with the manual axes of `outer`, and of its per-process value.

    The latter has the `free` sub-axes of a dimension if its blocks are also blocks of the global value. A value that is
    unreduced over manual sub-axes is the process's partial value inside.
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
