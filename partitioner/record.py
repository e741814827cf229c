"""What a partitioning decided and why: which op gave each value its axes, and which use made a resharding needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from partitioner.mesh import Axes, DeviceMesh
from partitioner.sharding import Sharding
from spmd.ir import Op, Value

if TYPE_CHECKING:
    from partitioner.graph import Graph, PropagationEdge, Spec
    from partitioner.program import Program


@dataclass(frozen=True, eq=False)
class Growth:
    """Propagation cut `dimension` of `spec` along `axes`, as dimension `source_dimension` of `source` is.

    `edge` is the op, or the edge of data flow, whose factor `factor` both dimensions have.
    """

    spec: Spec
    dimension: int
    axes: Axes
    edge: PropagationEdge
    factor: int
    source: Spec
    source_dimension: int


@dataclass(frozen=True, eq=False)
class Reshard:
    """`value` of the global program was there as `before`, and `user` takes it as `after` (None: a result)."""

    value: Value
    before: Sharding
    after: Sharding
    user: Op | None


@dataclass
class PartitionRecord:
    """Filled by `partition(..., record=...)`; values and ops of the global program are those of `program`.

    `locals` maps a value of one process's program to the global value whose block it is, with its layout; `reshards`
    the ops that were written for a change of layout to that change.
    """

    program: Program | None = None
    graph: Graph | None = None
    mesh: DeviceMesh | None = None
    layouts: dict[Value, Sharding] = field(default_factory=dict)
    growths: dict[Spec, list[Growth]] = field(default_factory=dict)
    locals: dict[Value, tuple[Value, Sharding]] = field(default_factory=dict)
    reshards: dict[Op, Reshard] = field(default_factory=dict)

    def grown(self, edge: PropagationEdge, tensor: int, factor: int, before: Axes, target: Axes, origin: int) -> None:
        """Notes that `factor` of `tensor` grew to `target`, which tensor `origin` of the edge had."""
        places = edge.rule.places[factor]
        dimension = next(at for number, at, _ in places if number == tensor)
        source = next((at for number, at, _ in places if number == origin), 0)
        axes = target[len(before) :]
        growth = Growth(edge.specs[tensor], dimension, axes, edge, factor, edge.specs[origin], source)
        self.growths.setdefault(growth.spec, []).append(growth)

    def resharded(self, ops: Sequence[Op], reshard: Reshard) -> None:
        """Notes what `ops` were written for."""
        self.reshards.update(dict.fromkeys(ops, reshard))

    def is_asked(self, value: Value) -> bool:
        """Return whether the program itself says how `value`, or what shares its layout, is laid out."""
        spec = None if self.graph is None else self.graph.specs.get(value)
        return spec is not None and spec.is_annotated

    def growths_of(self, value: Value) -> Sequence[Growth]:
        """How `value` came to its axes, in order."""
        spec = None if self.graph is None else self.graph.specs.get(value)
        return () if spec is None else self.growths.get(spec, ())
