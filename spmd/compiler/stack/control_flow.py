"""Branches and loops: unchanged if predicates are uniform, else masked.

With divergent predicates all processes execute each branch, and a loop until the last of them is done; results of
inactive processes are discarded.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from spmd.compiler.stack.core import StackedValue, Stacker, Tree, leaves, rebuilt, refuse, rule
from spmd.ir import Block, Op, Region, Value
from spmd.types import I1, I32, TensorType, TokenType, Type


@rule("stablehlo.if", "stablehlo.case", always=True)
def branches(stacker: Stacker, op: Op) -> Sequence[Tree]:
    chosen = stacker.leaf(op.operands[0])
    if (together := _uniform(stacker, op, chosen)) is not None:
        return together
    masks = _of_predicate if op.name == "stablehlo.if" else _of_index
    return _selected(stacker, op, masks(stacker, stacker.stack(chosen), len(op.regions)))


def _of_predicate(stacker: Stacker, predicate: Value, _: int) -> list[Value]:
    """Return the masks of the branches of an `if`."""
    return [predicate, stacker.one("not", [predicate], predicate.type)]


def _of_index(stacker: Stacker, index: Value, count: int) -> list[Value]:
    """Return the masks of the branches of a `case`; an index out of range selects the last one."""
    last = count - 1
    limits = [stacker.stack(StackedValue(stacker.index(limit))) for limit in (0, last)]
    is_inside = stacker.binary("and", stacker.compare(index, limits[0], "GE"), stacker.compare(index, limits[1], "LE"))
    taken = stacker.select(is_inside, index, limits[1])
    type = TensorType(index.tensor.shape, I32)
    return [stacker.compare(taken, stacker.splat(number, type), "EQ") for number in range(count)]


def _uniform(stacker: Stacker, op: Op, chosen: StackedValue) -> Sequence[Tree] | None:
    """Return the results of a branch with uniform predicate `chosen`; a result stacked in one branch is stacked in all.

    None if predicates diverge, or a branch contains one end of a transfer only.
    """
    if chosen.stacked:
        return None
    written, trees = [], []
    sent, transfers = stacker.sent(), dict(stacker.transfers)
    for region in op.regions:
        with stacker.block() as block:
            trees.append(stacker.run(region.block, ()))
        if stacker.sent() != sent:
            stacker.channels, stacker.transfers = {channel: list(queue) for channel, queue in sent.items()}, transfers
            return None
        written.append(block)
    leaves_of = [[leaf for tree in results for leaf in leaves(tree)] for results in trees]
    stacked = [any(leaf.stacked for leaf in column) for column in zip(*leaves_of, strict=True)]
    for block, results in zip(written, leaves_of, strict=True):
        stacker.location = op.location
        ops, stacker.ops = stacker.ops, block.ops
        stacker.finish([stacker.stack(leaf) if up else leaf.value for leaf, up in zip(results, stacked, strict=True)])
        stacker.ops = ops
    types = [value.type for value in written[0].terminator.operands]
    selection = stacker.op(op.name, [chosen.value], types, regions=[Region([block]) for block in written])
    result_leaves = iter([StackedValue(value, up) for value, up in zip(selection.results, stacked, strict=True)])
    return [rebuilt(tree, result_leaves) for tree in trees[0]]


def _selected(stacker: Stacker, op: Op, masks: Sequence[Value]) -> Sequence[Tree]:
    """Return the results of all branches, each emitted for the processes in its mask, merged by selects."""
    outer = stacker.mask
    chosen: list[tuple[Value, list[Tree]]] = []
    for region, mask in zip(op.regions, masks, strict=True):
        active = mask if outer is None else stacker.binary("and", mask, outer)
        with stacker.masked(active):
            chosen.append((mask, stacker.run(region.block, ())))
        stacker.location = op.location
    merged = chosen[-1][1]
    for mask, trees in reversed(chosen[:-1]):
        merged = [
            rebuilt(
                tree,
                iter([stacker.chosen(mask, *pair) for pair in zip(leaves(tree), leaves(other), strict=True)]),
            )
            for tree, other in zip(trees, merged, strict=True)
        ]
    return merged


@rule("stablehlo.while", always=True)
def while_(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """Emit a loop. Carried values are stacked if they differ initially or after an iteration; found by iterating to a
    fixed point.
    """
    trees = [stacker.trees[value] for value in op.operands]
    initial = [leaf for tree in trees for leaf in leaves(tree)]
    stacked = [leaf.stacked for leaf in initial]
    fixed = _invariants(op, trees)
    serial = dict(stacker.serial)
    for _ in count():
        stacker.serial = dict(serial)
        attempt = _Loop(stacker, op, trees, stacked, fixed)
        needed = attempt.write()
        if needed == stacked:
            return attempt.results(initial)
        stacked = needed
    raise AssertionError


def _invariants(op: Op, trees: Sequence[Tree]) -> list[bool]:
    """Return for each carried leaf whether the body returns it unchanged."""
    body = op.regions[1].block
    unchanged = []
    for argument, returned, tree in zip(body.arguments, body.terminator.operands, trees, strict=True):
        unchanged += [argument is returned] * len(leaves(tree))
    return unchanged


class _Loop:
    """One attempt at a loop, with some carried values stacked."""

    def __init__(
        self, stacker: Stacker, op: Op, trees: Sequence[Tree], stacked: Sequence[bool], fixed: Sequence[bool]
    ) -> None:
        self.stacker, self.op, self.trees, self.stacked, self.fixed = stacker, op, trees, list(stacked), fixed
        self.condition, self.body = Block(), Block()
        self.start: list[Op] = []
        self.active: Value | None = None

    def write(self) -> list[bool]:
        """Emit condition and body; return which carried values must be stacked."""
        stacker = self.stacker
        types = self._types()
        any_active_process = None
        with stacker.block() as before:
            any_active_process = stacker.any_active(stacker.mask) if stacker.mask is not None else None
        self.start = before.ops
        with stacker.block(types) as self.condition:
            predicate = self._holds(self._carried(self.condition.arguments))
            if predicate.stacked:
                return self._write_masked()
            active = (
                predicate.value
                if any_active_process is None
                else stacker.binary("and", predicate.value, any_active_process)
            )
            stacker.finish([active])
        with stacker.block(types) as self.body:
            results = self._step(self._carried(self.body.arguments))
            needed = [up or leaf.stacked for up, leaf in zip(self.stacked, results, strict=True)]
            stacker.finish([self._as(leaf, up) for leaf, up in zip(results, self.stacked, strict=True)])
        return needed

    def _write_masked(self) -> list[bool]:
        """Emit a loop with divergent predicates, which also carries the mask of active processes; return which values
        must be stacked.
        """
        stacker = self.stacker
        needed = [up or not self._is_invariant(index) for index, up in enumerate(self.stacked)]
        if needed != self.stacked:
            return needed
        types = [TensorType((stacker.size,), I1), *self._types()]
        with stacker.block() as before:
            initial = [leaf for tree in self.trees for leaf in leaves(tree)]
            carried_leaves = [
                StackedValue(self._as(leaf, up), up) for leaf, up in zip(initial, self.stacked, strict=True)
            ]
            self.active = self._active(carried_leaves, stacker.mask)
        self.start = before.ops
        self.carried = carried_leaves
        with stacker.block(types) as self.condition:
            stacker.finish([stacker.any_active(self.condition.arguments[0])])
        with stacker.block(types) as self.body:
            active, *values = self.body.arguments
            carried = self._carried(values)
            with stacker.masked(active):
                results = self._step(carried)
            needed = [up or leaf.stacked for up, leaf in zip(self.stacked, results, strict=True)]
            merged = [
                old if self._is_invariant(index) else stacker.chosen(active, new, old)
                for index, (new, old) in enumerate(zip(results, carried, strict=True))
            ]
            stacker.finish([self._active(merged, active), *(leaf.value for leaf in merged)])
        return needed

    def _is_invariant(self, index: int) -> bool:
        """Return whether a carried value is loop-invariant."""
        return self.fixed[index] or isinstance(self._leaf_types()[index], TokenType)

    def _leaf_types(self) -> list[Type]:
        return [leaf.value.type for tree in self.trees for leaf in leaves(tree)]

    def _types(self) -> list[Type]:
        leaves_of = [leaf for tree in self.trees for leaf in leaves(tree)]
        return [
            self.stacker.type_of(leaf.value.type) if up and not leaf.stacked else leaf.value.type
            for leaf, up in zip(leaves_of, self.stacked, strict=True)
        ]

    def _carried(self, values: Sequence[Value]) -> list[StackedValue]:
        return [StackedValue(value, up) for value, up in zip(values, self.stacked, strict=True)]

    def _as(self, leaf: StackedValue, stacked: bool) -> Value:
        return self.stacker.stack(leaf) if stacked else leaf.value

    def _as_trees(self, carried: Sequence[StackedValue]) -> list[Tree]:
        leaf_values = iter(carried)
        return [rebuilt(tree, leaf_values) for tree in self.trees]

    def _holds(self, carried: Sequence[StackedValue]) -> StackedValue:
        (predicate,) = self.stacker.run(self.op.regions[0].block, self._as_trees(carried))
        self.stacker.location = self.op.location
        assert isinstance(predicate, StackedValue)
        return predicate

    def _active(self, carried: Sequence[StackedValue], mask: Value | None) -> Value:
        """Return the mask of processes in `mask` whose predicate holds."""
        with self.stacker.masked(mask):
            holds = self.stacker.stack(self._holds(carried))
        return holds if mask is None else self.stacker.binary("and", holds, mask)

    def _step(self, carried: Sequence[StackedValue]) -> list[StackedValue]:
        sent = self.stacker.sent()
        self.stacker.loop_masks.append(self.stacker.mask)
        results = self.stacker.run(self.op.regions[1].block, self._as_trees(carried))
        self.stacker.loop_masks.pop()
        self.stacker.location = self.op.location
        if self.stacker.sent() != sent:
            raise refuse(self.op, "an iteration has one end of a transfer without the other")
        return [leaf for tree in results for leaf in leaves(tree)]

    def results(self, initial: Sequence[StackedValue]) -> list[Tree]:
        """Append the loop; return its results."""
        stacker = self.stacker
        stacker.ops += self.start
        if self.active is None:
            carried = [self._as(leaf, up) for leaf, up in zip(initial, self.stacked, strict=True)]
        else:
            carried = [self.active, *(leaf.value for leaf in self.carried)]
        types = [value.type for value in carried]
        loop = stacker.op(self.op.name, carried, types, regions=[Region([self.condition]), Region([self.body])])
        values = loop.results if self.active is None else loop.results[1:]
        return self._as_trees(self._carried(values))
