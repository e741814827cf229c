"""Values that a program holds unreduced: each device has its own share, also behind loops and branches.

A sharding says so of an argument, of a constraint or of a value at the boundary of a manual computation. What only
hands a value on, a branch, a loop's state or a barrier, hands on its shares: they are added up where an op computes
with the value, or where a sharding says that it is not unreduced. Source: Shardy's dialect documentation,
"TensorShardingAttr", unreduced axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partitioner.mesh import Axes
from partitioner.program import Program
from partitioner.reading import ShardingReader
from partitioner.sharding import Annotation
from spmd.ir import Block, Op, Value

#: The sub-axes over which a value is unreduced, and the op that folds its shares.
Unreduced = tuple[Axes, str]


def unreduced_values(program: Program, reader: ShardingReader) -> Mapping[Value, Unreduced]:
    """Return what values of `program` are unreduced over; those that are not are left out."""
    walk = _Walk(program, reader)
    walk.block(program.block)
    return walk.found


class _Walk:
    def __init__(self, program: Program, reader: ShardingReader) -> None:
        self.program, self.reader = program, reader
        self.found: dict[Value, Unreduced] = {}

    def block(self, block: Block) -> None:
        for argument in block.arguments:
            self._said(argument, self.program.annotations.get(argument))
        for op in block.ops:
            if op.name == "stablehlo.while":
                self._loop(op)
            elif op.name in ("stablehlo.case", "stablehlo.if"):
                for region in op.regions:
                    self.block(region.block)
                self._handed_on(op.results, *(region.block.terminator.operands for region in op.regions))
            elif op.name == "sdy.manual_computation":
                self._manual(op)
            elif op.name == "stablehlo.optimization_barrier":
                self._handed_on(op.results, op.operands)
            for result in op.results:
                self._said(result, self.program.annotations.get(result))

    def _said(self, value: Value, annotation: Annotation | None, manual: frozenset[int] = frozenset()) -> None:
        if annotation is None:
            return
        sharding = annotation.sharding
        axes = tuple(axis for axis in sharding.partial if axis not in manual)
        self.found.pop(value, None)
        if axes and sharding.mesh is self.reader.mesh:
            self.found[value] = axes, sharding.reduction

    def _handed_on(self, targets: Sequence[Value], *sources: Sequence[Value]) -> None:
        """Each target is unreduced as its sources are; any of them that is not is a share where others are nothing."""
        for index, target in enumerate(targets):
            of_sources = {self.found[each[index]] for each in sources if each[index] in self.found}
            self.found.pop(target, None)
            if len(of_sources) == 1:
                (self.found[target],) = of_sources

    def _loop(self, op: Op) -> None:
        """The state is unreduced where what the body gives is: until that changes nothing any more."""
        condition, body = (region.block for region in op.regions)
        state: Sequence[Value] = op.operands
        for _ in range(len(op.results) + 2):
            before = [self.found.get(value) for value in body.arguments]
            self._handed_on(body.arguments, state)
            self._handed_on(condition.arguments, state)
            self.block(body)
            state = body.terminator.operands
            if before == [self.found.get(value) for value in state]:
                break
        self._handed_on(op.results, state)

    def _manual(self, op: Op) -> None:
        """Over manual sub-axes the body computes with shares as they are."""
        body, manual = op.region("body").block, self.reader.manual(op)
        for argument, sharding in zip(body.arguments, op["in_shardings"].shardings, strict=True):
            self._said(argument, self.reader.annotation_of(op, sharding, argument.type), manual)
        self.block(body)
        for result, sharding in zip(op.results, op["out_shardings"].shardings, strict=True):
            self._said(result, self.reader.annotation_of(op, sharding, result.type))
