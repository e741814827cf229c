"""Local forms of sdy's ops: constraints are where values change their layout, manual computations are opened."""

from __future__ import annotations

from partitioner.lowering.core import Lowering, lowers
from partitioner.mesh import Axes
from partitioner.sharding import Sharding, replicated
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Op, Value
from spmd.types import TensorType


@lowers("sdy.sharding_constraint", "sdy.reshard")
def constraint(lowering: Lowering, op: Op) -> None:
    value = op.operands[0]
    if not isinstance(value.type, TensorType):
        lowering.set(op.result, lowering.whole(value), None)
        return
    layout = lowering.wanted(op.result)
    lowering.set(op.result, lowering.get(value, layout), layout)


@lowers("sdy.propagation_barrier")
def barrier(lowering: Lowering, op: Op) -> None:
    layout = lowering.have(op.operands[0])
    lowering.set(op.result, lowering.get(op.operands[0], layout), layout)


@lowers("sdy.manual_computation")
def manual_computation(lowering: Lowering, op: Op) -> None:
    """Operands come in the layouts asked for; the body's values are theirs as they are, cut over free atoms only."""
    manual = lowering.reader.manual(op)
    body = op.region("body").block
    for value, argument, given in zip(op.operands, body.arguments, op["in_shardings"].shardings, strict=True):
        if not isinstance(value.type, TensorType):
            lowering.set(argument, lowering.whole(value), None)
            continue
        free = lowering.wanted(argument)
        layout = _with_manual(lowering, given, value, manual, free)
        if layout.mesh is not lowering.mesh and len(manual) < len(lowering.mesh.atoms):
            text = "a computation manual over some axes alone has devices in the order of the program's first mesh"
            raise CompileError(Diagnostic(op.location, text, op.name))
        lowering.set(argument, lowering.get(value, layout), free)
    lowering.ops(body.ops[:-1])
    returned = body.terminator.operands
    for result, value, given in zip(op.results, returned, op["out_shardings"].shardings, strict=True):
        if not isinstance(result.type, TensorType):
            lowering.set(result, lowering.whole(value), None)
            continue
        free = lowering.wanted(value).whole()
        local = lowering.get(value, free)
        lowering.set(result, local, _with_manual(lowering, given, result, manual, free))


def _with_manual(lowering: Lowering, given: object, value: Value, manual: frozenset[int], free: Sharding) -> Sharding:
    """The layout of a whole value, given how its manual part is asked for and how its free part is cut."""
    asked = lowering.reader.annotation(given, value.type)  # type: ignore[arg-type]
    if asked is None:
        return replicated(lowering.mesh, value.tensor.rank)
    dimensions: list[Axes] = []
    for axes, rest in zip(asked.sharding.dimensions, free.dimensions, strict=True):
        dimensions.append(tuple(axis for axis in axes if axis in manual) + rest)
    return Sharding(asked.sharding.mesh, tuple(dimensions))
