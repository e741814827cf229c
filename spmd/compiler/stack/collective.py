"""Collectives as operations on the leading axis, and process ids.

The meaning of a collective on stacked operands is defined by its Operation (collectives/operations.py); this module
maps groups to dimensions: by a reshape if the groups are a dimension of the grid, else by a gather at constant indices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from collectives.operations import AllReduce, CollectivePermute, CollectiveReduce, Operation
from collectives.reduction import Arithmetic
from collectives.stacked import Stacks
from collectives.states import short_list
from spmd.analysis.collectives import DESCRIPTIONS, ROOTED, Collective, check_shapes, left_out
from spmd.analysis.reducers import Monoid
from spmd.compiler.stack.core import StackedValue, Stacker, Tree, refuse, rule
from spmd.compiler.stack.members import Members
from spmd.compiler.stack.placing import filled, gather_rows, inverse, repeat, take_rows
from spmd.compiler.stack.products import summed_product
from spmd.dialects.make import make_reducer
from spmd.ir import Op, Region, Value
from spmd.ir.attributes import DenseAttr, DictAttr, StringAttr
from spmd.support.arrays import Array
from spmd.types import I1, I64, ElementType, TensorType

Extent = tuple[int, int, int]
_MOST_SHOWN = 8
#: The call that checks that the processes of a group have equal values.
AGREE = "spmd.expect_agreement"


@rule("stablehlo.replica_id", always=True)
def replica_id(stacker: Stacker, op: Op) -> Sequence[Tree]:
    return [stacker.position(0)]


@rule("stablehlo.partition_id", always=True)
def partition_id(stacker: Stacker, op: Op) -> Sequence[Tree]:
    return [stacker.position(1)]


@rule(*(DESCRIPTIONS.keys() - ROOTED.keys()), always=True)
def collective(stacker: Stacker, op: Op) -> Sequence[Tree]:
    return _emitted(stacker, DESCRIPTIONS[op.name](op, StackSettings(stacker)))


@rule(*ROOTED, always=True)
def rooted(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """Look up a dynamic root in a table of the groups."""
    if not op["has_dynamic_root"]:
        return _emitted(stacker, DESCRIPTIONS[op.name](op, StackSettings(stacker)))
    described = ROOTED[op.name](op, StackSettings(stacker), 0)
    meet(stacker, op, _members(stacker, described))
    roots = stacker.leaf(op.operands[-1])
    return [_rooted(stacker, described, index, roots) for index in range(len(op.results))]


@rule("stablehlo.async_start", always=True)
def async_start(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """Emit the collective at its start: the future holds the results."""
    return [tuple(stacker.run(op.regions[0].block, [stacker.trees[value] for value in op.operands]))]


@rule("stablehlo.async_done", always=True)
def async_done(stacker: Stacker, op: Op) -> Sequence[Tree]:
    tree = stacker.trees[op.operands[0]]
    assert isinstance(tree, tuple)
    return list(tree)


class StackSettings:
    """The settings that descriptions of collectives read."""

    def __init__(self, stacker: Stacker) -> None:
        self.module, self.options = stacker.module, stacker.options

    def vectorized(self, op: Op, index: int) -> Callable[..., tuple[Array, ...]]:
        """Return a placeholder: regions that are no monoid are emitted into the program, and never called."""

        def call(*arrays: Array) -> tuple[Array, ...]:
            raise AssertionError(f"region {index} of {op.name} is part of the stacked program")

        return call


# --- groups ----------------------------------------------------------------------------------------------------------


def _emitted(stacker: Stacker, described: Collective) -> list[Tree]:
    op, first = described.op, described.operations[0]
    members = _members(stacker, described)
    check_members(stacker, described, members)
    if stacker.mask is not None and isinstance(first, CollectivePermute):
        meet(stacker, op, Members(first.pairs, stacker.size))
    else:
        meet(stacker, op, members)
    check_shapes(described.op, members.sizes)
    results: list[Tree] = []
    for index, operation in enumerate(described.operations):
        leaf = _promoted(stacker, stacker.leaf(op.operands[index]), described, index)
        results.append(_in_groups(stacker, described, operation, leaf, members))
    return results


def _members(stacker: Stacker, described: Collective) -> Members:
    """Return the groups of a collective; by default one of all processes."""
    groups = described.groups
    kept = stacker.members.get(id(groups))
    if kept is None:
        members = Members(groups if groups is not None else [range(stacker.size)], stacker.size)
        kept = stacker.members[id(groups)] = (groups, members)
    return kept[1]


def _promoted(stacker: Stacker, leaf: StackedValue, described: Collective, index: int) -> StackedValue:
    if not described.convert or described.convert[index] is None:
        return leaf
    element = described.op.results[index].tensor.element_type
    return StackedValue(stacker.convert(leaf.value, leaf.value.tensor.with_element_type(element)), leaf.stacked)


def check_members(stacker: Stacker, described: Collective, members: Members) -> None:
    """Raise CollectiveError if a process is in no group and its result is undefined."""
    missing = next((rank for rank in members.missing if rank not in stacker.absent), None)
    if missing is not None and described.outsider is None:
        who, shown = stacker.grid.process_id(missing), short_list([row.tolist() for row in members.rows], _MOST_SHOWN)
        raise left_out(described.op, f"process {missing} {who}", str(shown))


def meet(stacker: Stacker, op: Op, members: Members) -> None:
    """Emit a check that of each group all processes are active or none, if there is a mask."""
    if stacker.mask is not None and members.rows:
        expect_agreement(stacker, op, StackedValue(stacker.mask, True), members, "here")


def expect_agreement(stacker: Stacker, op: Op, leaf: StackedValue, members: Members, what: str) -> None:
    """Emit a check that the processes of each group have equal values of `leaf`, called `what` in messages."""
    table = members.padded
    entries = {
        "groups": DenseAttr(table, TensorType(table.shape, I64)),
        "op": StringAttr(op.name.encode()),
        "what": StringAttr(what.encode()),
    }
    active = stacker.mask if stacker.mask is not None else stacker.splat(True, TensorType((stacker.size,), I1))
    attributes = {
        "call_target_name": AGREE,
        "has_side_effect": True,
        "backend_config": DictAttr(entries),
        "api_version": 4,
    }
    stacker.op("stablehlo.custom_call", [stacker.stack(leaf), active], (), attributes)


def _in_groups(
    stacker: Stacker, described: Collective, operation: Operation, leaf: StackedValue, members: Members
) -> StackedValue:
    if members.table is not None:
        return _equal_groups(stacker, described, operation, leaf, members)
    return _unequal_groups(stacker, described, operation, leaf, members)


def _equal_groups(
    stacker: Stacker, described: Collective, operation: Operation, leaf: StackedValue, members: Members
) -> StackedValue:
    """Return the result for groups of equal size that cover all processes."""
    writer, table = Written(stacker, described.op), members.table
    assert table is not None
    count, size = table.shape
    if not leaf.stacked:
        extent: Extent = (1, size, 1)
        repeated = repeat(stacker, stacker.reshape(leaf.value, (1, 1, 1, *leaf.shape)), 1, size)
        combined = operation.stacked(repeated, extent, writer)
        if combined.tensor.static_shape[1] == 1:
            return StackedValue(stacker.reshape(combined, combined.tensor.static_shape[3:]))
        rows = stacker.reshape(combined, (size, *combined.tensor.static_shape[3:]))
        return StackedValue(take_rows(stacker, rows, inverse(table.ravel(), stacker.size) % size), True)
    regular = members.extent
    extent = regular or (count, size, 1)
    rows = leaf.value if regular else take_rows(stacker, leaf.value, table.ravel())
    combined = operation.stacked(stacker.reshape(rows, (*extent, *leaf.shape)), extent, writer)
    shape = combined.tensor.static_shape[3:]
    if count == 1 and combined.tensor.static_shape[1] == 1:
        return StackedValue(stacker.reshape(combined, shape))
    spread = stacker.reshape(repeat(stacker, combined, 1, size), (stacker.size, *shape))
    return StackedValue(spread if regular else take_rows(stacker, spread, inverse(table.ravel(), stacker.size)), True)


def _unequal_groups(
    stacker: Stacker, described: Collective, operation: Operation, leaf: StackedValue, members: Members
) -> StackedValue:
    """Return the result for groups of several sizes, emitted size by size, then the processes in no group."""
    writer = Written(stacker, described.op)
    rows = stacker.stack(leaf)
    parts, order = [], []
    for table in members.by_size:
        count, size = table.shape
        extent: Extent = (count, size, 1)
        taken = take_rows(stacker, rows, table.ravel())
        combined = operation.stacked(stacker.reshape(taken, (*extent, *leaf.shape)), extent, writer)
        shape = combined.tensor.static_shape[3:]
        parts.append(stacker.reshape(repeat(stacker, combined, 1, size), (table.size, *shape)))
        order += table.ravel().tolist()
    if not parts:
        raise refuse(described.op, "it has no process groups")
    joined = stacker.concatenate(parts, 0)
    return StackedValue(take_rows(stacker, joined, inverse(order, stacker.size), _fill(described, 0)), True)


def _fill(described: Collective, index: int) -> int:
    """Return the fill value of results on processes in no group."""
    if described.outsider is None:
        return 0
    element = described.op.results[index].tensor.element_type
    points = getattr(element, "zero_points", (0,))
    return int(points[0])


# --- dynamic roots ---------------------------------------------------------------------------------------------------


def _rooted(stacker: Stacker, described: Collective, index: int, roots: StackedValue) -> StackedValue:
    op, members = described.op, _members(stacker, described)
    root = _entry(stacker, roots, index)
    expect_agreement(stacker, op, root, members, "root")
    group, position = np.full(stacker.size, -1, np.int64), np.zeros(stacker.size, np.int64)
    for number, row in enumerate(members.rows):
        group[row], position[row] = number, np.arange(len(row))
    present, fill = group >= 0, _fill(described, index)
    operand = _promoted(stacker, stacker.leaf(op.operands[index]), described, index)
    root_position = stacker.stack(root)
    root_position = stacker.convert(root_position, root_position.tensor.with_element_type(I64))
    if op.name == "stablehlo.collective_reduce":
        totals = _in_groups(stacker, _reduced(described), _reduced(described).operations[index], operand, members)
        is_root = stacker.compare(stacker.ranks(position), root_position, "EQ")
        fill_value = stacker.splat(fill, stacker.tensor_of(op.results[index].type))
        result = stacker.chosen(is_root, totals, StackedValue(fill_value, True))
    else:
        table = np.where(members.padded < 0, members.padded[:, :1], members.padded)
        place = stacker.binary("add", stacker.ranks(np.maximum(group, 0) * table.shape[1]), root_position)
        source = gather_rows(stacker, stacker.constant(table.ravel()), stacker.reshape(place, (stacker.size, 1)))
        rows = gather_rows(stacker, stacker.stack(operand), stacker.reshape(source, (stacker.size, 1)))
        result = StackedValue(rows, True)
    return StackedValue(filled(stacker, result.value, present, fill), True)


def _reduced(described: Collective) -> Collective:
    """Return the all_reduces whose results the roots receive."""
    operations = []
    for operation in described.operations:
        assert isinstance(operation, CollectiveReduce)
        operations.append(AllReduce(operation.shape, operation.dtype, operation.reduction, operation.reproducible))
    return replace(described, operations=tuple(operations))


def _entry(stacker: Stacker, roots: StackedValue, index: int) -> StackedValue:
    """Return entry `index` of each process's roots."""
    if not roots.stacked:
        return StackedValue(stacker.reshape(stacker.slice(roots.value, 0, index, index + 1), ()))
    return StackedValue(stacker.reshape(stacker.slice(roots.value, 1, index, index + 1), (stacker.size,)), True)


# --- stacks as values ------------------------------------------------------------------------------------------------


class Written(Stacks[Value]):
    """Stacks as values of the emitted program, for the collective `op`."""

    def __init__(self, stacker: Stacker, op: Op) -> None:
        self._stacker, self._op = stacker, op

    def reshape(self, x: Value, shape: tuple[int, ...]) -> Value:
        return self._stacker.reshape(x, shape)

    def transpose(self, x: Value, permutation: Sequence[int]) -> Value:
        if list(permutation) == sorted(permutation):
            return x
        return self._stacker.transpose(x, permutation)

    def take(self, x: Value, order: NDArray[np.int64], fill: int) -> Value:
        stacker, shape = self._stacker, x.tensor.static_shape
        if shape[0] == 1:
            taken = take_rows(stacker, stacker.reshape(x, shape[1:]), order, fill)
            return stacker.reshape(taken, (1, *taken.tensor.static_shape))
        moved = [1, 0, *range(2, len(shape))]
        return stacker.transpose(take_rows(stacker, stacker.transpose(x, moved), order, fill), moved)

    def fold(self, x: Value, arithmetic: Arithmetic) -> Value:
        shape = x.tensor.static_shape
        if shape[1] == 1:
            return x
        product = summed_product(self._stacker, arithmetic, x)
        if product is not None:
            return product
        element = x.tensor.element_type
        if arithmetic.reduction.fold is not None or not isinstance(element, ElementType):
            return self._by_region(x, self._stacker.regions_of(self._op)[0])
        monoid = Monoid(arithmetic.reduction.name, element)
        if element.is_complex and monoid.kind == "multiply":
            return self._by_region(x, self._complex_product(x.tensor.with_shape(()), element.real))
        return self._by_monoid(x, monoid)

    def _by_monoid(self, x: Value, monoid: Monoid) -> Value:
        """Return a reduce in the accumulator's type, rounded once whatever the options: transports reduce in one way
        only (collectives.reduction).
        """
        stacker, narrow = self._stacker, x.tensor
        if monoid.accumulator is not monoid.element:
            wide = self._by_monoid(
                stacker.convert(x, narrow.with_element_type(monoid.accumulator)),
                Monoid(monoid.kind, monoid.accumulator),
            )
            return stacker.convert(wide, wide.tensor.with_element_type(monoid.element))
        shape, scalar, name = narrow.static_shape, narrow.with_shape(()), monoid.kind
        assert monoid.identity is not None, f"{name} of {monoid.element} has a neutral element"
        init = stacker.constant(monoid.identity, scalar)
        region = make_reducer(f"stablehlo.{name}", scalar, location=stacker.location)
        kept = x.tensor.with_shape((shape[0], *shape[2:]))
        folded = stacker.op("stablehlo.reduce", [x, init], [kept], {"dimensions": (1,)}, [region])
        stacker.in_order(folded)
        return stacker.reshape(folded.result, (shape[0], 1, *shape[2:]))

    def _complex_product(self, scalar: TensorType, part: ElementType) -> Region:
        """Return a region that multiplies complex numbers by parts, as ranks do (`collectives.steps`). It has no
        identity: multiplication by one changes infinities and signed zeros.
        """
        stacker = self._stacker
        real = TensorType((), part)
        with stacker.block([scalar, scalar]) as block:
            (a, b), (c, d) = (
                [stacker.op(f"stablehlo.{way}", [z], [real]).result for way in ("real", "imag")]
                for z in block.arguments
            )
            parts = [
                stacker.binary("subtract", stacker.binary("multiply", a, c), stacker.binary("multiply", b, d)),
                stacker.binary("add", stacker.binary("multiply", a, d), stacker.binary("multiply", b, c)),
            ]
            stacker.finish([stacker.op("stablehlo.complex", parts, [scalar]).result])
        return Region([block])

    def _by_region(self, x: Value, region: Region) -> Value:
        """Return a reduction process by process, with the region mapped over whole arrays."""
        stacker, shape = self._stacker, x.tensor.static_shape
        slab = x.tensor.with_shape((shape[0], 1, *shape[2:]))
        types = [stacker.index(0).type, slab]
        first = stacker.slice(x, 1, 0, 1)
        start, count = stacker.index(1), stacker.index(shape[1])
        with stacker.block(types) as condition:
            stacker.finish([stacker.compare(condition.arguments[0], count, "LT")])
        with stacker.block(types) as body:
            place, total = body.arguments
            part = stacker.dynamic_slice(x, 1, place, 1)
            attributes = {"dimensions": tuple(range(len(shape)))}
            new = stacker.op("stablehlo.map", [total, part], [slab], attributes, [region]).result
            stacker.finish([stacker.binary("add", place, stacker.index(1)), new])
        regions = [Region([condition]), Region([body])]
        return stacker.op("stablehlo.while", [start, first], types, regions=regions).results[1]
