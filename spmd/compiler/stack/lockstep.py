"""Different programs in lockstep: each is emitted up to its next communication, which is then emitted for all.

They meet at a collective, or at control flow that contains communication, which all must execute alike: their
predicates are one value, or equal pure computations. Programs whose processes communicate only with each other meet
without the others, which may be elsewhere or have ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from collectives.operations import CollectivePermute, describe
from spmd.analysis.collectives import COMMUNICATING, DESCRIPTIONS, Collective
from spmd.compiler.stack.collective import StackSettings
from spmd.compiler.stack.core import StackedValue, Stacker, Tree, leaves, rebuilt, refuse
from spmd.compiler.stack.mailboxes import RECV, SEND, Mailboxes
from spmd.compiler.stack.placing import inverse, take_rows
from spmd.dialects.core import Trait, has_trait, is_pure
from spmd.errors import CollectiveError, CompileError, Diagnostic, SpmdError
from spmd.ir import Block, Op, Region, Value
from spmd.types import FutureType, Type


@dataclass
class _Cursor:
    """A program's position in a block: `at` is the next op that involves other programs."""

    number: int
    part: Stacker
    block: Block
    ops: Iterator[Op] = field(init=False)
    at: Op | None = None

    def __post_init__(self) -> None:
        self.ops = iter(self.block.ops[:-1])

    @property
    def op(self) -> Op:
        assert self.at is not None
        return self.at

    def advance(self, mailboxes: Mailboxes) -> bool:
        """Emit ops up to the next one that involves other programs; return whether there were any."""
        moved = False
        while self.at is None or self.at.name == RECV:
            op = self.at or next(self.ops, None)
            self.at = None
            if op is None:
                return moved
            if op.name == SEND:
                mailboxes.send(self.part, self.number, op)
                self.part.trees[op.results[0]] = self.part.trees[op.operands[-1]]
            elif op.name == RECV:
                received = mailboxes.receive(self.part, self.number, op)
                if received is None:
                    self.at = op
                    return moved
                self.part.trees.update(zip(op.results, [*received, self.part.trees[op.operands[0]]], strict=True))
            elif op.name in DESCRIPTIONS or op.name == "stablehlo.async_start" or _communicates(op):
                self.at = op
            else:
                self.part.apply(op)
            moved = True
        return moved


def _communicates(op: Op) -> bool:
    return any(inner.name in COMMUNICATING for inner in op.walk())


class Lockstep:
    """The programs of `parts`, each a stacker of its processes; `whole` has the values of all processes.

    `numbers` are the indices of the programs, if these are a subset.
    """

    def __init__(
        self, whole: Stacker, parts: Sequence[Stacker], mailboxes: Mailboxes, numbers: Sequence[int] | None = None
    ) -> None:
        self.whole, self.parts, self.mailboxes = whole, parts, mailboxes
        self.numbers = range(len(parts)) if numbers is None else numbers
        present = {rank for part in parts for rank in part.row_ranks}
        self.absent = [rank for rank in range(whole.size) if rank not in present]

    def run(self, blocks: Sequence[Block]) -> list[list[Tree]]:
        """Emit a block of each program into the current block of `whole`; return the results of each."""
        for part in self.parts:
            part.ops = self.whole.ops
        cursors = [_Cursor(*each) for each in zip(self.numbers, self.parts, blocks, strict=True)]
        while True:
            while any(cursor.advance(self.mailboxes) for cursor in cursors):
                pass
            if all(cursor.at is None for cursor in cursors):
                break
            together = _next_meeting(cursors, self.mailboxes)
            numbers = [cursor.number for cursor in together]
            meeting = Lockstep(self.whole, [cursor.part for cursor in together], self.mailboxes, numbers)
            meeting._meet(together)
            for cursor in together:
                cursor.at = None
        return [
            [part.trees[value] for value in b.terminator.operands] for part, b in zip(self.parts, blocks, strict=True)
        ]

    def _meet(self, cursors: Sequence[_Cursor]) -> None:
        names = {cursor.op.name for cursor in cursors}
        first = cursors[0].op
        if len(names) == 1 and has_trait(first, Trait.BRANCH):
            self._branch(cursors)
        elif len(names) == 1 and has_trait(first, Trait.LOOP):
            self._loop(cursors)
        elif any(has_trait(cursor.op, Trait.RUNS_REGIONS) for cursor in cursors):
            raise _mismatch(cursors, "different programs communicate in different control flow")
        else:
            self._collective(cursors)

    # --- collectives

    def _collective(self, cursors: Sequence[_Cursor]) -> None:
        """Emit the collective that all have reached, on values in rank order."""
        whole, first = self.whole, _same_collective(cursors)
        whole.location = first.location
        order = np.concatenate(
            [np.array(ranks, np.int64) for ranks in (*(p.row_ranks for p in self.parts), self.absent)]
        )
        positions = inverse(order, whole.size)
        for index, operand in enumerate(first.operands):
            columns = [leaves(cursor.part.trees[cursor.op.operands[index]]) for cursor in cursors]
            joined = [self._joined(positions, column) for column in zip(*columns, strict=True)]
            whole.trees[operand] = rebuilt(self.parts[0].trees[operand], iter(joined))
        absent, whole.absent = whole.absent, frozenset(self.absent)
        whole.apply(first)
        whole.absent = absent
        for cursor in cursors:
            for mine, result in zip(cursor.op.results, first.results, strict=True):
                tree = whole.trees[result]
                cursor.part.trees[mine] = rebuilt(tree, iter([_own(cursor.part, leaf) for leaf in leaves(tree)]))

    def _joined(self, positions: np.ndarray, column: Sequence[StackedValue]) -> StackedValue:
        """Return the values of all parts in rank order; zeros for processes of other programs."""
        if not any(leaf.stacked for leaf in column) and all(same(leaf.value, column[0].value) for leaf in column):
            return column[0]
        rows = [part.stack(leaf) for part, leaf in zip(self.parts, column, strict=True)]
        if self.absent:
            shape = (len(self.absent), *rows[0].tensor.static_shape[1:])
            rows.append(self.whole.splat(0, rows[0].tensor.with_shape(shape)))
        return StackedValue(take_rows(self.whole, self.whole.concatenate(rows, 0), positions), True)

    # --- control flow

    def _branch(self, cursors: Sequence[_Cursor]) -> None:
        chosen = _same_predicate(cursors, [cursor.part.leaf(cursor.op.operands[0]) for cursor in cursors])
        if len({len(cursor.op.regions) for cursor in cursors}) > 1:
            raise _mismatch(cursors, "different programs have different numbers of branches")
        written, results = [], []
        for number in range(len(cursors[0].op.regions)):
            with self._inside(cursors[0].op) as block:
                results.append(self.run([cursor.op.regions[number].block for cursor in cursors]))
            written.append(block)
        flat = [[leaf for trees in each for tree in trees for leaf in leaves(tree)] for each in results]
        stacked = [any(leaf.stacked for leaf in column) for column in zip(*flat, strict=True)]
        owners = [
            part for part, trees in zip(self.parts, results[0], strict=True) for tree in trees for _ in leaves(tree)
        ]
        for block, column in zip(written, flat, strict=True):
            with self._continued(block):
                self.whole.finish(_values(owners, column, stacked))
        types = [value.type for value in written[0].terminator.operands]
        op = self.whole.op(cursors[0].op.name, [chosen], types, regions=[Region([block]) for block in written])
        self._hand_out(cursors, results[0], iter(map(StackedValue, op.results, stacked)))

    def _loop(self, cursors: Sequence[_Cursor]) -> None:
        """Emit a loop. Which values must be stacked, or are shared between programs, is found by iterating to a fixed
        point.
        """
        trees = [[cursor.part.trees[value] for value in cursor.op.operands] for cursor in cursors]
        initial = [leaf for column in trees for tree in column for leaf in leaves(tree)]
        owners = self._owners(trees)
        stacked = [leaf.stacked for leaf in initial]
        shared = _shared(initial)
        serial = [dict(part.serial) for part in self.parts]
        while True:
            for part, ops in zip(self.parts, serial, strict=True):
                part.serial = dict(ops)
            distinct = list(dict.fromkeys(shared))
            init = _values(owners, initial, stacked)
            types = [init[index].type for index in distinct]
            with self._inside(cursors[0].op, types) as condition:
                self._begin(cursors, 0, trees, condition, shared, distinct, stacked)
                results_of = self.run([cursor.op.regions[0].block for cursor in cursors])
                predicates = [leaf for (tree,) in results_of for leaf in leaves(tree)]
                self.whole.finish([_same_predicate(cursors, predicates)])
            with self._inside(cursors[0].op, types) as body:
                self._begin(cursors, 1, trees, body, shared, distinct, stacked)
                column = self.run([cursor.op.regions[1].block for cursor in cursors])
                returned = [leaf for each in column for tree in each for leaf in leaves(tree)]
                needed = [up or leaf.stacked for up, leaf in zip(stacked, returned, strict=True)]
                regrouped = [
                    index if up or not same(returned[index].value, returned[leader].value) else leader
                    for index, (leader, up) in enumerate(zip(shared, needed, strict=True))
                ]
                if (needed, regrouped) == (stacked, shared):
                    values = _values(owners, returned, stacked)
                    self.whole.finish([values[index] for index in distinct])
                    break
            stacked, shared = needed, regrouped
        regions = [Region([condition]), Region([body])]
        loop = self.whole.op("stablehlo.while", [init[index] for index in distinct], types, regions=regions)
        results = dict(zip(distinct, loop.results, strict=True))
        carried = (StackedValue(results[index], up) for index, up in zip(shared, stacked, strict=True))
        self._hand_out(cursors, trees, carried)

    def _owners(self, trees: Sequence[Sequence[Tree]]) -> list[Stacker]:
        """Return the part that owns each leaf."""
        return [part for part, column in zip(self.parts, trees, strict=True) for tree in column for _ in leaves(tree)]

    def _begin(
        self, cursors: Sequence[_Cursor], region: int, trees: Sequence[Sequence[Tree]], block: Block,
        shared: Sequence[int], distinct: Sequence[int], stacked: Sequence[bool],
    ) -> None:  # fmt: skip
        """Map the region arguments of each part to arguments of `block`."""
        arguments = dict(zip(distinct, block.arguments, strict=True))
        carried = (StackedValue(arguments[index], up) for index, up in zip(shared, stacked, strict=True))
        for cursor, column in zip(cursors, trees, strict=True):
            for argument, tree in zip(cursor.op.regions[region].block.arguments, column, strict=True):
                cursor.part.trees[argument] = rebuilt(tree, carried)

    def _hand_out(
        self, cursors: Sequence[_Cursor], trees: Sequence[Sequence[Tree]], results: Iterator[StackedValue]
    ) -> None:
        for cursor, column in zip(cursors, trees, strict=True):
            for value, tree in zip(cursor.op.results, column, strict=True):
                cursor.part.trees[value] = rebuilt(tree, results)

    @contextmanager
    def _inside(self, op: Op, types: Sequence[Type] = ()) -> Iterator[Block]:
        """Emit a region of the control flow `op` within the `with`; transfers must match inside it."""
        outer, waiting = self.whole.ops, list(self.mailboxes.waiting())
        with self.whole.block(types) as block:
            yield block
        for part in self.parts:
            part.ops = outer
        if list(self.mailboxes.waiting()) != waiting:
            raise refuse(op, "a branch or iteration has one end of a transfer without the other")

    @contextmanager
    def _continued(self, block: Block) -> Iterator[None]:
        """Append to `block` within the `with`."""
        outer, self.whole.ops = self.whole.ops, block.ops
        for part in self.parts:
            part.ops = block.ops
        try:
            yield
        finally:
            for stacker in (self.whole, *self.parts):
                stacker.ops = outer


def _values(owners: Sequence[Stacker], column: Sequence[StackedValue], stacked: Sequence[bool]) -> list[Value]:
    triples = zip(owners, column, stacked, strict=True)
    return [owner.stack(leaf) if up else leaf.value for owner, leaf, up in triples]


def _own(part: Stacker, leaf: StackedValue) -> StackedValue:
    """Return the rows of a part from a value of all processes."""
    return StackedValue(take_rows(part, leaf.value, np.array(part.row_ranks)), True) if leaf.stacked else leaf


# --- equality


def same(left: Value, right: Value) -> bool:
    """Return whether two values of the stacked program are equal: one value, or equal pure computations."""
    known: dict[tuple[Value, Value], bool] = {}
    pending = [(left, right)]
    while pending:
        one, other = pending.pop()
        if one is other or known.get((one, other)):
            continue
        known[one, other] = True
        first, second = one.defining_op, other.defining_op
        if first is None or second is None or one.type != other.type or first.regions or second.regions:
            return False
        alike = first.name == second.name and first.attributes == second.attributes and is_pure(first)
        if not alike or first.results.index(one) != second.results.index(other):
            return False
        if len(first.operands) != len(second.operands):
            return False
        pending += zip(first.operands, second.operands, strict=True)
    return True


def _shared(initial: Sequence[StackedValue]) -> list[int]:
    """Return for each carried value the index of the first one with an equal initial value: its own if it
    is stacked.
    """
    shared: list[int] = []
    for index, leaf in enumerate(initial):
        alike = (leader for leader in dict.fromkeys(shared) if not initial[leader].stacked)
        leader = None if leaf.stacked else next((p for p in alike if same(initial[p].value, leaf.value)), None)
        shared.append(index if leader is None else leader)
    return shared


def _same_predicate(cursors: Sequence[_Cursor], predicates: Sequence[StackedValue]) -> Value:
    """Return the predicate common to all programs; CompileError if predicates may differ."""
    first = predicates[0]
    for cursor, predicate in zip(cursors, predicates, strict=True):
        if predicate.stacked:
            raise refuse(cursor.op, "different programs communicate in it, and its predicate may differ")
        if not same(predicate.value, first.value):
            text = f"its predicate may be another than that of {cursors[0].op.name} at {cursors[0].op.location}"
            raise refuse(cursor.op, f"different programs communicate in it, and {text}")
    return first.value


def _mismatch(cursors: Sequence[_Cursor], why: str) -> CompileError:
    active, *others = cursors
    there = next((each for each in others if each.op.name != active.op.name), others[0])
    return refuse(active.op, f"{why}: process {there.part.row_ranks[0]} is at {there.op.name} at {there.op.location}")


def _next_meeting(cursors: Sequence[_Cursor], mailboxes: Mailboxes) -> list[_Cursor]:
    """Return the programs that continue together, with their ops: all at one collective, or a subset closed under
    dependence.

    CompileError if there is none, CollectiveError if one waits for a program that has ended.
    """
    waiting = [cursor for cursor in cursors if cursor.at is not None and cursor.at.name != RECV]
    if len(waiting) == len(cursors) and _are_at_one_collective(waiting):
        return waiting
    needed = {cursor.number: _needed(cursor, cursors, mailboxes) for cursor in waiting}
    # The smallest closed subset is needed by others and goes first.
    closed = [_closure(cursor.number, needed) for cursor in waiting]
    able = [numbers for numbers in closed if numbers <= needed.keys()]
    if able:
        together = min(able, key=len)
        return [cursor for cursor in waiting if cursor.number in together]
    for cursor in cursors:
        if cursor.at is not None and cursor.at.name == RECV:
            raise refuse(cursor.at, "nothing has been sent to it when all programs wait")
    raise _ended_error(cursors, needed)


def _closure(number: int, needed: Mapping[int, frozenset[int]]) -> frozenset[int]:
    """Return a program with all that it depends on, transitively."""
    together, pending = {number}, [number]
    while pending:
        new = needed.get(pending.pop(), frozenset()) - together
        together |= new
        pending += new
    return frozenset(together)


def _are_at_one_collective(cursors: Sequence[_Cursor]) -> bool:
    if any(has_trait(cursor.op, Trait.RUNS_REGIONS) for cursor in cursors):
        return False
    first = _described(cursors[0])
    return all(_described(cursor) == first for cursor in cursors[1:])


def _needed(cursor: _Cursor, cursors: Sequence[_Cursor], mailboxes: Mailboxes) -> frozenset[int]:
    """Return the programs whose processes those of `cursor` communicate with in its current op."""
    ranks: set[int] = set()
    for op in cursor.op.walk():
        if op.name in (SEND, RECV):
            ranks.update(mailboxes.ends(cursor.part, op))
        elif op.name in DESCRIPTIONS:
            ranks.update(_members_met(DESCRIPTIONS[op.name](op, StackSettings(cursor.part)), cursor.part))
    return frozenset(each.number for each in cursors if not ranks.isdisjoint(each.part.row_ranks))


def _members_met(collective: Collective, part: Stacker) -> Iterator[int]:
    """Yield the members of the groups that contain processes of `part`."""
    own = frozenset(part.row_ranks)
    groups: list[Sequence[int]] = [
        pair for each in collective.operations if isinstance(each, CollectivePermute) for pair in each.pairs
    ]
    if not groups:
        groups = [range(part.grid.size)] if collective.groups is None else list(collective.groups)
    for group in groups:
        if not own.isdisjoint(group):
            yield from group


def _ended_error(cursors: Sequence[_Cursor], needed: Mapping[int, frozenset[int]]) -> SpmdError:
    """Return the error for programs that wait for others that have ended."""
    ended = {cursor.number: cursor for cursor in cursors if cursor.at is None}
    active, there = next(
        (cursor, ended[number])
        for cursor in cursors
        if cursor.at is not None
        for number in sorted(needed[cursor.number])
        if number in ended
    )
    first, other = active.part.row_ranks[0], there.part.row_ranks[0]
    if has_trait(active.op, Trait.RUNS_REGIONS):
        return refuse(active.op, f"it communicates with process {other}, whose program has ended, if it does at all")
    text = f"process {first} waits here for process {other}, whose program has ended"
    return CollectiveError(Diagnostic(active.op.location, text, active.op.name))


def _same_collective(cursors: Sequence[_Cursor]) -> Op:
    """Return the first program's collective; CollectiveError if another program is at a different one."""
    first = cursors[0]
    description = _described(first)
    for cursor in cursors[1:]:
        other = _described(cursor)
        if description != other:
            what = other[0] if other[0] != description[0] else "the same with different process groups or attributes"
            theirs = f"process {cursor.part.row_ranks[0]} at {cursor.op.location} {what}"
            text = f"process {first.part.row_ranks[0]} does {description[0]}, {theirs}"
            raise CollectiveError(Diagnostic(first.op.location, text, first.op.name))
    return first.op


def _described(cursor: _Cursor) -> tuple[object, ...]:
    """Return the properties of a collective that must be equal for processes to meet."""
    op = cursor.op
    inner = op.regions[0].block.ops[0] if op.name == "stablehlo.async_start" else op
    if inner.name not in DESCRIPTIONS or any(isinstance(type, FutureType) for type in op.operand_types):
        raise refuse(op, "what communicates in it is neither control flow nor a collective")
    collective = DESCRIPTIONS[inner.name](inner, StackSettings(cursor.part))
    groups = None if collective.groups is None else tuple(collective.groups)
    return ", ".join(map(describe, collective.operations)), op.name, collective.operations, groups
