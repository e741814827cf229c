"""Finds unreduced values: each device holds a partial value, also through loops and branches.

Shardings mark arguments, constraints and values at the boundary of manual computations as unreduced. Ops that only
forward a value (branches, loop state, barriers) forward it unreduced; it is reduced where an op computes with it, or
where a sharding is not unreduced. Source: Shardy's dialect documentation,
"TensorShardingAttr", unreduced axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partitioner.mesh import Axes
from partitioner.program import ImportedProgram
from partitioner.reading import ShardingReader
from partitioner.sharding import Annotation
from spmd.ir import Block, Op, Value

#: The sub-axes over which a value is unreduced, and the op that reduces it.
Unreduced = tuple[Axes, str]


def unreduced_values(program: ImportedProgram, reader: ShardingReader) -> Mapping[Value, Unreduced]:
    """Return the values of `program` that are unreduced."""
    walk = _Walk(program, reader)
    walk.block(program.block)
    return walk.found


class _Walk:
    def __init__(self, program: ImportedProgram, reader: ShardingReader) -> None:
        self.program, self.reader = program, reader
        self.found: dict[Value, Unreduced] = {}

    def block(self, block: Block) -> None:
        for argument in block.arguments:
            self._annotate(argument, self.program.annotations.get(argument))
        for op in block.ops:
            if op.name == "stablehlo.while":
                self._loop(op)
            elif op.name in ("stablehlo.case", "stablehlo.if"):
                for region in op.regions:
                    self.block(region.block)
                self._forward(op.results, *(region.block.terminator.operands for region in op.regions))
            elif op.name == "sdy.manual_computation":
                self._manual(op)
            elif op.name == "stablehlo.optimization_barrier":
                self._forward(op.results, op.operands)
            for result in op.results:
                self._annotate(result, self.program.annotations.get(result))

    def _annotate(self, value: Value, annotation: Annotation | None, manual: frozenset[int] = frozenset()) -> None:
        if annotation is None:
            return
        sharding = annotation.sharding
        axes = tuple(axis for axis in sharding.partial if axis not in manual)
        self.found.pop(value, None)
        if axes and sharding.mesh is self.reader.mesh:
            self.found[value] = axes, sharding.reduction

    def _forward(self, targets: Sequence[Value], *sources: Sequence[Value]) -> None:
        """Mark each target as unreduced if its sources are; a source that is not counts as a partial value."""
        for index, target in enumerate(targets):
            of_sources = {self.found[each[index]] for each in sources if each[index] in self.found}
            self.found.pop(target, None)
            if len(of_sources) == 1:
                (self.found[target],) = of_sources

    def _loop(self, op: Op) -> None:
        """Iterate to a fixed point: loop state is unreduced if the values that the body returns are."""
        condition, body = (region.block for region in op.regions)
        state: Sequence[Value] = op.operands
        for _ in range(len(op.results) + 2):
            before = [self.found.get(value) for value in body.arguments]
            self._forward(body.arguments, state)
            self._forward(condition.arguments, state)
            self.block(body)
            state = body.terminator.operands
            if before == [self.found.get(value) for value in state]:
                break
        self._forward(op.results, state)

    def _manual(self, op: Op) -> None:
        """Mark the results of a manual computation; its body works on partial values along manual sub-axes."""
        body, manual = op.region("body").block, self.reader.manual(op)
        for argument, sharding in zip(body.arguments, op["in_shardings"].shardings, strict=True):
            self._annotate(argument, self.reader.annotation_of(op, sharding, argument.type), manual)
        self.block(body)
        for result, sharding in zip(op.results, op["out_shardings"].shardings, strict=True):
            self._annotate(result, self.reader.annotation_of(op, sharding, result.type))
