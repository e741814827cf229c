"""The graph that propagation works on: a spec per value, and edges that relate specs by factor rules.

An op is an edge with its factor rule. Data-flow edges (of loops, branches and manual computations) have identity
rules: their sources and targets must be sharded alike. Source: Shardy's documentation, "Data flow ops".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from partitioner.manual_values import global_and_local, is_boundary
from partitioner.mesh import Axes, DeviceMesh
from partitioner.program import CONSTRAINT, ImportedProgram
from partitioner.reading import ShardingReader
from partitioner.rules.core import PASS, Maker, Mapping, Rule
from partitioner.rules.elementwise import is_elementwise
from partitioner.sharding import Annotation, Sharding
from spmd.dialects.sdy_attributes import TensorSharding
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Block, Op, Value
from spmd.types import TensorType

BOTH, FORWARD, BACKWARD, NONE = "both", "forward", "backward", "none"
#: The name of data-flow edges; others have the name of their op.
DATA_FLOW = "edge"


@dataclass(eq=False)
class Spec:
    """The sharding of one value, or of several that share it, as propagation extends it."""

    shape: tuple[int, ...]
    dimensions: list[Axes]
    closed: list[bool]
    fixed: frozenset[int] = frozenset()  # sub-axes that must not shard it
    partial: Axes = ()
    reduction: str = "stablehlo.add"
    hidden: dict[int, tuple[int, Axes, bool]] = field(default_factory=dict)  # dimension: priority, axes, closed
    edges: list[PropagationEdge] = field(default_factory=list)
    is_annotated: bool = False
    version: int = 0

    def sharding(self, mesh: DeviceMesh) -> Sharding:
        """Return the layout as it is now."""
        return Sharding(mesh, tuple(self.dimensions), self.partial, self.reduction)


@dataclass(eq=False)
class PropagationEdge:
    """An op or a data-flow edge, which relates specs by a rule."""

    name: str
    rule: Rule
    specs: list[Spec]
    count: int  # number of operands among the specs
    is_elementwise: bool
    direction: str = BOTH
    is_single: bool = True  # no operand has another user
    spans: list[int] = field(default_factory=list)  # number of elements of each tensor
    queued: bool = False
    seen: tuple[str, int] = ("", -1)  # direction of the last visit, and the sum of its specs' versions then
    op: Op | None = None  # for data flow the loop, branch or manual computation

    @property
    def is_settled(self) -> bool:
        """Whether all tensors of an elementwise op agree already."""
        if not self.is_elementwise:
            return False
        target_dimensions = self.specs[-1].dimensions
        return all(spec.dimensions == target_dimensions or not spec.shape for spec in self.specs)


class Graph:
    """The specs of all values of a program, and the edges between them."""

    def __init__(self, program: ImportedProgram, reader: ShardingReader, rule_of: Maker) -> None:
        self.program = program
        self.reader = reader
        self.rule_of = rule_of
        self.specs: dict[Value, Spec] = {}
        self.edges: list[PropagationEdge] = []
        self._uses: dict[Value, int] = {}

    def build(self) -> None:
        """Build specs and edges of the whole program; raises CompileError for contradicting annotations."""
        for op in self.program.block.walk():
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
                    shapes = f"{spec.shape} and {value.tensor.shape}"
                    raise CompileError(f"values of a sharding group must have the same shape, got {shapes}")
                self._merge_annotation(spec, value)
                self.specs[value] = shared = spec

    def _merge_annotation(self, spec: Spec, value: Value) -> None:
        annotation = self.program.annotations.get(value)
        if annotation is None:
            return
        if spec.is_annotated and tuple(spec.dimensions) != annotation.sharding.dimensions:
            place = value.owner.location if isinstance(value.owner, Op) else self.program.function.location
            shardings = f"{spec.sharding(self.reader.mesh)} and {annotation.sharding}"
            text = f"the shardings of a sharding group must be equal, got {shardings}"
            raise CompileError(Diagnostic(place, text, "sdy.sharding_group"))
        _apply(spec, annotation)

    def _new(self, value: Value, manual: frozenset[int]) -> Spec:
        shape = value.type.static_shape if isinstance(value.type, TensorType) and value.type.is_static else ()
        spec = Spec(shape, [()] * len(shape), [False] * len(shape), manual)
        for dimension, size in enumerate(shape):
            if size <= 1:
                spec.closed[dimension] = True
        return spec

    def spec(self, value: Value, manual: frozenset[int]) -> Spec:
        """Return the spec of `value`, made on first use; `manual` holds the manual sub-axes of the surrounding code."""
        own_spec = self.specs.get(value)
        if own_spec is None:
            own_spec = self.specs[value] = self._new(value, manual | self.program.manual.get(value, frozenset()))
            annotation = self.program.annotations.get(value)
            if annotation is not None and annotation.sharding.rank == len(own_spec.shape):
                _apply(own_spec, annotation)
        return own_spec

    def _block(self, block: Block, manual: frozenset[int]) -> None:
        for argument in block.arguments:
            self.spec(argument, manual)
        for op in block.ops:
            self._op(op, manual)

    def _op(self, op: Op, manual: frozenset[int]) -> None:
        if op.definition is not None and op.definition.is_terminator:
            return
        if op in self.program.devices:  # its operands are replicated; its results exist on its device only
            for value in op.results:
                self.spec(value, manual)
            return
        if op.name == "stablehlo.while":
            self._while(op, manual)
        elif op.name in ("stablehlo.case", "stablehlo.if"):
            self._branches(op, manual)
        elif op.name == "sdy.manual_computation":
            self._manual(op, manual)
        elif is_boundary(op):
            self._manual_call(op, manual)
        else:
            self._ruled(op, manual)

    def _ruled(self, op: Op, manual: frozenset[int]) -> None:
        specs = [self.spec(value, manual) for value in (*op.operands, *op.results)]
        if not any(len(spec.shape) for spec in specs) or not op.results:
            return
        try:
            rule = self.rule_of(op)
        except ValueError as error:
            raise CompileError(Diagnostic(op.location, str(error), op.name)) from None
        direction = BOTH
        if op.name == "sdy.propagation_barrier":
            direction = {"NONE": NONE, "FORWARD": FORWARD, "BACKWARD": BACKWARD}[op["allowed_direction"]]
        single = all(self._uses.get(value, 0) <= 1 or not _rank(value) for value in op.operands)
        is_plain = is_elementwise(op) or op.name == CONSTRAINT
        self._add_edge(op, op.name, rule, specs, len(op.operands), is_plain, direction, single)

    def _add_edge(
        self,
        op: Op,
        name: str,
        rule: Rule,
        specs: list[Spec],
        count: int,
        plain: bool,
        direction: str = BOTH,
        single: bool = True,
    ) -> None:
        edge = PropagationEdge(name, rule, specs, count, plain, direction, single, op=op)
        edge.spans = [prod(rule.sizes[f] for factors in mapping for f in factors) for mapping in rule.tensors]
        self.edges.append(edge)
        for spec in specs:
            spec.edges.append(edge)

    def edge(self, op: Op, sources: Sequence[Spec], target: Spec) -> None:
        """Add a data-flow edge of `op` from `sources` to `target`, which all have the same shape."""
        mapping: Mapping = tuple((index,) for index in range(len(target.shape)))
        if mapping:
            rule = Rule(target.shape, (mapping,) * len(sources), (mapping,), (PASS,) * len(mapping))
            self._add_edge(op, DATA_FLOW, rule, [*sources, target], len(sources), False)

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
            self.edge(op, [self.spec(operand, manual), self.spec(returned, manual)], target)

    def _branches(self, op: Op, manual: frozenset[int]) -> None:
        for region in op.regions:
            self._block(region.block, manual)
        for index, result in enumerate(op.results):
            sources = [self.spec(region.block.terminator.operands[index], manual) for region in op.regions]
            self.edge(op, sources, self.spec(result, manual))

    def _manual(self, op: Op, outer: frozenset[int]) -> None:
        inner = outer | self.reader.manual(op)
        body = op.region("body").block
        for operand, argument, sharding in zip(op.operands, body.arguments, op["in_shardings"].shardings, strict=True):
            self.edge(op, [self.spec(operand, outer)], self._boundary(op, operand, argument, sharding, inner, outer))
        self._block(body, inner)
        returned = body.terminator.operands
        for result, value, sharding in zip(op.results, returned, op["out_shardings"].shardings, strict=True):
            self.edge(op, [self._boundary(op, result, value, sharding, inner, outer)], self.spec(result, outer))

    def _manual_call(self, op: Op, outer: frozenset[int]) -> None:
        """Add the edges of a GSPMD call into or out of manual code, as for the boundary of a manual computation."""
        whole, part = global_and_local(op)
        inner = outer | self.program.manual.get(part, frozenset())
        local, boundary = self.spec(part, inner), self._new(whole, outer)
        annotation = self.program.annotations.get(whole)
        if annotation is not None:
            _apply(boundary, annotation)
        boundary.fixed |= inner  # manual sub-axes stay as annotated
        self._boundary_step(op, boundary, local, inner)
        if whole is op.result:
            self.edge(op, [boundary], self.spec(whole, outer))
        else:
            self.edge(op, [self.spec(whole, outer)], boundary)

    def _boundary(
        self,
        op: Op,
        whole: Value,
        part: Value,
        sharding: TensorSharding,
        inner: frozenset[int],
        outer: frozenset[int],
    ) -> Spec:
        """Return the spec of a value at the boundary of manual code: manual sub-axes are major in each dimension."""
        spec = self._new(whole, outer)
        annotation = self.reader.annotation_of(op, sharding, whole.type)
        local = self.spec(part, inner)
        if annotation is None:
            return spec
        _apply(spec, annotation)
        spec.fixed |= inner  # manual sub-axes stay as annotated
        self._boundary_step(op, spec, local, inner)
        return spec

    def _boundary_step(self, op: Op, spec: Spec, local: Spec, inner: frozenset[int]) -> None:
        """Relate the free sub-axes of each dimension; the manual ones are a factor of the global value only."""
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
            following = tuple(axis for axis in axes if axis not in inner)
            used = frozenset((*local.fixed, *local.partial)).union(*local.dimensions)
            if following and not local.dimensions[dimension] and used.isdisjoint(following):
                local.dimensions[dimension] = following
            if spec.closed[dimension]:
                local.closed[dimension] = True
        rule = Rule(tuple(sizes), (tuple(whole),), (tuple(part),), (PASS,) * len(sizes))
        self._add_edge(op, DATA_FLOW, rule, [spec, local], 1, False)

    def _apply_constraints(self) -> None:
        """Apply the annotation of a value's only sharding constraint to the value itself, unless contradicted."""
        askers: dict[Value, list[Op]] = {}
        for op in self.program.block.walk():
            if op.name == CONSTRAINT:
                askers.setdefault(op.operands[0], []).append(op)
        for value, ops in askers.items():
            spec = self.specs[value]
            annotation = self.program.annotations.get(ops[0].result)
            if len(ops) != 1 or spec.is_annotated or annotation is None or annotation.sharding.rank != len(spec.shape):
                continue
            if isinstance(value.owner, Block) and self._uses.get(value, 0) > 1:
                continue
            if spec.fixed & annotation.sharding.used:
                continue
            if self._uses.get(ops[0].result, 0) == 0 or all(annotation.closed):
                _apply(spec, annotation)


def _rank(value: Value) -> int:
    return value.type.rank if isinstance(value.type, TensorType) else 0


def _apply(spec: Spec, annotation: Annotation) -> None:
    spec.is_annotated = True
    spec.partial, spec.reduction = annotation.sharding.partial, annotation.sharding.reduction
    spec.fixed |= annotation.fixed
    for index, axes in enumerate(annotation.sharding.dimensions):
        priority = annotation.priority[index]
        if priority > 0:
            spec.hidden[index] = (priority, axes, annotation.closed[index])
            spec.closed[index] = True
            spec.fixed |= frozenset(axes)
        else:
            spec.dimensions[index] = axes
            spec.closed[index] = annotation.closed[index]
