"""Builds the model of a program: ops become groups and values tensors, by the union of their factors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from partitioner.disjoint_sets import DisjointSets
from partitioner.graph import DATA_FLOW, Graph, PropagationEdge, Spec
from partitioner.mesh import Axes
from partitioner.program import CONSTRAINT, ImportedProgram
from partitioner.reading import ShardingReader
from partitioner.rules.core import PASS, REDUCE, local_rule
from partitioner.rules.core import Mapping as Factors
from partitioner.search.model import (
    NONE,
    PARTIAL,
    FactorGroup,
    Model,
    Places,
    Projection,
    Tensor,
    Use,
    all_choices,
    project,
)
from spmd.analysis.loops import trip_count
from spmd.ir import Block, Op, Value
from spmd.types import TensorType

#: Ops that join the group of their operands, without a resharding in between.
_FOLLOWING = frozenset(("stablehlo.transpose", "stablehlo.convert", "stablehlo.reverse", "stablehlo.reduce"))
#: Ops whose results adopt the layout of their users, and join no other group.
_SOFT = frozenset(("stablehlo.transpose", "stablehlo.broadcast_in_dim", "stablehlo.iota", "stablehlo.constant"))
#: Ops whose result is their first operand with some elements replaced.
_UPDATING = frozenset(("stablehlo.dynamic_update_slice", "stablehlo.scatter"))
#: Returns the seconds that one process needs for the complete op.
Pricer = Callable[[Op], float]


def build_model(
    program: ImportedProgram,
    reader: ShardingReader,
    axes: Sequence[tuple[str, Axes]],
    seconds: Pricer,
    aliases: Mapping[int, int],
) -> Model:
    """Return the model of `program` over named `axes` of the reader's mesh.

    `aliases` maps results to the arguments that they overwrite. A result that is computed elementwise from an argument
    of its type is assumed to be the argument's next value, as in a training step.
    """
    graph = Graph(program, reader, local_rule)
    graph.build()
    return _Builder(program, reader, graph, axes, seconds).model(aliases)


@dataclass(eq=False)
class _Producer:
    """Where a value is produced: a node, and the node dimension of each value dimension (None: not sharded)."""

    node: int
    dimensions: tuple[int | None, ...]
    summed: tuple[int, ...]
    soft: bool


class _Builder:
    def __init__(
        self,
        program: ImportedProgram,
        reader: ShardingReader,
        graph: Graph,
        axes: Sequence[tuple[str, Axes]],
        seconds: Pricer,
    ) -> None:
        self.program, self.graph = program, graph
        self.axes = [(name, reader.mesh.count(parts), parts) for name, parts in axes]
        self.seconds = seconds
        self.nodes, self.dimensions = DisjointSets(), DisjointSets()
        self.sizes: list[int] = []  # of dimensions
        self.owners: list[int] = []  # the node of each dimension
        self.uncut: set[int] = set()
        self.producers: dict[Spec, _Producer] = {}
        self.uses: dict[Spec, list[_Producer]] = {}
        self.work: list[tuple[int, float, tuple[int, ...], str]] = []
        self.born: dict[Spec, int] = {}
        self.dies: dict[Spec, int] = {}
        self.kept: set[Spec] = set()
        self.updated: dict[Spec, Spec] = {}  # the value of which each value is an update
        self.fixed: list[tuple[Spec, _Producer]] = []
        self.itemsizes: dict[Spec, int] = {}
        for value, spec in graph.specs.items():
            if isinstance(value.type, TensorType):
                self.itemsizes.setdefault(spec, value.tensor.dtype.itemsize)
        self.times: dict[Op, float] = {}
        _count(program.block, 1.0, self.times)
        self.made: dict[Spec, float] = {}
        for edge in graph.edges:
            for spec in edge.specs[edge.count :]:
                self.made[spec] = self._times(edge)

    def _times(self, edge: PropagationEdge) -> float:
        if edge.op is not None and edge.name != DATA_FLOW:
            return self.times.get(edge.op, 1.0)
        return max((self.made.get(spec, 1.0) for spec in edge.specs[: edge.count]), default=1.0)

    # --- nodes ---

    def _dimension(self, node: int, size: int) -> int | None:
        """Return a new dimension of a node; None for size 1, which cannot be sharded."""
        if size <= 1:
            return None
        self.sizes.append(size)
        self.owners.append(node)
        return self.dimensions.new()

    def producer(self, spec: Spec) -> _Producer:
        """Return where `spec` is produced; a new node if no op has produced it."""
        known = self.producers.get(spec)
        if known is None:
            node = self.nodes.new()
            known = _Producer(node, tuple(self._dimension(node, size) for size in spec.shape), (), True)
            self.producers[spec] = known
            self.born.setdefault(spec, 0)
        return known

    def model(self, aliases: Mapping[int, int]) -> Model:
        """Return the model."""
        block = self.program.block
        arguments = [self.graph.specs.get(argument) if _is_tensor(argument) else None for argument in block.arguments]
        for spec in arguments:
            if spec is not None:
                self.producer(spec)
        for index, edge in enumerate(self.graph.edges):
            self._edge(index, edge)
        end = len(self.graph.edges)
        values = block.terminator.operands
        results = [self.graph.specs.get(value) if _is_tensor(value) else None for value in values]
        returned = self._returned(arguments, results, aliases)
        for result, back in zip(results, returned, strict=True):
            if result is not None:
                self._give_back(result, None if back is None else arguments[back], end)
        for spec in arguments:
            if spec is not None:
                self.born[spec], self.dies[spec] = 0, end
                self.kept.add(spec)
        return self._finished(arguments, results, returned, end)

    def _returned(
        self, arguments: list[Spec | None], results: list[Spec | None], aliases: Mapping[int, int]
    ) -> list[int | None]:
        """Return the argument whose next value each result is; None if there is none."""
        returned = [aliases.get(index) for index in range(len(results))]
        taken = set(aliases.values())
        for index, result in enumerate(results):
            if result is None or not result.shape or returned[index] is not None:
                continue
            source = self.producers.get(self.updated.get(result, result))
            for number, argument in enumerate(arguments):
                if argument is None or number in taken or source is None:
                    continue
                alike = argument.shape == result.shape and self.itemsizes.get(argument) == self.itemsizes.get(result)
                if alike and self._is_same(self.producers[argument], source):
                    returned[index] = number
                    taken.add(number)
                    break
        return returned

    def _is_same(self, first: _Producer, second: _Producer) -> bool:
        if self.nodes.find(first.node) != self.nodes.find(second.node):
            return False

        def root(dimension: int | None) -> int | None:
            return None if dimension is None else self.dimensions.find(dimension)

        return list(map(root, first.dimensions)) == list(map(root, second.dimensions))

    def _give_back(self, result: Spec, argument: Spec | None, end: int) -> None:
        self.producer(result)
        self.dies[result] = end
        self.kept.add(result)
        if argument is not None:
            self.uses.setdefault(result, []).append(self.producer(argument))
        elif result.shape or self.producers[result].summed:
            node = self.nodes.new()
            free = _Producer(node, tuple(self._dimension(node, size) for size in result.shape), (), False)
            self.uses.setdefault(result, []).append(free)
        if result.is_annotated:
            self.fixed.append((result, self.uses[result][-1] if result in self.uses else self.producers[result]))

    def _edge(self, index: int, edge: PropagationEdge) -> None:
        for spec in edge.specs:
            self.dies[spec] = index
        for spec in edge.specs[edge.count :]:
            self.born.setdefault(spec, index)
        if edge.name == DATA_FLOW:
            for target in edge.specs[edge.count :]:
                producer = self.producer(target)
                for spec in edge.specs[: edge.count]:
                    self.producer(spec)
                    self.kept.add(spec)
                    if len(spec.shape) == len(target.shape):
                        self.uses.setdefault(spec, []).append(producer)
            return
        rule, node = edge.rule, self.nodes.new()
        factors = [self._dimension(node, size) for size in rule.sizes]
        for dimension, kind in zip(factors, rule.kinds, strict=True):
            if kind not in (PASS, REDUCE) and dimension is not None:
                self.uncut.add(dimension)
        for mapping in rule.tensors:
            for several in mapping:
                wide = [found for factor in several if (found := factors[factor]) is not None]
                self.uncut.update(wide[1:])
        follows = self._follows(edge)
        for spec, mapping in zip(edge.specs[: edge.count], rule.operands, strict=True):
            producer, dimensions = self.producer(spec), _major(mapping, factors)
            if not (follows and producer.soft and self._join(node, dimensions, producer)):
                self.uses.setdefault(spec, []).append(_Producer(node, dimensions, (), False))
            if not edge.is_elementwise:
                self.kept.add(spec)
        self._results(edge, node, factors)
        if edge.name in _UPDATING and edge.specs[0].shape == edge.specs[edge.count].shape:
            self.updated[edge.specs[edge.count]] = self.updated.get(edge.specs[0], edge.specs[0])
        if edge.op is not None:
            seconds = self.seconds(edge.op) * self._times(edge)
            self.work.append((node, seconds, tuple(each for each in factors if each is not None), edge.name))

    def _results(self, edge: PropagationEdge, node: int, factors: list[int | None]) -> None:
        rule = edge.rule
        soft = (edge.is_elementwise and edge.name != CONSTRAINT) or edge.name in _SOFT
        for spec, mapping in zip(edge.specs[edge.count :], rule.results, strict=True):
            used = {factor for several in mapping for factor in several}
            reduced = [factors[factor] for factor in rule.of_kind(REDUCE) if factor not in used]
            summed = tuple(dimension for dimension in reduced if dimension is not None)
            made = _Producer(node, _major(mapping, factors), summed, soft)
            if spec in self.producers:  # used before its definition: loop state, or a sharding group
                self.uses.setdefault(spec, []).append(made)
            else:
                self.producers[spec] = made
            if spec.is_annotated:
                self.fixed.append((spec, self.producers[spec]))
            if not soft:
                self.kept.add(spec)

    @staticmethod
    def _follows(edge: PropagationEdge) -> bool:
        if edge.name == CONSTRAINT:
            return False
        simple = all(len(several) == 1 for mapping in edge.rule.tensors for several in mapping)
        return simple and (edge.is_elementwise or edge.name in _FOLLOWING or edge.name == "stablehlo.reshape")

    def _join(self, node: int, dimensions: tuple[int | None, ...], producer: _Producer) -> bool:
        """Merge two nodes dimension by dimension; return False if two dimensions of one would be merged."""
        pairs = []
        for first, second in zip(dimensions, producer.dimensions, strict=True):
            if first is None or second is None:
                if first is not second:
                    return False
                continue
            first, second = self.dimensions.find(first), self.dimensions.find(second)
            if self.sizes[first] != self.sizes[second]:
                return False
            pairs.append((first, second))
        if not pairs:
            return False  # scalars relate nothing
        is_one = self.nodes.find(node) == self.nodes.find(producer.node)
        if is_one and any(first != second for first, second in pairs):
            return False
        left, right = {first for first, _ in pairs}, {second for _, second in pairs}
        if len(left) < len(pairs) or len(right) < len(pairs):
            return False
        self.nodes.join(node, producer.node)
        for first, second in pairs:
            self.dimensions.join(first, second)
        return True

    # --- the model ---

    def _finished(
        self, arguments: list[Spec | None], results: list[Spec | None], returned: Sequence[int | None], end: int
    ) -> Model:
        members: dict[int, list[int]] = {}
        for dimension, owner in enumerate(self.owners):
            if self.dimensions.find(dimension) == dimension:
                members.setdefault(self.nodes.find(owner), []).append(dimension)
        roots = sorted({self.nodes.find(node) for node in range(len(self.nodes.parents))})
        uncut = {self.dimensions.find(dimension) for dimension in self.uncut}
        place: dict[int, int] = {}
        for root in roots:
            place |= {dimension: index for index, dimension in enumerate(members.get(root, []))}
        number = {root: index for index, root in enumerate(roots)}
        groups = [
            FactorGroup(
                tuple(self.sizes[dimension] for dimension in members.get(root, [])),
                tuple(dimension not in uncut for dimension in members.get(root, [])),
                {},
                (),
            )
            for root in roots
        ]
        names: dict[int, list[str]] = {}
        for node, seconds, factors, name in self.work:
            root = number[self.nodes.find(node)]
            shared = frozenset(place[self.dimensions.find(factor)] for factor in factors)
            groups[root].work[shared] = groups[root].work.get(shared, 0.0) + seconds
            names.setdefault(root, []).append(name)
        for root, each in names.items():
            groups[root].names = tuple(each)

        def projected(producer: _Producer) -> tuple[int, Projection]:
            group = number[self.nodes.find(producer.node)]
            projection = [NONE] * len(groups[group].sizes)
            for dimension in producer.summed:
                projection[place[self.dimensions.find(dimension)]] = PARTIAL
            for own, found in enumerate(producer.dimensions):
                if found is not None:
                    projection[place[self.dimensions.find(found)]] = own
            return group, tuple(projection)

        for each_group in groups:
            each_group.choices = all_choices(each_group, [size for _, size, _ in self.axes])
        self._fix(groups, projected)
        tensors: dict[Spec, Tensor] = {}
        for spec, producer in self.producers.items():
            group, projection = projected(producer)
            uses = dict.fromkeys(Use(*projected(use)) for use in self.uses.get(spec, ()))
            tensors[spec] = Tensor(
                spec,
                self.itemsizes.get(spec, 4),
                group,
                projection,
                self.made.get(spec, 1.0),
                self.born.get(spec, 0),
                self.dies.get(spec, end),
                [use for use in uses if (use.group, use.projection) != (group, projection)],
                spec in self.kept,
            )
        return Model(
            tuple((name, size) for name, size, _ in self.axes),
            groups,
            list(tensors.values()),
            [None if spec is None else tensors[spec] for spec in arguments],
            list(returned),
            [None if spec is None else tensors[spec] for spec in results],
            end + 1,
            self.graph.specs,
        )

    def _fix(self, groups: list[FactorGroup], projected: Callable[[_Producer], tuple[int, Projection]]) -> None:
        """Restrict choices to the shardings that the program annotates."""
        annotated = [(spec, producer) for spec, producer in self.producers.items() if spec.is_annotated]
        for spec, producer in (*annotated, *self.fixed):
            group, projection = projected(producer)
            wanted = [
                next((index for index, cut in enumerate(spec.dimensions) if set(parts) & set(cut)), NONE)
                for _, _, parts in self.axes
            ]

            def is_kept(choice: Places, spec: Spec = spec, projection: Projection = projection,
                        wanted: list[int] = wanted) -> bool:  # fmt: skip
                found = project(projection, choice)
                free = [not all(spec.closed)] * len(wanted)
                return all(
                    place == want or (want == NONE and open_there and place != PARTIAL and not spec.closed[place])
                    for place, want, open_there in zip(found, wanted, free, strict=True)
                )

            kept = [choice for choice in groups[group].choices if is_kept(choice)]
            if kept:
                groups[group].choices = kept


def _is_tensor(value: Value) -> bool:
    return isinstance(value.type, TensorType)


def _count(block: Block, times: float, counts: dict[Op, float]) -> None:
    """Count the executions of each op per step."""
    for op in block.ops:
        counts[op] = times
        inner = times * ((trip_count(op) or 1) if op.name == "stablehlo.while" else 1)
        for region in op.regions:
            for each in region.blocks:
                _count(each, inner, counts)


def _major(mapping: Factors, factors: list[int | None]) -> tuple[int | None, ...]:
    """Return the node dimension of each tensor dimension: the first of its factors that is larger than 1."""
    wide = ([factors[factor] for factor in several if factors[factor] is not None] for several in mapping)
    return tuple(found[0] if found else None for found in wide)
