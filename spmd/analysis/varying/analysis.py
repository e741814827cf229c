"""Which values of a program are the same on all processes, and what is wrong with its communication because of that.

The program of one process is read once, from its arguments on: each value gets a `Fact`. Loops are read until what they
carry settles. Calls are read for each set of facts that they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from collectives.grid import ProcessGrid
from spmd.analysis.collectives import DESCRIPTIONS
from spmd.analysis.varying.events import Event, Meeting
from spmd.analysis.varying.facts import Fact, held_constant, known_results
from spmd.analysis.varying.findings import Finding, Kind, is_ignored
from spmd.analysis.varying.groups import Groups, after, groups_of, paired, root_of, signature
from spmd.analysis.varying.owed import SUMMING, owed_after
from spmd.analysis.varying.partitions import Labels, Partition, Partitions
from spmd.dialects.core import Trait, has_trait
from spmd.errors import CollectiveError, Diagnostic, Location
from spmd.ir import Block, Function, Module, Op, Value
from spmd.support.arrays import Array

#: How what an op gives follows from what it is given; filed by the op's name.
Rule = Callable[["Analysis", Op], None]
RULES: dict[str, Rule] = {}
#: What is looked at in ops to which random numbers come, by the op's name.
MIXING: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """File the rule of the ops `names`."""

    def add(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return add


@dataclass
class Analysis:
    """The facts of a module's values on the processes of `grid`, and what was found.

    causes         for a value that varies, the operand by which it does
    collected      the communication of the block at hand, in its order
    active         1 for each process that comes to the block at hand; None for all
    among_others   whether other processes run other programs
    names          what arguments are called, where that is not their name in the text
    calls          the calls by which the block at hand is reached
    """

    module: Module
    grid: ProcessGrid
    facts: dict[Value, Fact] = field(default_factory=dict)
    causes: dict[Value, Value] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    collected: list[Event] = field(default_factory=list)
    active: Labels | None = None
    among_others: bool = False
    names: dict[Value, str] = field(default_factory=dict)
    calls: list[Op] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.partitions = Partitions(self.grid.num_replicas * self.grid.num_partitions)
        self.nothing = Fact(self.partitions.uniform, self.partitions.uniform)
        self._facts = {(self.nothing.may, self.nothing.sure): self.nothing}
        self._groups: dict[Hashable, Groups] = {}
        self._after: dict[Hashable, Partition] = {}
        self._called: dict[Hashable, tuple[Sequence[Fact], Sequence[Event]]] = {}
        self._functions = {function.symbol: function for function in self.module.functions}
        self._reported: set[tuple[Op, Kind]] = set()

    # --- facts -------------------------------------------------------------------------------------------------------

    def fact(self, value: Value) -> Fact:
        """What is known of `value`; of one that nothing is said of, that it is the same everywhere."""
        return self.facts.get(value, self.nothing)

    def set(self, value: Value, fact: Fact, causes: Iterable[Value] = ()) -> None:
        """File `fact`; the first of `causes` that varies is why `value` does."""
        self.facts[value] = fact
        if not fact.is_uniform and value not in self.causes:
            for cause in causes:
                if cause is not value and not self.fact(cause).is_uniform:
                    self.causes[value] = cause
                    return

    def held(self, known: Array) -> Fact:
        """Return the fact of a value of which each process's numbers are known."""
        if len(known) == 1:
            return Fact(self.partitions.uniform, self.partitions.uniform, known)
        part = self.partitions.of_rows(known)
        return Fact(part, part, known[:1] if part.is_uniform else known)

    def with_constant(self, value: Value, fact: Fact) -> Fact:
        """Return the `fact` of `value`, with its number where it is a constant: for a block that takes it as an
        argument."""
        known = held_constant(value) if fact is self.nothing else None
        return fact if known is None else self.held(known)

    def join(self, facts: Sequence[Fact]) -> Fact:
        """What is computed of values of `facts`, nothing else being known."""
        may = self.partitions.join([fact.may for fact in facts])
        sure = self.partitions.join([fact.sure for fact in facts])
        owed = next((fact.owed for fact in facts if fact.owed is not None), None)
        return self._plain(may, sure) if owed is None else Fact(may, sure, owed=owed)

    def _plain(self, may: Partition, sure: Partition) -> Fact:
        """Return the one fact that says who holds the same and nothing else: facts are mostly compared by identity."""
        known = self._facts.get((may, sure))
        if known is None:
            known = self._facts[may, sure] = Fact(may, sure)
        return known

    # --- the walk ----------------------------------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        """Read the ops of `block`, whose arguments have their facts."""
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
            told = [fact for fact in operands if fact is not nothing]
            if not told:
                for result in op.results:
                    facts.pop(result, None)
            elif told[0].is_plain and told.count(told[0]) == len(told) and op.name not in SUMMING:
                for result in op.results:
                    self.set(result, told[0], op.operands)
            else:
                self.computed(op, operands)

    def computed(self, op: Op, operands: Sequence[Fact]) -> None:
        """File what `op` gives where that follows from its `operands` alone."""
        known = None
        if any(fact.known is not None for fact in operands):
            known = known_results(op, [fact.known for fact in operands[: len(op.operands)]])
        if known is not None:
            self.set(op.results[0], self.held(known), op.operands)
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
            met, owed = self._met(op, joined), owed_after(op, operands)
            plain = random is None and owed is None
            fact = self._plain(met.may, met.sure) if plain else Fact(met.may, met.sure, random=random, owed=owed)
        for result in op.results:
            self.set(result, fact, op.operands)

    def _met(self, op: Op, joined: Fact) -> Fact:
        """What `op` gives of a value and what a permutation gives of that, in either order: the same on both ends."""
        if op.name not in _COMMUTATIVE:
            return joined
        for value, other in (op.operands, op.operands[::-1]):
            permutation = other.defining_op
            if permutation is not None and permutation.name == _PERMUTATION and permutation.operands[0] is value:
                groups = self.groups(permutation)
                fact = self.fact(value)
                if groups is not None:
                    may, sure = (paired(groups, part, self.partitions) for part in (fact.may, fact.sure))
                    return Fact(may, sure)
        return joined

    def call(self, symbol: str, operands: Sequence[Value]) -> tuple[Sequence[Fact], Function] | None:
        """Return the facts of what the function `symbol` returns; None for one without a body."""
        function = self._functions.get(symbol)
        if function is None or function.is_declaration:
            return None
        facts = [self.fact(operand) for operand in operands]
        if any(fact.known is not None for fact in facts):
            facts = [self.with_constant(operand, fact) for operand, fact in zip(operands, facts, strict=True)]
        given = ((fact.may, fact.sure, _bytes(fact.known), fact.random, fact.owed) for fact in facts)
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
        """`op`, what is in its regions, and what functions have that are called there."""
        waiting, called = [op], set[str]()
        for each in waiting:  # which grows
            for inner in each.walk():
                yield inner
                symbol = inner.attributes.get("callee") or inner.attributes.get("decomposition")
                function = self._functions.get(str(symbol))
                if function is not None and function.symbol not in called:
                    called.add(function.symbol)
                    waiting.append(function)

    @contextmanager
    def collecting(self) -> Iterator[list[Event]]:
        """Within it, communication is collected apart."""
        before, self.collected = self.collected, []
        try:
            yield self.collected
        finally:
            self.collected = before

    @contextmanager
    def among(self, mask: Labels | None) -> Iterator[None]:
        """Within it, only the processes of `mask` are there."""
        before = self.active
        if mask is not None:
            self.active = mask if before is None else before * mask
        try:
            yield
        finally:
            self.active = before

    # --- reports -----------------------------------------------------------------------------------------------------

    def mark(self) -> tuple[int, int]:
        """Where the analysis stands, to return to."""
        return len(self.findings), len(self._called)

    def return_to(self, mark: tuple[int, int]) -> None:
        """Forgets what was found since `mark`: facts were not settled yet."""
        findings, called = mark
        for finding in self.findings[findings:]:
            self._reported.discard((finding.op, finding.kind))
        del self.findings[findings:]
        for key in list(self._called)[called:]:
            del self._called[key]

    def report(self, kind: Kind, op: Op, text: str, certain: bool, notes: Sequence[str] = (), label: str = "") -> None:
        """Add a finding at `op`, once an op and kind, unless its line silences it."""
        location = self.place(op)
        if (op, kind) in self._reported or is_ignored(kind, location):
            return
        self._reported.add((op, kind))
        self.findings.append(Finding(kind, certain, Diagnostic(location, text, op.name, label, tuple(notes)), op))

    def place(self, op: Op) -> Location:
        """Where `op` stands; inside of a library's function, which has no lines of its own, where that is called."""
        own = self.module.location.file
        places = [op.location, *(call.location for call in reversed(self.calls))]
        return next((place for place in places if place.file != own), op.location)

    def report_result(self, value: Value, entry: Op, text: str, certain: bool, notes: Sequence[str]) -> None:
        """Add a finding at what makes `value`, a result of `entry`."""
        op = value.defining_op or entry
        location = self.place(op)
        if is_ignored(Kind.VARYING_RESULT, location):
            return
        diagnostic = Diagnostic(location, text, op.name, notes=tuple(notes))
        self.findings.append(Finding(Kind.VARYING_RESULT, certain, diagnostic, op))

    def after(self, op: Op, groups: Groups, part: Partition, roots: Partition) -> Partition:
        """Who holds the same result of the collective `op` on an operand of `part`."""
        key = (op.name, id(groups), part, roots, root_of(op))
        known = self._after.get(key)
        if known is None:
            known = self._after[key] = after(op, groups, part, roots, self.partitions)
        return known

    def groups(self, op: Op) -> Groups | None:
        """Return the groups of the collective `op`; None, with a report, where the grid does not have them."""
        key = _grouping(op)
        known = self._groups.get(key)
        if known is None:
            try:
                known = self._groups[key] = groups_of(op, self.grid, self.module)
            except CollectiveError as error:
                fault = error.diagnostics[0]
                self.report(Kind.GROUPS, op, fault.message, certain=True, label=fault.label)
        return known


def _captured(op: Op) -> list[Value]:
    """Values that the regions of `op` read from around it, or that vary by what is inside."""
    inside: dict[Value, None] = {}
    for region in op.regions:
        for block in region.blocks:
            for inner in block.ops:
                for each in inner.walk():
                    inside.update(dict.fromkeys(each.operands))
    return list(inside)


def _random_of(op: Op, operands: Sequence[Fact]) -> Op | None:
    """Return the op that drew the random numbers that an elementwise result is made of."""
    if not (has_trait(op, Trait.ELEMENTWISE) or op.name in _SAME_ELEMENTS):
        return None
    return next((fact.random for fact in operands if fact.random is not None), None)


_PERMUTATION = "stablehlo.collective_permute"
_COMMUTATIVE = frozenset(f"stablehlo.{name}" for name in ("add", "multiply", "maximum", "minimum", "and", "or", "xor"))
#: Ops whose result has the operand's elements, each once.
_SAME_ELEMENTS = frozenset(f"stablehlo.{name}" for name in ("reshape", "transpose", "slice", "bitcast_convert"))


def _grouping(op: Op) -> Hashable:
    """What of `op` its process groups depend on."""
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
    given = tuple([analysis.fact(operand).may for operand in operands])
    analysis.collected.append(Meeting(op, groups, signature(op), given))
    for operand, result in zip(operands, op.results, strict=True):
        fact = analysis.fact(operand)
        may = analysis.after(op, groups, fact.may, roots.may)
        sure = analysis.after(op, groups, fact.sure, roots.sure)
        analysis.set(result, Fact(may, sure), (operand,))
