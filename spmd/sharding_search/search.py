"""The search for a layout: prices solutions of the integer program and simple layouts, then searches locally."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice

from collectives.network import Network
from partitioner.program import ImportedProgram, import_program
from partitioner.reading import ShardingReader
from partitioner.search.building import build_model
from partitioner.search.integer import Limit, Problem, Solution
from partitioner.search.model import NONE, PARTIAL, Places, Tensor, fits, project
from partitioner.search.ties import find_equivalent_groups
from partitioner.sharding import Sharding
from spmd.dialects import sdy_attributes as sdy
from spmd.ir import Function, Module, Op, Value
from spmd.ir.attributes import IntegerAttr
from spmd.predict.machine import Machine
from spmd.predict.prediction import prices_of
from spmd.sharding_search.layouts import ProgramLayout, Spec, annotated, is_given
from spmd.sharding_search.prices import AxisPrices, op_seconds
from spmd.sharding_search.pricing import PricedLayout, Pricer
from spmd.types import TensorType

#: Total number of ops to price, and the least and largest number of layouts: no time limit, so that all ranks and all
#: runs find the same.
_OPS, _LEAST, _MOST = 24_000, 4, 200
#: The relative improvement by which a layout replaces another.
_BETTER = 1e-3
#: Rounds of annotating values that propagation shards differently, and the smallest such value, as a fraction of the
#: largest one.
_ROUNDS, _LEAST_SHARE = 10, 1e-3
#: Ops that are cloned per user, and so need no annotation.
_UNTOLD = frozenset(("stablehlo.constant", "stablehlo.iota", "stablehlo.broadcast_in_dim"))
#: The number of layouts from which the local search starts.
_STARTS = 3


@dataclass
class ShardingSearch:
    """The search for a layout of `function` of `module` over `mesh`; `memory` is the limit of bytes per process.

    `progress` is called with the number of each layout before it is priced, and the largest number.
    """

    module: Module
    function: str
    mesh: Op
    machine: Machine
    network: Network | None
    memory: float | None = None
    progress: Callable[[int, int], None] | None = None
    priced: list[PricedLayout] = field(default_factory=list)
    #: Classes of groups whose sharding affects others.
    linked: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        entry = self.module.function(self.function)
        count = len(entry.type.inputs), len(entry.type.results)
        nothing = ProgramLayout((None,) * count[0], (None,) * count[1])
        module = annotated(self.module, self.mesh, nothing, self.function)
        entry = module.function(self.function)
        reader = ShardingReader(module, entry)
        program = import_program(module, entry, reader)
        axes = self.mesh["mesh"].axes
        parts = [(axis.name, reader.axes([sdy.AxisRef(axis.name)], self.mesh["mesh"])) for axis in axes]
        given = self.module.function(self.function)
        self.model = build_model(program, reader, parts, lambda op: op_seconds(self.machine, op), aliases_of(given))
        self.ties = find_equivalent_groups(self.model)
        traffic = prices_of(self.machine, self.network, reader.mesh.size)
        self.prices = AxisPrices(traffic, reader.mesh, [sub_axes for _, sub_axes in parts])
        self.pricer = Pricer(
            self.module,
            self.function,
            self.mesh,
            self.machine,
            self.network,
            self.model.returned,
            program,
            reader,
        )
        self.given = frozenset(index for index, entries in enumerate(given.argument_attributes) if is_given(entries))
        self.budget = max(_LEAST, min(_MOST, _OPS // max(1, _count(program))))
        self.classes = self._argument_classes()

    # --- arguments ---

    def _argument_classes(self) -> list[list[int]]:
        """Return the arguments that are sharded alike, since their groups repeat."""
        classes: dict[tuple[object, ...], list[int]] = {}
        for index, tensor in enumerate(self.model.arguments):
            if tensor is not None and tensor.spec.shape and index not in self.given:
                key = self.ties.classes[tensor.group], tensor.projection, tensor.spec.shape
                classes.setdefault(key, []).append(index)
        return list(classes.values())

    def layout(self, places: Sequence[Places | None], *, is_open: bool = False) -> ProgramLayout:
        """Return the layout with the axes of each argument on these dimensions; None leaves an argument open."""
        names = [name for name, _ in self.model.axes]
        specs = [
            None if each is None or tensor is None else spec_of(each, len(tensor.spec.shape), names)
            for each, tensor in zip(places, self.model.arguments, strict=True)
        ]
        return ProgramLayout(tuple(specs), (None,) * len(self.model.results), is_open)

    def places(self, layout: ProgramLayout) -> list[Places | None]:
        """Return the dimension of each axis, for each argument."""
        names = [name for name, _ in self.model.axes]
        return [None if spec is None else places_of(spec, names) for spec in layout.arguments]

    # --- candidates ---

    def solutions(self) -> Iterator[ProgramLayout]:
        """Yield the integer program's layouts with the annotations that they need, simple ones, and those without."""
        problem = Problem(self.model, self.ties, self.prices)
        self.linked = problem.linked
        found = []
        for solution in self._solved_by_limits(problem):
            if solution is not None:
                found.append(solution)
                yield self._constrained(solution)
        yield from islice(self.by_hand(), 1)
        if any(back is not None for back in self.model.returned):
            yield self._fully_sharded()
        yield from map(self._solved, found)

    def _solved_by_limits(self, problem: Problem) -> Iterator[Solution | None]:
        """Yield the fastest solutions: without and with arguments used as sharded, then under memory limits."""
        quick = problem.solve(Limit())
        yield quick
        if quick is None:
            return
        yield problem.solve(is_aligned=True)
        if self.memory is None:
            return
        for share in (0.9, 0.5, 0.25):
            if quick.bytes > share * self.memory:
                yield problem.solve(Limit(share * self.memory))
        for weight in (0.3, 3.0, 100.0):
            yield problem.solve(Limit(None, weight * max(quick.seconds, 1e-9) / max(quick.bytes, 1.0)))

    def _constrained(self, solution: Solution) -> ProgramLayout:
        """Return a solution's layout, with annotations where propagation would shard values differently."""
        layout = self._solved(solution)
        wanted = self._wanted(solution)
        inner: dict[Op, Spec] = {}
        for turn in range(_ROUNDS):
            found = self.pricer.propagated(replace(layout, inner=tuple(inner.items())))
            missed: dict[int, tuple[Op, Spec]] = {}
            for value, (origin, group, spec) in wanted.items():
                if origin not in inner and spec != spec_of_sharding(found.get(value)):
                    missed.setdefault(group, (origin, spec))
            # Annotate the largest groups first, few at a time: others may then follow by propagation.
            first = sorted(missed, key=lambda group: (-len(self.model.groups[group].names), group))
            inner.update(missed[group] for group in first[: 2**turn])
            if not missed:
                break
        return replace(layout, inner=tuple(inner.items()))

    def _wanted(self, solution: Solution) -> dict[Value, tuple[Op, int, Spec]]:
        """Return the sharding of each value in a solution, with its op in the module and its group."""
        names = [name for name, _ in self.model.axes]
        most = max((tensor.bytes for tensor in self.model.tensors), default=0.0)
        tensors = {tensor.spec: tensor for tensor in self.model.tensors}
        wanted: dict[Value, tuple[Op, int, Spec]] = {}
        for op, origin in self.pricer.program.origins.items():
            if len(op.results) != 1 or not isinstance(op.results[0].type, TensorType):
                continue
            tensor = tensors.get(self.model.specs[op.result]) if op.result in self.model.specs else None
            if (
                tensor is None
                or not tensor.spec.shape
                or tensor.bytes < most * _LEAST_SHARE
                or tensor.spec.is_annotated
            ):
                continue
            places = project(tensor.projection, solution.choices[self.ties.classes[tensor.group]])
            if PARTIAL not in places and origin.name not in _UNTOLD:
                wanted[op.result] = origin, tensor.group, spec_of(places, len(tensor.spec.shape), names)
        return wanted

    def _solved(self, solution: Solution) -> ProgramLayout:
        places: list[Places | None] = []
        for index, tensor in enumerate(self.model.arguments):
            if tensor is None or index in self.given or self.ties.classes[tensor.group] not in self.linked:
                places.append(None)
            else:
                choice = solution.choices[self.ties.classes[tensor.group]]
                found = project(tensor.projection, choice)
                places.append(tuple(NONE if place == PARTIAL else place for place in found))
        return self.layout(places)

    def by_hand(self) -> Iterator[ProgramLayout]:
        """Yield layouts that shard one dimension of one class of arguments, and the replicated layout."""
        count = len(self.model.axes)
        ways = [tuple(range(count)), *((axis,) for axis in range(count) if count > 1)]
        returned = set(self.model.returned)
        classes = sorted(self.classes, key=lambda members: (members[0] in returned, -self._tensor(members[0]).bytes))
        for axes in ways:
            for members in classes:
                tensor = self._tensor(members[0])
                for dimension, size in enumerate(tensor.spec.shape):
                    blocks = 1
                    for axis in axes:
                        blocks *= self.model.sizes[axis]
                    if fits(size, blocks):
                        cut = tuple(dimension if axis in axes else NONE for axis in range(count))
                        places: list[Places | None] = [None] * len(self.model.arguments)
                        for member in members:
                            places[member] = cut
                        yield self.layout(places)
        yield self.layout([(NONE,) * count] * len(self.model.arguments))

    def _fully_sharded(self) -> ProgramLayout:
        """Return the layout of fully sharded data parallelism: inputs by rows, state along its largest dimension."""
        count = len(self.model.axes)
        returned = set(self.model.returned)
        places: list[Places | None] = [None] * len(self.model.arguments)
        for index in (index for members in self.classes for index in members):
            tensor = self._tensor(index)
            sizes = tensor.spec.shape
            order = sorted(range(len(sizes)), key=lambda dimension: -sizes[dimension]) if index in returned else [0]
            ways = [(dimension,) * count for dimension in order]
            places[index] = next((way for way in ways if self._fits(tensor, way)), (NONE,) * count)
        return self.layout(places)

    def _tensor(self, index: int) -> Tensor:
        tensor = self.model.arguments[index]
        assert tensor is not None
        return tensor

    def near(self, layout: ProgramLayout) -> Iterator[ProgramLayout]:
        """Yield layouts that move one axis in one class of arguments, also with the axis freed elsewhere."""
        current = self.places(layout)
        count = len(self.model.axes)
        half = len(layout.inner) // 2
        if layout.inner:
            for inner in dict.fromkeys(((), layout.inner[:half], layout.inner[half:])):
                yield replace(layout, results=(None,) * len(layout.results), inner=inner)
        for members in self.classes:
            tensor = self._tensor(members[0])
            here = current[members[0]]
            if here is None:
                continue
            for axis in range(count):
                for place in (NONE, *range(len(tensor.spec.shape))):
                    moved = (*here[:axis], place, *here[axis + 1 :])
                    if place == here[axis] or not self._fits(tensor, moved):
                        continue
                    places = list(current)
                    for member in members:
                        places[member] = moved
                    yield replace(self.layout(places), inner=layout.inner)
                    if place == NONE:
                        continue
                    freed = [
                        each if each is None or index in members else (*each[:axis], NONE, *each[axis + 1 :])
                        for index, each in enumerate(places)
                    ]
                    yield self.layout(freed, is_open=True)

    def _fits(self, tensor: Tensor, places: Places) -> bool:
        blocks = [1] * len(tensor.spec.shape)
        for place, size in zip(places, self.model.sizes, strict=True):
            if place >= 0:
                blocks[place] *= size
        return all(count == 1 or fits(size, count) for size, count in zip(tensor.spec.shape, blocks, strict=True))

    # --- the search ---

    def run(self) -> PricedLayout | None:
        """Return the best layout found; None if none fits the memory."""
        for layout in chain(self.solutions(), self.by_hand()):
            if self.pricer.count >= max(_LEAST, self.budget * 2 // 3):
                break
            self._try(layout)
        self.priced.sort(key=self._rank)
        tried: set[ProgramLayout] = set()
        for start in self.priced[:_STARTS]:
            self._climb(start, tried)
        self.priced.sort(key=self._rank)
        best = self.priced[0]
        return best if self._has_room(best) else None

    def _has_room(self, priced: PricedLayout) -> bool:
        return self.memory is None or priced.bytes <= self.memory

    def _rank(self, priced: PricedLayout) -> tuple[object, ...]:
        """Return a sort key: layouts that fit by seconds, then others by bytes."""
        cuts = sum(len(axes) for spec in priced.layout.arguments if spec for axes in spec)
        if self._has_room(priced):
            return 0, priced.seconds, priced.bytes, cuts, repr(priced.layout)
        return 1, priced.bytes, priced.seconds, cuts, repr(priced.layout)

    def _is_better(self, new: PricedLayout, old: PricedLayout) -> bool:
        if self._has_room(new) != self._has_room(old):
            return self._has_room(new)
        if not self._has_room(new):
            return new.bytes < old.bytes * (1 - _BETTER)
        return new.seconds < old.seconds * (1 - _BETTER)

    def _try(self, layout: ProgramLayout) -> PricedLayout | None:
        before = self.pricer.count
        if self.progress is not None:
            self.progress(before + 1, self.budget)
        priced = self.pricer.price(layout)
        if priced is not None and self.pricer.count > before:
            self.priced.append(priced)
        return priced

    def _climb(self, best: PricedLayout, tried: set[ProgramLayout]) -> None:
        """Move to better neighbours until there are none, within the budget."""
        while best.layout not in tried:
            tried.add(best.layout)
            start = best
            for layout in self.near(start.layout):
                if self.pricer.count >= self.budget:
                    return
                priced = self._try(layout)
                if priced is not None and self._is_better(priced, best):
                    best = priced


def spec_of(places: Places, rank: int, names: Sequence[str]) -> Spec:
    """Return the spec with the named axes on dimensions `places`; several on one dimension in mesh order."""
    return tuple(
        tuple(name for name, place in zip(names, places, strict=True) if place == dimension)
        for dimension in range(rank)
    )


def spec_of_sharding(sharding: Sharding | None) -> Spec | None:
    """Return the spec of a sharding along full axes."""
    if sharding is None:
        return None
    return tuple(tuple(run.name for run in sharding.mesh.runs(axes)) for axes in sharding.dimensions)


def places_of(spec: Spec, names: Sequence[str]) -> Places:
    """Return the dimension that each axis shards, or NONE."""
    at: Mapping[str, int] = {axis: dimension for dimension, axes in enumerate(spec) for axis in axes}
    return tuple(at.get(name, NONE) for name in names)


def aliases_of(function: Function) -> dict[int, int]:
    """Return the argument that each result aliases, by the function's attributes."""
    aliases: dict[int, int] = {}
    for index, entries in enumerate(function.argument_attributes):
        result = _number(entries.get("tf.aliasing_output"))
        if result is not None:
            aliases[result] = index
    return aliases


def _number(attribute: object) -> int | None:
    return attribute.value if isinstance(attribute, IntegerAttr) else None


def _count(program: ImportedProgram) -> int:
    return sum(1 for _ in program.block.walk())
