"""Finds which values are equal on all processes, and faults of communication that follow.

A forward dataflow analysis of the program of one process that gives each value a `Fact`. Loops are iterated to a fixed
point, and functions analysed once for each combination of facts of their arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from collectives.grid import ProcessGrid
from spmd.analysis.collectives import DESCRIPTIONS
from spmd.analysis.varying.events import CollectiveEvent, Event
from spmd.analysis.varying.facts import Fact, known_constant, known_results
from spmd.analysis.varying.findings import Finding, FindingKind, is_ignored
from spmd.analysis.varying.groups import GroupArray, after, groups_of, paired, root_of, signature
from spmd.analysis.varying.partial_sums import SUMMING, partial_after
from spmd.analysis.varying.partitions import Labels, Partition, Partitions
from spmd.dialects.core import Trait, has_trait
from spmd.errors import CollectiveError, Diagnostic, Location
from spmd.ir import Block, Function, Module, Op, Value
from spmd.support.arrays import Array

#: Transfer function of an op: sets the facts of its results; registered by the op's name.
Rule = Callable[["Analysis", Op], None]
RULES: dict[str, Rule] = {}
#: Checks of ops that have random numbers among their operands, by the op's name.
MIXING: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Return a decorator that registers the rule of the ops `names`."""

    def add(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return add


@dataclass
class Analysis:
    """The facts of a module's values on the processes of `grid`, and the findings.

    causes     for each value that varies, the operand from which it does
    collected  the communication of the current block, in order
    active     1 for each process that executes the current block, else 0; None for all
    is_mpmd    whether other processes run other programs
    names      display names of arguments that differ from those in the text
    calls      the call stack of the current block
    """

    module: Module
    grid: ProcessGrid
    facts: dict[Value, Fact] = field(default_factory=dict)
    causes: dict[Value, Value] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    collected: list[Event] = field(default_factory=list)
    active: Labels | None = None
    is_mpmd: bool = False
    names: dict[Value, str] = field(default_factory=dict)
    calls: list[Op] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.partitions = Partitions(self.grid.num_replicas * self.grid.num_partitions)
        self.nothing = Fact(self.partitions.uniform, self.partitions.uniform)
        self._facts = {(self.nothing.may, self.nothing.sure): self.nothing}
        self._groups: dict[Hashable, GroupArray] = {}
        self._after: dict[Hashable, Partition] = {}
        self._called: dict[Hashable, tuple[Sequence[Fact], Sequence[Event]]] = {}
        self._functions = {function.symbol: function for function in self.module.functions}
        self._reported: set[tuple[Op, FindingKind]] = set()

    # --- facts -------------------------------------------------------------------------------------------------------

    def fact(self, value: Value) -> Fact:
        """Return the fact of `value`; without one it is equal on all processes."""
        return self.facts.get(value, self.nothing)

    def set(self, value: Value, fact: Fact, causes: Iterable[Value] = ()) -> None:
        """Set the fact of `value`; its cause is the first of `causes` that varies."""
        self.facts[value] = fact
        if not fact.is_uniform and value not in self.causes:
            for cause in causes:
                if cause is not value and not self.fact(cause).is_uniform:
                    self.causes[value] = cause
                    return

    def known_fact(self, known: Array) -> Fact:
        """Return the fact of a value whose contents `known` are known on each process, or on all."""
        if len(known) == 1:
            return Fact(self.partitions.uniform, self.partitions.uniform, known)
        partition = self.partitions.of_rows(known)
        return Fact(partition, partition, known[:1] if partition.is_uniform else known)

    def with_constant(self, value: Value, fact: Fact) -> Fact:
        """Return `fact` with the contents of `value` if it is a constant, for a block that takes it as an argument."""
        known = known_constant(value) if fact is self.nothing else None
        return fact if known is None else self.known_fact(known)

    def join(self, facts: Sequence[Fact]) -> Fact:
        """Return the join of `facts`: the fact of a value computed from values with these facts."""
        may = self.partitions.join([fact.may for fact in facts])
        sure = self.partitions.join([fact.sure for fact in facts])
        partial = next((fact.partial for fact in facts if fact.partial is not None), None)
        return self._plain(may, sure) if partial is None else Fact(may, sure, partial=partial)

    def _plain(self, may: Partition, sure: Partition) -> Fact:
        """Return the shared fact of two partitions without other knowledge; facts are mostly compared by identity."""
        known = self._facts.get((may, sure))
        if known is None:
            known = self._facts[may, sure] = Fact(may, sure)
        return known

    # --- the walk ----------------------------------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        """Analyse the ops of `block`, whose arguments must have facts."""
        facts, nothing = self.facts, self.nothing
        for op in block.ops:
            special = RULES.get(op.name)
            if special is not None:
                special(self, op)
                continue
            if op.regions:
                operands = [facts.get(value, nothing) for value in (*op.operands, *_captured(op))]
            else:
                operands = [facts.get(operand, nothing) for operand in op.operands]
            informative = [fact for fact in operands if fact is not nothing]
            if not informative:
                for result in op.results:
                    facts.pop(result, None)
            elif (
                informative[0].is_plain
                and informative.count(informative[0]) == len(informative)
                and op.name not in SUMMING
            ):
                for result in op.results:
                    self.set(result, informative[0], op.operands)
            else:
                self.computed(op, operands)

    def computed(self, op: Op, operands: Sequence[Fact]) -> None:
        """Set the facts of the results of `op`, which depend on its `operands` alone."""
        known = None
        if any(fact.known is not None for fact in operands):
            known = known_results(op, [fact.known for fact in operands[: len(op.operands)]])
        if known is not None:
            self.set(op.results[0], self.known_fact(known), op.operands)
            return
        joined = self.join(operands)
        random = None
        if any(fact.random is not None for fact in operands):
            random = _random_of(op, operands)
            check = MIXING.get(op.name)
            if check is not None:
                check(self, op)
        if joined.is_uniform and random is None:
            fact = self.nothing
        else:
            exchanged, partial = self._exchanged(op, joined), partial_after(op, operands)
            plain = random is None and partial is None
            fact = (
                self._plain(exchanged.may, exchanged.sure)
                if plain
                else Fact(exchanged.may, exchanged.sure, random=random, partial=partial)
            )
        for result in op.results:
            self.set(result, fact, op.operands)

    def _exchanged(self, op: Op, joined: Fact) -> Fact:
        """Refine the fact of a commutative op on a value and a permutation of it: both ends of a pair are equal."""
        if op.name not in _COMMUTATIVE:
            return joined
        for value, other in (op.operands, op.operands[::-1]):
            permutation = other.defining_op
            if permutation is not None and permutation.name == _PERMUTATION and permutation.operands[0] is value:
                groups = self.groups(permutation)
                fact = self.fact(value)
                if groups is not None:
                    may, sure = (paired(groups, partition, self.partitions) for partition in (fact.may, fact.sure))
                    return Fact(may, sure)
        return joined

    def call(self, symbol: str, operands: Sequence[Value]) -> tuple[Sequence[Fact], Function] | None:
        """Return the facts of the results of the function `symbol`, and the function; None if it has no body."""
        function = self._functions.get(symbol)
        if function is None or function.is_declaration:
            return None
        facts = [self.fact(operand) for operand in operands]
        if any(fact.known is not None for fact in facts):
            facts = [self.with_constant(operand, fact) for operand, fact in zip(operands, facts, strict=True)]
        given = ((fact.may, fact.sure, _bytes(fact.known), fact.random, fact.partial) for fact in facts)
        key = (symbol, _bytes(self.active), *given)
        known = self._called.get(key)
        if known is None:
            for argument, operand, fact in zip(function.arguments, operands, facts, strict=True):
                self.set(argument, fact, (operand,))
            with self.collecting() as events:
                self.block(function.body)
            known = [self.fact(value) for value in function.body.terminator.operands], events
            self._called[key] = known
        self.collected.extend(known[1])
        return known[0], function

    def reached(self, op: Op) -> Iterator[Op]:
        """Yield `op`, the ops in its regions, and those of all functions called from there."""
        waiting, called = [op], set[str]()
        for each in waiting:  # grows
            for inner in each.walk():
                yield inner
                symbol = inner.attributes.get("callee") or inner.attributes.get("decomposition")
                function = self._functions.get(str(symbol))
                if function is not None and function.symbol not in called:
                    called.add(function.symbol)
                    waiting.append(function)

    @contextmanager
    def collecting(self) -> Iterator[list[Event]]:
        """Collect communication into a separate list within the context."""
        before, self.collected = self.collected, []
        try:
            yield self.collected
        finally:
            self.collected = before

    @contextmanager
    def restricted_to(self, mask: Labels | None) -> Iterator[None]:
        """Restrict the context to the processes of `mask`."""
        before = self.active
        if mask is not None:
            self.active = mask if before is None else before * mask
        try:
            yield
        finally:
            self.active = before

    # --- reports -----------------------------------------------------------------------------------------------------

    def mark(self) -> tuple[int, int]:
        """Return a state of the analysis for `return_to`."""
        return len(self.findings), len(self._called)

    def return_to(self, mark: tuple[int, int]) -> None:
        """Discard the findings and analysed calls since `mark`, whose facts were not final."""
        findings, called = mark
        for finding in self.findings[findings:]:
            self._reported.discard((finding.op, finding.kind))
        del self.findings[findings:]
        for key in list(self._called)[called:]:
            del self._called[key]

    def report(
        self, kind: FindingKind, op: Op, text: str, certain: bool, notes: Sequence[str] = (), label: str = ""
    ) -> None:
        """Add a finding at `op`, once per op and kind, unless the source line suppresses it."""
        location = self.location_of(op)
        if (op, kind) in self._reported or is_ignored(kind, location):
            return
        self._reported.add((op, kind))
        self.findings.append(Finding(kind, certain, Diagnostic(location, text, op.name, label, tuple(notes)), op))

    def location_of(self, op: Op) -> Location:
        """Return the location of `op`; within a library function, which has no source lines, that of its call."""
        own = self.module.location.file
        places = [op.location, *(call.location for call in reversed(self.calls))]
        return next((place for place in places if place.file != own), op.location)

    def report_result(self, value: Value, entry: Op, text: str, certain: bool, notes: Sequence[str]) -> None:
        """Add a finding at the op that defines `value`, a result of `entry`."""
        op = value.defining_op or entry
        location = self.location_of(op)
        if is_ignored(FindingKind.VARYING_RESULT, location):
            return
        diagnostic = Diagnostic(location, text, op.name, notes=tuple(notes))
        self.findings.append(Finding(FindingKind.VARYING_RESULT, certain, diagnostic, op))

    def after(self, op: Op, groups: GroupArray, partition: Partition, roots: Partition) -> Partition:
        """Return the partition of the result of collective `op` on an operand of `partition`, cached."""
        key = (op.name, id(groups), partition, roots, root_of(op))
        known = self._after.get(key)
        if known is None:
            known = self._after[key] = after(op, groups, partition, roots, self.partitions)
        return known

    def groups(self, op: Op) -> GroupArray | None:
        """Return the groups of collective `op`; None, with a report, if they do not fit the grid."""
        key = _grouping(op)
        known = self._groups.get(key)
        if known is None:
            try:
                known = self._groups[key] = groups_of(op, self.grid, self.module)
            except CollectiveError as error:
                fault = error.diagnostics[0]
                self.report(FindingKind.GROUPS, op, fault.message, certain=True, label=fault.label)
        return known


def _captured(op: Op) -> list[Value]:
    """Return the operands of the ops in the regions of `op`, its captured values among them."""
    inside: dict[Value, None] = {}
    for region in op.regions:
        for block in region.blocks:
            for inner in block.ops:
                for each in inner.walk():
                    inside.update(dict.fromkeys(each.operands))
    return list(inside)


def _random_of(op: Op, operands: Sequence[Fact]) -> Op | None:
    """Return the op that drew the random numbers of an elementwise result; None if there are none."""
    if not (has_trait(op, Trait.ELEMENTWISE) or op.name in _SAME_ELEMENTS):
        return None
    return next((fact.random for fact in operands if fact.random is not None), None)


_PERMUTATION = "stablehlo.collective_permute"
_COMMUTATIVE = frozenset(f"stablehlo.{name}" for name in ("add", "multiply", "maximum", "minimum", "and", "or", "xor"))
#: Ops whose result has elements of the operand, each at most once.
_SAME_ELEMENTS = frozenset(f"stablehlo.{name}" for name in ("reshape", "transpose", "slice", "bitcast_convert"))


def _grouping(op: Op) -> Hashable:
    """Return the attributes that determine the process groups of `op`, as a key."""
    given = op.attributes.get("replica_groups")
    pairs = op.attributes.get("source_target_pairs")
    ids = given if pairs is None else pairs
    rows = (ids.shape, ids.tobytes()) if isinstance(ids, np.ndarray) else repr(ids)
    handle = op.attributes.get("channel_handle")
    crosses = handle is not None and handle.handle > 0
    return (
        op.name == "stablehlo.cross-replica-sum",
        pairs is None,
        rows,
        crosses,
        bool(op.attributes.get("use_global_device_ids")),
    )


def _bytes(array: Array | None) -> bytes | None:
    return None if array is None else array.tobytes()


@rule(*DESCRIPTIONS)
def _collective(analysis: Analysis, op: Op) -> None:
    groups = analysis.groups(op)
    if groups is None:
        return
    roots = analysis.nothing
    operands = op.operands
    if op.attributes.get("has_dynamic_root"):
        roots, operands = analysis.fact(op.operands[-1]), op.operands[:-1]
    partitions = tuple([analysis.fact(operand).may for operand in operands])
    analysis.collected.append(CollectiveEvent(op, groups, signature(op), partitions))
    for operand, result in zip(operands, op.results, strict=True):
        fact = analysis.fact(operand)
        may = analysis.after(op, groups, fact.may, roots.may)
        sure = analysis.after(op, groups, fact.sure, roots.sure)
        analysis.set(result, Fact(may, sure), (operand,))
