"""What a unit costs: machine operations, and bytes to and from memory. Read from its nests, or from its op's types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from spmd.analysis.scalar.expression import Expression, walk
from spmd.compiler.schedule.forms import primitive_cost
from spmd.compiler.schedule.fusion import Unit
from spmd.compiler.schedule.nest import Nest, Stage
from spmd.compiler.schedule.units import nests_of
from spmd.ir import Value
from spmd.types import TensorType

DOTS = ("stablehlo.dot_general", "stablehlo.dot")


@dataclass(frozen=True)
class Cost:
    """Operations and bytes of running a unit once."""

    operations: int
    read: int
    written: int

    @property
    def bytes(self) -> int:
        return self.read + self.written

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.operations + other.operations, self.read + other.read, self.written + other.written)


def cost_of_unit(unit: Unit) -> Cost:
    """The cost of `unit`; of loops and branches, that of their operands and results alone."""
    if not unit.fused:
        (op,) = unit.roots
        operations = 0
        if op.name in DOTS:
            operations = 2 * prod(op.result.tensor.static_shape) * _depth(unit)
        return Cost(operations, sum(map(bytes_of, op.operands)), sum(map(bytes_of, op.results)))
    return cost_of_nests(nests_of(unit), [value for op in unit.roots for value in op.results])


def cost_of_nests(nests: Sequence[Nest], results: Sequence[Value]) -> Cost:
    """The cost of running `nests` once, which write `results`."""
    read = {load.value for nest in nests for load in nest.loads()}
    written = sum(_written(nest, value) for nest in nests for value in results)
    return Cost(sum(map(_operations, nests)), sum(_read(nests, value) for value in read), written)


def _depth(unit: Unit) -> int:
    (op,) = unit.roots
    shape = op.operands[0].tensor.shape
    if op.name == "stablehlo.dot":
        return shape[-1] or 1
    return prod(shape[d] or 1 for d in op["dot_dimension_numbers"].lhs_contracting_dimensions)


def bytes_of(value: Value) -> int:
    """Bytes of a tensor of known shape; 0 of anything else."""
    type = value.type
    return type.nbytes if isinstance(type, TensorType) and type.is_static else 0


def _read(nests: Sequence[Nest], value: Value) -> int:
    """Bytes read of `value`: no more than it has, and no more than there are reads."""
    reads = 0
    for nest in nests:
        for stage in nest.stages:
            for load in stage.loads():
                if load.value is value:
                    turns = prod(nest.extents[v] for v, _ in load.address.terms) if not load.address.dynamic else 0
                    reads += (turns or _points(nest, stage)) * max(1, load.type.bits // 8)
    return min(reads, bytes_of(value))


def _written(nest: Nest, value: Value) -> int:
    stored = any(store.value is value for store in nest.stores())
    if stored:
        return bytes_of(value)
    updates = [w for stage in nest.stages for u in stage.updates for w in u.writes if w[0] is value]
    return sum(prod(nest.extents) * max(1, code.type.bits // 8) for _, _, code in updates)


def _points(nest: Nest, stage: Stage) -> int:
    return prod(nest.extents[variable] for variable in stage.loops)


def _operations(nest: Nest) -> int:
    total = 0
    for stage in nest.stages:
        roots: list[Expression] = [store.code for store in stage.stores]
        for reduction in stage.reductions:
            roots += [*reduction.inputs, *reduction.combine]
        for update in stage.updates:
            roots += [code for _, _, code in update.writes]
        total += _points(nest, stage) * sum(primitive_cost(node.primitive) for node in walk(roots))
    return total
