"""Records the decisions of partitioning: which op propagated axes to a value, and which use required a resharding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from partitioner.mesh import Axes, DeviceMesh
from partitioner.sharding import Sharding
from spmd.ir import Op, Value

if TYPE_CHECKING:
    from partitioner.graph import Graph, PropagationEdge, Spec
    from partitioner.program import ImportedProgram


@dataclass(frozen=True, eq=False)
class PropagationStep:
    """Propagation sharded `dimension` of `spec` along `axes`, as `source_dimension` of `source` was.

    Both dimensions have factor `factor` of `edge`, an op or a data-flow edge.
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
    """The resharding of `value`, of the global program, from `before` to `after` for `user` (None: a result)."""

    value: Value
    before: Sharding
    after: Sharding
    user: Op | None


@dataclass
class PartitionRecord:
    """Filled by `partition(..., record=...)`; values and ops are those of `program`, the global program.

    `locals` maps a value of the per-process program to its global value and sharding; `reshards` maps ops to the
    resharding that they implement.
    """

    program: ImportedProgram | None = None
    graph: Graph | None = None
    mesh: DeviceMesh | None = None
    layouts: dict[Value, Sharding] = field(default_factory=dict)
    steps: dict[Spec, list[PropagationStep]] = field(default_factory=dict)
    locals: dict[Value, tuple[Value, Sharding]] = field(default_factory=dict)
    reshards: dict[Op, Reshard] = field(default_factory=dict)

    def propagated(
        self, edge: PropagationEdge, tensor: int, factor: int, before: Axes, target: Axes, origin: int
    ) -> None:
        """Record that `factor` of `tensor` grew to `target`, the axes of tensor `origin` of the edge."""
        places = edge.rule.places[factor]
        dimension = next(at for number, at, _ in places if number == tensor)
        source = next((at for number, at, _ in places if number == origin), 0)
        axes = target[len(before) :]
        growth = PropagationStep(edge.specs[tensor], dimension, axes, edge, factor, edge.specs[origin], source)
        self.steps.setdefault(growth.spec, []).append(growth)

    def resharded(self, ops: Sequence[Op], reshard: Reshard) -> None:
        """Record that `ops` implement `reshard`."""
        self.reshards.update(dict.fromkeys(ops, reshard))

    def is_annotated(self, value: Value) -> bool:
        """Return whether the program annotates `value`, or a value that shares its spec."""
        spec = None if self.graph is None else self.graph.specs.get(value)
        return spec is not None and spec.is_annotated

    def steps_of(self, value: Value) -> Sequence[PropagationStep]:
        """Return the propagation steps that gave `value` its axes, in order."""
        spec = None if self.graph is None else self.graph.specs.get(value)
        return () if spec is None else self.steps.get(spec, ())
