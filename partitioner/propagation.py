"""Propagation: from the few layouts a program asks for to one for every value.

Along factors, both ways, to a fixed point; user priorities outermost, then op priorities, then conflict resolution
(aggressive), then the basic step. Source: Shardy's documentation, "Propagation".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod

from partitioner.mesh import Axes, DeviceMesh
from partitioner.program import CONSTRAINT, Program
from partitioner.reading import TO_FULL_CALL, TO_SHARD_CALL, Reader
from partitioner.rules.core import PASS, Mapping, Rule, rule_of
from partitioner.rules.elementwise import is_elementwise
from partitioner.sharding import Annotation, Sharding
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Block, Op, Value
from spmd.types import TensorType

BOTH, FORWARD, BACKWARD, NONE = "both", "forward", "backward", "none"
#: Ops whose dimensions pass through early: the first rounds are theirs alone.
_EARLY = frozenset(("stablehlo.reshape", "stablehlo.transpose", "edge"))
_FORWARD_EARLY = frozenset(("stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice"))
_ROUNDS = 5


@dataclass(eq=False)
class Spec:
    """The layout of one value, or of several that share it, as it grows."""

    shape: tuple[int, ...]
    dimensions: list[Axes]
    closed: list[bool]
    fixed: frozenset[int] = frozenset()  # atoms that must not cut it
    partial: Axes = ()
    reduction: str = "stablehlo.add"
    hidden: dict[int, tuple[int, Axes, bool]] = field(default_factory=dict)  # dimension: priority, axes, closed
    steps: list[Step] = field(default_factory=list)
    is_asked: bool = False
    version: int = 0

    def sharding(self, mesh: DeviceMesh) -> Sharding:
        return Sharding(mesh, tuple(self.dimensions), self.partial, self.reduction)


@dataclass(eq=False)
class Step:
    """One op, or one data-flow edge, that ties specs together by a rule."""

    name: str
    rule: Rule
    specs: list[Spec]
    count: int  # how many of the specs are operands
    is_elementwise: bool
    direction: str = BOTH
    is_single: bool = True  # no operand has another user
    spans: list[int] = field(default_factory=list)  # elements of each tensor
    queued: bool = False
    seen: tuple[str, int] = ("", -1)  # the way it went last, and the versions of its specs then

    @property
    def is_settled(self) -> bool:
        """Whether all tensors of an elementwise op agree already."""
        if not self.is_elementwise:
            return False
        wanted = self.specs[-1].dimensions
        return all(spec.dimensions == wanted or not spec.shape for spec in self.specs)


def propagate(
    program: Program, reader: Reader, axis_priority: Sequence[str] = (), *, only_asked: bool = False
) -> dict[Value, Sharding]:
    """A layout for every tensor value of `program`."""
    graph = _Graph(program, reader)
    graph.build()
    if not only_asked:
        runner = _Runner(graph, reader.mesh)
        for allowed in _axis_rounds(reader.mesh, axis_priority):
            runner.allowed = allowed
            for step in graph.steps:
                step.seen = ("", -1)
            runner.run()
    mesh = reader.mesh
    return {value: spec.sharding(mesh) for value, spec in graph.specs.items()}


def _axis_rounds(mesh: DeviceMesh, names: Sequence[str]) -> list[frozenset[int] | None]:
    """The atoms that may propagate, round by round; None: all of them."""
    rounds: list[frozenset[int] | None] = []
    done: frozenset[int] = frozenset()
    known = {atom.name for atom in mesh.atoms}
    for name in names:
        if name not in known:
            raise CompileError(f'no axis "{name}" to propagate first; the mesh has {mesh.text}')
        done |= frozenset(index for index, atom in enumerate(mesh.atoms) if atom.name == name)
        rounds.append(done)
    return [*rounds, None]


class _Graph:
    """Specs of all values, and the steps between them."""

    def __init__(self, program: Program, reader: Reader) -> None:
        self.program = program
        self.reader = reader
        self.specs: dict[Value, Spec] = {}
        self.steps: list[Step] = []
        self._uses: dict[Value, int] = {}

    def build(self) -> None:
        for op in _all_ops(self.program.block):
            for operand in op.operands:
                self._uses[operand] = self._uses.get(operand, 0) + 1
        self._group()
        self._block(self.program.block, frozenset())
        self._apply_constraints()

    def _group(self) -> None:
        for members in self.program.groups.values():
            shared: Spec | None = None
            for value in members:
                spec = shared or self._new(value, frozenset())
                if spec.shape != value.tensor.static_shape:
                    raise CompileError(f"a sharding group holds values of shapes {spec.shape} and {value.tensor.shape}")
                self._ask_again(spec, value)
                self.specs[value] = shared = spec

    def _ask_again(self, spec: Spec, value: Value) -> None:
        asked = self.program.asked.get(value)
        if asked is None:
            return
        if spec.is_asked and tuple(spec.dimensions) != asked.sharding.dimensions:
            place = value.owner.location if isinstance(value.owner, Op) else self.program.function.location
            text = f"a sharding group asks for {spec.sharding(self.reader.mesh)} and for {asked.sharding}"
            raise CompileError(Diagnostic(place, text, "sdy.sharding_group"))
        _apply(spec, asked)

    def _new(self, value: Value, manual: frozenset[int]) -> Spec:
        shape = value.type.static_shape if isinstance(value.type, TensorType) and value.type.is_static else ()
        spec = Spec(shape, [()] * len(shape), [False] * len(shape), manual)
        for dimension, size in enumerate(shape):
            if size <= 1:
                spec.closed[dimension] = True
        return spec

    def spec(self, value: Value, manual: frozenset[int]) -> Spec:
        found = self.specs.get(value)
        if found is None:
            found = self.specs[value] = self._new(value, manual)
            asked = self.program.asked.get(value)
            if asked is not None and asked.sharding.rank == len(found.shape):
                _apply(found, asked)
        return found

    def _block(self, block: Block, manual: frozenset[int]) -> None:
        for argument in block.arguments:
            self.spec(argument, manual)
        for op in block.ops:
            self._op(op, manual)

    def _op(self, op: Op, manual: frozenset[int]) -> None:
        if op.definition is not None and op.definition.is_terminator:
            return
        if op.name == "stablehlo.while":
            self._while(op, manual)
        elif op.name in ("stablehlo.case", "stablehlo.if"):
            self._branches(op, manual)
        elif op.name == "sdy.manual_computation":
            self._manual(op, manual)
        elif op.name == "stablehlo.custom_call" and op["call_target_name"] in (TO_SHARD_CALL, TO_FULL_CALL):
            self._manual_call(op, manual)
        else:
            self._ruled(op, manual)

    def _ruled(self, op: Op, manual: frozenset[int]) -> None:
        specs = [self.spec(value, manual) for value in (*op.operands, *op.results)]
        if not any(len(spec.shape) for spec in specs) or not op.results:
            return
        try:
            rule = rule_of(op)
        except ValueError as error:
            raise CompileError(Diagnostic(op.location, str(error), op.name)) from None
        direction = BOTH
        if op.name == "sdy.propagation_barrier":
            direction = {"NONE": NONE, "FORWARD": FORWARD, "BACKWARD": BACKWARD}[op["allowed_direction"]]
        single = all(self._uses.get(value, 0) <= 1 or not _rank(value) for value in op.operands)
        is_plain = is_elementwise(op) or op.name == CONSTRAINT
        self._step(op.name, rule, specs, len(op.operands), is_plain, direction, single)

    def _step(
        self, name: str, rule: Rule, specs: list[Spec], count: int, plain: bool, direction: str = BOTH, single: bool = True
    ) -> None:
        step = Step(name, rule, specs, count, plain, direction, single)
        step.spans = [prod(rule.sizes[f] for factors in mapping for f in factors) for mapping in rule.tensors]
        self.steps.append(step)
        for spec in specs:
            spec.steps.append(step)

    def edge(self, sources: Sequence[Spec], target: Spec) -> None:
        """Ties `sources` to `target`, which all have one shape."""
        mapping: Mapping = tuple((index,) for index in range(len(target.shape)))
        if mapping:
            rule = Rule(target.shape, (mapping,) * len(sources), (mapping,), (PASS,) * len(mapping))
            self._step("edge", rule, [*sources, target], len(sources), False)

    def _while(self, op: Op, manual: frozenset[int]) -> None:
        condition, body = (region.block for region in op.regions)
        targets = []
        for index, result in enumerate(op.results):
            target = self.spec(result, manual)
            self.specs[condition.arguments[index]] = self.specs[body.arguments[index]] = target
            targets.append(target)
        self._block(condition, manual)
        self._block(body, manual)
        for operand, returned, target in zip(op.operands, body.terminator.operands, targets, strict=True):
            self.edge([self.spec(operand, manual), self.spec(returned, manual)], target)

    def _branches(self, op: Op, manual: frozenset[int]) -> None:
        for region in op.regions:
            self._block(region.block, manual)
        for index, result in enumerate(op.results):
            sources = [self.spec(region.block.terminator.operands[index], manual) for region in op.regions]
            self.edge(sources, self.spec(result, manual))

    def _manual(self, op: Op, outer: frozenset[int]) -> None:
        inner = outer | self.reader.manual(op)
        body = op.region("body").block
        for operand, argument, given in zip(op.operands, body.arguments, op["in_shardings"].shardings, strict=True):
            self.edge([self.spec(operand, outer)], self._boundary(operand, argument, given, inner, outer))
        self._block(body, inner)
        returned = body.terminator.operands
        for result, value, given in zip(op.results, returned, op["out_shardings"].shardings, strict=True):
            self.edge([self._boundary(result, value, given, inner, outer)], self.spec(result, outer))

    def _manual_call(self, op: Op, outer: frozenset[int]) -> None:
        """GSPMD's way into and out of manual code: as the boundary of a manual computation."""
        into = op["call_target_name"] == TO_SHARD_CALL
        whole, part = (op.operands[0], op.result) if into else (op.result, op.operands[0])
        spec, local = self.spec(whole, outer), self.spec(part, outer)
        manual = self.reader.manual_call(op)
        local.fixed |= manual
        if spec.is_asked:
            self._boundary_step(spec, local, manual)

    def _boundary(
        self, whole: Value, part: Value, given: object, inner: frozenset[int], outer: frozenset[int]
    ) -> Spec:
        """The spec of a value on its way into or out of a manual computation: the manual atoms lead each dimension."""
        spec = self._new(whole, outer)
        asked = self.reader.annotation(given, whole.type)  # type: ignore[arg-type]
        local = self.spec(part, inner)
        if asked is None:
            return spec
        _apply(spec, asked)
        spec.fixed |= inner  # manual atoms stay where they were asked
        self._boundary_step(spec, local, inner)
        return spec

    def _boundary_step(self, spec: Spec, local: Spec, inner: frozenset[int]) -> None:
        """Ties the free part of each dimension: the manual part is a factor of its own in the whole alone."""
        if not spec.shape or len(spec.shape) != len(local.shape):
            return
        mesh = self.reader.mesh
        sizes: list[int] = []
        whole: list[tuple[int, ...]] = []
        part: list[tuple[int, ...]] = []
        for dimension, axes in enumerate(spec.dimensions):
            manual = mesh.count(axis for axis in axes if axis in inner)
            if manual > 1:
                sizes.append(manual)
            sizes.append(local.shape[dimension])
            free = len(sizes) - 1
            part.append((free,))
            whole.append((free - 1, free) if manual > 1 else (free,))
            for axis in axes:
                if axis not in inner and not local.dimensions[dimension]:
                    local.dimensions[dimension] = tuple(a for a in axes if a not in inner)
            if spec.closed[dimension]:
                local.closed[dimension] = True
        rule = Rule(tuple(sizes), (tuple(whole),), (tuple(part),), (PASS,) * len(sizes))
        self._step("edge", rule, [spec, local], 1, False)

    def _apply_constraints(self) -> None:
        """What is asked of a value from some place on is asked of the value itself, when nobody asks otherwise."""
        askers: dict[Value, list[Op]] = {}
        for op in _all_ops(self.program.block):
            if op.name == CONSTRAINT:
                askers.setdefault(op.operands[0], []).append(op)
        for value, ops in askers.items():
            spec = self.specs[value]
            asked = self.program.asked.get(ops[0].result)
            if len(ops) != 1 or spec.is_asked or asked is None or asked.sharding.rank != len(spec.shape):
                continue
            if isinstance(value.owner, Block) and self._uses.get(value, 0) > 1:
                continue
            if spec.fixed & asked.sharding.used:
                continue
            if self._uses.get(ops[0].result, 0) == 0 or all(asked.closed):
                _apply(spec, asked)


def _rank(value: Value) -> int:
    return value.type.rank if isinstance(value.type, TensorType) else 0


def _apply(spec: Spec, asked: Annotation) -> None:
    spec.is_asked = True
    spec.partial, spec.reduction = asked.sharding.partial, asked.sharding.reduction
    spec.fixed |= asked.fixed
    for index, axes in enumerate(asked.sharding.dimensions):
        priority = asked.priority[index]
        if priority > 0:
            spec.hidden[index] = (priority, axes, asked.closed[index])
            spec.closed[index] = True
            spec.fixed |= frozenset(axes)
        else:
            spec.dimensions[index] = axes
            spec.closed[index] = asked.closed[index]


def _all_ops(block: Block) -> Iterable[Op]:
    for op in block.ops:
        yield from op.walk()


# --- the fixed point -------------------------------------------------------------------------------------------------


class _Runner:
    def __init__(self, graph: _Graph, mesh: DeviceMesh) -> None:
        self.graph = graph
        self.mesh = mesh
        self.allowed: frozenset[int] | None = None

    def run(self) -> None:
        specs = {id(spec): spec for step in self.graph.steps for spec in step.specs}.values()
        priorities = sorted({0, *(entry[0] for spec in specs for entry in spec.hidden.values())})
        for priority in priorities:
            for spec in specs:
                _reveal(spec, priority)
            for round in range(_ROUNDS):
                self._round(round)

    def _round(self, round: int) -> None:
        steps = [step for step in self.graph.steps if self._is_live(step, round)]
        pending = steps[::-1]
        for step in pending:
            step.queued = True
        while pending:
            step = pending.pop()
            step.queued = False
            now = (_way(step, round), sum(spec.version for spec in step.specs))
            if step.seen == now or step.is_settled or not any(map(_is_cut, step.specs)):
                continue
            grown = self._step(step, _direction(step, round))
            step.seen = (now[0], sum(spec.version for spec in step.specs))
            for spec in grown:
                for other in spec.steps:
                    if not other.queued and self._is_live(other, round):
                        other.queued = True
                        pending.append(other)

    @staticmethod
    def _is_live(step: Step, round: int) -> bool:
        return step.direction != NONE and (round >= 2 or _early(step, round) is not None)

    def _step(self, step: Step, direction: Callable[[int], str]) -> list[Spec]:
        """Propagates along the factors of one step; returns the specs that grew."""
        rule = step.rule
        axes = [
            _project(spec, mapping, rule.sizes, self.mesh)
            for spec, mapping in zip(step.specs, rule.tensors, strict=True)
        ]
        wanted: list[Axes] = []
        for factor in range(len(rule.sizes)):
            way = NONE if factor in rule.blocked else direction(factor)
            wanted.append(() if way == NONE else _compatible(step, axes, factor, way))
        if not any(wanted):
            return []
        if self.allowed is not None:
            wanted = [_prefix(have, lambda axis: axis in self.allowed) for have in wanted]  # type: ignore[operator]
        order = _order(step, axes, wanted, self.mesh)
        grown = []
        tensors = [*range(step.count, len(step.specs)), *range(step.count)]
        for tensor in tensors:
            if grown and step.specs[tensor] in grown:  # a value that the op takes twice has just changed
                axes[tensor] = _project(step.specs[tensor], rule.tensors[tensor], rule.sizes, self.mesh)
            for factor in order:
                if factor in axes[tensor]:
                    new = self._new_axes(step, axes, tensor, factor, wanted[factor])
                    if new is not None:
                        axes[tensor][factor] = _Factor(new, axes[tensor][factor])
                        spec = step.specs[tensor]
                        _unproject(spec, rule.tensors[tensor], axes[tensor])
                        if spec not in grown:
                            grown.append(spec)
        return grown

    def _new_axes(
        self, step: Step, axes: list[dict[int, _Factor]], tensor: int, factor: int, wanted: Axes
    ) -> Axes | None:
        """What `factor` of `tensor` may grow to, conflicts resolved; None when it does not grow."""
        have, spec = axes[tensor][factor], step.specs[tensor]
        if len(wanted) <= len(have.axes) or wanted[: len(have.axes)] != have.axes:
            return None
        if have.closed or have.overflow:
            return None
        others = {axis for other, entry in axes[tensor].items() if other != factor for axis in (*entry.axes, *entry.overflow)}
        size = step.rule.sizes[factor]
        new: list[int] = []
        product = 1
        for index, axis in enumerate(wanted):
            if index >= len(have.axes):
                if axis in others or axis in spec.fixed or axis in spec.partial:
                    break
                if not have.is_minor and size % (product * self.mesh.sizes[axis]):
                    break
            product *= self.mesh.sizes[axis]
            new.append(axis)
        grown = tuple(new)
        if step.is_elementwise and tensor < step.count:
            for result in axes[step.count :]:
                entry = result.get(factor)
                if entry is not None and len(entry.axes) < len(grown) and grown[: len(entry.axes)] == entry.axes:
                    grown = entry.axes
        return grown if len(grown) > len(have.axes) else None


@dataclass
class _Factor:
    """What cuts one factor of one tensor: `overflow` is what did not fit it."""

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
    """Deals the axes of each dimension out to its factors, major first."""
    found: dict[int, _Factor] = {}
    for dimension, factors in enumerate(mapping):
        axes, closed = spec.dimensions[dimension], spec.closed[dimension]
        if len(factors) == 1:
            found[factors[0]] = _Factor(axes, None, closed)
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
            found[factor] = _Factor(tuple(taken), None, closed, overflow, is_minor)
            if stuck:
                at = len(axes)
    return found


def _is_cut(spec: Spec) -> bool:
    return any(spec.dimensions)


def _way(step: Step, round: int) -> str:
    """Tells apart the rounds in which a step goes different ways."""
    if step.is_elementwise or step.name in _EARLY:
        return "early"
    return str(min(round, 3)) if "broadcast" not in step.name else str(round)


def _unproject(spec: Spec, mapping: Mapping, axes: dict[int, _Factor]) -> None:
    spec.version += 1
    for dimension, factors in enumerate(mapping):
        joined: Axes = ()
        overflow: Axes = ()
        for factor in factors:
            joined += axes[factor].axes
            overflow = axes[factor].overflow or overflow
        spec.dimensions[dimension] = joined + overflow


def _compatible(step: Step, axes: list[dict[int, _Factor]], factor: int, way: str) -> Axes:
    """The longest axes of a factor that no tensor contradicts; only the tensors that `way` starts from extend them."""
    operands, results = axes[: step.count], axes[step.count :]
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
            have = entry.axes
            common = 0
            while common < min(len(merged), len(have)) and merged[common] == have[common]:
                common += 1
            if common < min(len(merged), len(have)):
                merged, can_grow = merged[:common], False
            elif len(have) > len(merged) and can_grow:
                merged = have
    return merged


def _order(step: Step, axes: list[dict[int, _Factor]], wanted: list[Axes], mesh: DeviceMesh) -> list[int]:
    """Factors with something to propagate: those of the largest source tensor first."""
    keyed = []
    for factor, want in enumerate(wanted):
        if not want:
            continue
        size, source = -1, -1
        for tensor, entries in enumerate(axes):
            entry = entries.get(factor)
            if entry is not None and entry.axes[: len(want)] == want and step.spans[tensor] > size:
                size, source = step.spans[tensor], tensor
        blocks = mesh.count(want) if step.is_elementwise else 0
        keyed.append((-size, -blocks, source, factor))
    return [entry[3] for entry in sorted(keyed)]


def _prefix(axes: Axes, holds: Callable[[int], bool]) -> Axes:
    for index, axis in enumerate(axes):
        if not holds(axis):
            return axes[:index]
    return axes


def _reveal(spec: Spec, priority: int) -> None:
    for dimension, (at, axes, closed) in list(spec.hidden.items()):
        if at <= priority:
            del spec.hidden[dimension]
            spec.version += 1
            spec.dimensions[dimension], spec.closed[dimension] = axes, closed
            spec.fixed -= frozenset(axes)


def _early(step: Step, round: int) -> str | None:
    """The direction in which ops that hand dimensions through propagate in the first two rounds."""
    if step.direction == NONE or (round == 0 and not step.is_single):
        return None
    if step.is_elementwise or step.name in _EARLY:
        return BOTH
    return FORWARD if step.name in _FORWARD_EARLY else None


def _direction(step: Step, round: int) -> Callable[[int], str]:
    """Which way each factor of a step propagates in a round: earlier rounds' ways stay open in later ones."""
    early = _early(step, min(round, 1))
    if round >= 4:
        way = BOTH
    elif step.name in ("stablehlo.broadcast_in_dim", "stablehlo.broadcast"):
        way = BACKWARD if round >= 2 else NONE
    else:
        way = BOTH if round >= 2 else NONE
    if round == 2 and way != NONE:
        kinds = step.rule.kinds
        return lambda factor: _meet(_join(early, way if kinds[factor] == PASS else NONE), step.direction)
    return lambda factor: _meet(_join(early, way), step.direction)


def _join(early: str | None, way: str) -> str:
    if early is None or early == way:
        return way
    return early if way == NONE else BOTH


def _meet(way: str, other: str) -> str:
    if way == BOTH:
        return other
    return way if other in (BOTH, way) else NONE
