"""Propagation: from annotations to a sharding of every value.

Shardings propagate along factors, in both directions, to a fixed point: the outermost loop is over user priorities,
then op priorities, then conflict resolution (aggressive), then basic propagation. Source: Shardy's documentation,
"Propagation".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from partitioner.graph import BACKWARD, BOTH, DATA_FLOW, FORWARD, NONE, Graph, PropagationEdge, Spec
from partitioner.mesh import Axes, DeviceMesh
from partitioner.program import ImportedProgram
from partitioner.reading import ShardingReader
from partitioner.record import PartitionRecord
from partitioner.rules.conservative import conservative_rule
from partitioner.rules.core import PASS, Mapping, rule_of
from partitioner.sharding import Sharding
from spmd.errors import UsageError
from spmd.ir import Value

#: Ops that propagate in the first rounds, since they only rearrange dimensions.
_EARLY = frozenset(("stablehlo.reshape", "stablehlo.transpose", DATA_FLOW))
_FORWARD_EARLY = frozenset(("stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice"))
_ROUNDS = 5


def propagate(
    program: ImportedProgram,
    reader: ShardingReader,
    axis_priority: Sequence[str] = (),
    *,
    only_annotated: bool = False,
    conservative: bool = False,
    record: PartitionRecord | None = None,
) -> dict[Value, Sharding]:
    """Return a sharding for every tensor value of `program`; `record` collects the reasons.

    `conservative`: neither sub-axes nor factors that need communication are propagated.
    """
    graph = Graph(program, reader, conservative_rule if conservative else rule_of)
    graph.build()
    if not only_annotated:
        runner = _Runner(graph, reader.mesh, conservative, record)
        for allowed in _axis_rounds(reader.mesh, axis_priority):
            runner.allowed = allowed
            for edge in graph.edges:
                edge.seen = ("", -1)
            runner.run()
    for spec in graph.specs.values():
        # Annotations take effect even where nothing is propagated.
        _reveal(spec, max((priority for priority, _, _ in spec.hidden.values()), default=0))
    mesh = reader.mesh
    layouts = {value: spec.sharding(mesh) for value, spec in graph.specs.items()}
    if record is not None:
        record.program, record.graph, record.mesh, record.layouts = program, graph, mesh, layouts
    return layouts


def _axis_rounds(mesh: DeviceMesh, names: Sequence[str]) -> list[frozenset[int] | None]:
    """Return the sub-axes that may propagate in each round; None: all."""
    rounds: list[frozenset[int] | None] = []
    done: frozenset[int] = frozenset()
    known = {sub_axis.name for sub_axis in mesh.sub_axes}
    for name in names:
        if name not in known:
            raise UsageError(f'axis_priority must name axes of the mesh {mesh.text}, got "{name}"')
        done |= frozenset(index for index, sub_axis in enumerate(mesh.sub_axes) if sub_axis.name == name)
        rounds.append(done)
    return [*rounds, None]


class _Runner:
    def __init__(self, graph: Graph, mesh: DeviceMesh, conservative: bool, record: PartitionRecord | None) -> None:
        self.graph = graph
        self.mesh = mesh
        self.conservative = conservative
        self.record = record
        self.allowed: frozenset[int] | None = None

    def run(self) -> None:
        """Propagate to a fixed point, by user priority and then by round."""
        specs = {id(spec): spec for edge in self.graph.edges for spec in edge.specs}.values()
        priorities = sorted({0, *(entry[0] for spec in specs for entry in spec.hidden.values())})
        for priority in priorities:
            for spec in specs:
                _reveal(spec, priority)
            for round in range(_ROUNDS):
                self._round(round)

    def _round(self, round: int) -> None:
        edges = [edge for edge in self.graph.edges if self._is_live(edge, round)]
        pending = edges[::-1]
        for edge in pending:
            edge.queued = True
        while pending:
            edge = pending.pop()
            edge.queued = False
            now = (_way(edge, round), sum(spec.version for spec in edge.specs))
            if edge.seen == now or edge.is_settled or not any(map(_is_cut, edge.specs)):
                continue
            grown = self._propagate_along(edge, _direction(edge, round))
            edge.seen = (now[0], sum(spec.version for spec in edge.specs))
            for spec in grown:
                for other in spec.edges:
                    if not other.queued and self._is_live(other, round):
                        other.queued = True
                        pending.append(other)

    @staticmethod
    def _is_live(edge: PropagationEdge, round: int) -> bool:
        return edge.direction != NONE and (round >= 2 or _early(edge, round) is not None)

    def _propagate_along(self, edge: PropagationEdge, direction: Callable[[int], str]) -> list[Spec]:
        """Propagate along the factors of one edge; return the specs that grew."""
        rule = edge.rule
        axes = [
            _project(spec, mapping, rule.sizes, self.mesh)
            for spec, mapping in zip(edge.specs, rule.tensors, strict=True)
        ]
        new_axes: list[Axes] = []
        for factor in range(len(rule.sizes)):
            way = NONE if factor in rule.blocked else direction(factor)
            new_axes.append(() if way == NONE else _compatible(edge, axes, factor, way, self.allowed))
        if not any(new_axes):
            return []
        order = _order(edge, axes, new_axes, self.mesh)
        grown: list[Spec] = []
        tensors = [*range(edge.count, len(edge.specs)), *range(edge.count)]
        for tensor in tensors:
            if grown and edge.specs[tensor] in grown:  # another operand is the same value and has just grown
                axes[tensor] = _project(edge.specs[tensor], rule.tensors[tensor], rule.sizes, self.mesh)
            for factor in order:
                if factor in axes[tensor]:
                    new = self._new_axes(edge, axes, tensor, factor, new_axes[factor])
                    if new is not None:
                        if self.record is not None:
                            origin = _origin(edge, axes, factor, new)
                            self.record.propagated(edge, tensor, factor, axes[tensor][factor].axes, new, origin)
                        axes[tensor][factor] = _Factor(new, axes[tensor][factor])
                        spec = edge.specs[tensor]
                        _unproject(spec, rule.tensors[tensor], axes[tensor])
                        if spec not in grown:
                            grown.append(spec)
        return grown

    def _new_axes(
        self, edge: PropagationEdge, axes: list[dict[int, _Factor]], tensor: int, factor: int, target_axes: Axes
    ) -> Axes | None:
        """Return the axes to which `factor` of `tensor` grows, after conflict resolution; None if it does not."""
        current, spec = axes[tensor][factor], edge.specs[tensor]
        if len(target_axes) <= len(current.axes) or target_axes[: len(current.axes)] != current.axes:
            return None
        if current.closed or current.overflow:
            return None
        others = {
            axis for other, entry in axes[tensor].items() if other != factor for axis in (*entry.axes, *entry.overflow)
        }
        size = edge.rule.sizes[factor]
        new: list[int] = []
        product = 1
        for index, axis in enumerate(target_axes):
            if index >= len(current.axes):
                if axis in others or axis in spec.fixed or axis in spec.partial:
                    break
                if not current.is_minor and size % (product * self.mesh.sizes[axis]):
                    break
            product *= self.mesh.sizes[axis]
            new.append(axis)
        grown = tuple(new)
        if edge.is_elementwise and tensor < edge.count:
            for result in axes[edge.count :]:
                entry = result.get(factor)
                if entry is not None and len(entry.axes) < len(grown) and grown[: len(entry.axes)] == entry.axes:
                    grown = entry.axes
        if self.conservative and edge.name != DATA_FLOW:
            grown = self.mesh.whole_axes(grown)
        return grown if len(grown) > len(current.axes) else None


@dataclass
class _Factor:
    """The axes that shard one factor of one tensor; `overflow` holds axes that do not fit it."""

    axes: Axes
    like: _Factor | None = None
    closed: bool = False
    overflow: Axes = ()
    is_minor: bool = True

    def __post_init__(self) -> None:
        if self.like is not None:
            self.closed, self.overflow, self.is_minor = self.like.closed, self.like.overflow, self.like.is_minor
            self.like = None


def _project(spec: Spec, mapping: Mapping, sizes: tuple[int, ...], mesh: DeviceMesh) -> dict[int, _Factor]:
    """Distribute the axes of each dimension over its factors, major first."""
    projection: dict[int, _Factor] = {}
    for dimension, factors in enumerate(mapping):
        axes, closed = spec.dimensions[dimension], spec.closed[dimension]
        if len(factors) == 1:
            projection[factors[0]] = _Factor(axes, None, closed)
            continue
        at = 0
        stuck = False
        for index, factor in enumerate(factors):
            is_minor = index == len(factors) - 1
            taken: list[int] = []
            product = 1
            while at < len(axes) and not stuck and (is_minor or product < sizes[factor]):
                size = mesh.sizes[axes[at]]
                if not is_minor and sizes[factor] % (product * size):
                    stuck = True
                    break
                taken.append(axes[at])
                product *= size
                at += 1
            overflow = axes[at:] if stuck else ()
            projection[factor] = _Factor(tuple(taken), None, closed, overflow, is_minor)
            if stuck:
                at = len(axes)
    return projection


def _is_cut(spec: Spec) -> bool:
    return any(spec.dimensions)


def _way(edge: PropagationEdge, round: int) -> str:
    """Return a key that differs between rounds in which an edge propagates in different directions."""
    if edge.is_elementwise or edge.name in _EARLY:
        return "early"
    return str(min(round, 3)) if "broadcast" not in edge.name else str(round)


def _unproject(spec: Spec, mapping: Mapping, axes: dict[int, _Factor]) -> None:
    spec.version += 1
    for dimension, factors in enumerate(mapping):
        joined: Axes = ()
        overflow: Axes = ()
        for factor in factors:
            joined += axes[factor].axes
            overflow = axes[factor].overflow or overflow
        spec.dimensions[dimension] = joined + overflow


def _compatible(
    edge: PropagationEdge, axes: list[dict[int, _Factor]], factor: int, way: str, allowed: frozenset[int] | None
) -> Axes:
    """Return the longest axes of a factor that no tensor contradicts; only source tensors of direction `way` extend it.

    Sub-axes that are not `allowed` are ignored.
    """
    operands, results = axes[: edge.count], axes[edge.count :]
    first, second = (results, operands) if way == BACKWARD else (operands, results)
    merged: Axes = ()
    can_grow = True
    for tensors in (first, second):
        if tensors is second and way != BOTH:
            can_grow = False
        for tensor in tensors:
            entry = tensor.get(factor)
            if entry is None:
                continue
            current = entry.axes if allowed is None else _allowed_part(entry.axes, allowed)
            common = 0
            while common < min(len(merged), len(current)) and merged[common] == current[common]:
                common += 1
            if common < min(len(merged), len(current)):
                merged, can_grow = merged[:common], False
            elif len(current) > len(merged) and can_grow:
                merged = current
    return merged


def _order(
    edge: PropagationEdge, axes: list[dict[int, _Factor]], target_axes: list[Axes], mesh: DeviceMesh
) -> list[int]:
    """Return the factors with axes to propagate, those with the largest source tensor first."""
    keyed = []
    for factor, target in enumerate(target_axes):
        if not target:
            continue
        size, source = -1, -1
        for tensor, entries in enumerate(axes):
            entry = entries.get(factor)
            if entry is not None and entry.axes[: len(target)] == target and edge.spans[tensor] > size:
                size, source = edge.spans[tensor], tensor
        blocks = mesh.count(target) if edge.is_elementwise else 0
        keyed.append((-size, -blocks, source, factor))
    return [entry[3] for entry in sorted(keyed)]


def _origin(edge: PropagationEdge, axes: list[dict[int, _Factor]], factor: int, target: Axes) -> int:
    """Return the largest tensor whose factor is sharded along `target` already."""
    have = [n for n, each in enumerate(axes) if factor in each and each[factor].axes[: len(target)] == target]
    return max(have, key=lambda tensor: edge.spans[tensor])


def _allowed_part(axes: Axes, allowed: frozenset[int]) -> Axes:
    """Return the longest prefix of `axes` that is allowed."""
    for index, axis in enumerate(axes):
        if axis not in allowed:
            return axes[:index]
    return axes


def _reveal(spec: Spec, priority: int) -> None:
    for dimension, (at, axes, closed) in list(spec.hidden.items()):
        if at <= priority:
            del spec.hidden[dimension]
            spec.version += 1
            spec.dimensions[dimension], spec.closed[dimension] = axes, closed
            spec.fixed -= frozenset(axes)


def _early(edge: PropagationEdge, round: int) -> str | None:
    """Return the direction in which ops propagate in the first two rounds; None if they do not."""
    if edge.direction == NONE or (round == 0 and not edge.is_single):
        return None
    if edge.is_elementwise or edge.name in _EARLY:
        return BOTH
    return FORWARD if edge.name in _FORWARD_EARLY else None


def _direction(edge: PropagationEdge, round: int) -> Callable[[int], str]:
    """Return the propagation direction by factor in a round, which includes the directions of earlier rounds."""
    early = _early(edge, min(round, 1))
    if round >= 4:
        way = BOTH
    elif edge.name in ("stablehlo.broadcast_in_dim", "stablehlo.broadcast"):
        way = BACKWARD if round >= 2 else NONE
    else:
        way = BOTH if round >= 2 else NONE
    if round == 2 and way != NONE:
        kinds = edge.rule.kinds
        return lambda factor: _meet(_join(early, way if kinds[factor] == PASS else NONE), edge.direction)
    return lambda factor: _meet(_join(early, way), edge.direction)


def _join(early: str | None, way: str) -> str:
    if early is None or early == way:
        return way
    return early if way == NONE else BOTH


def _meet(way: str, other: str) -> str:
    if way == BOTH:
        return other
    return way if other in (BOTH, way) else NONE
