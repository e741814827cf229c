"""Describes each collective op as operations of a communicator on process groups.

Source: StableHLO specification, "Collective ops" and each op's section.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Protocol

import numpy as np

from collectives.communicator import Communicator
from collectives.errors import CommunicationError
from collectives.grid import Groups, ProcessGrid
from collectives.operations import (
    AllGather,
    AllReduce,
    AllToAll,
    CollectiveBroadcast,
    CollectivePermute,
    CollectiveReduce,
    Operation,
    ReduceScatter,
)
from collectives.reduction import ADD, MONOIDS, Reduction
from spmd.analysis.process_groups import label_of_ids, process_groups, process_pairs, transfer_ends
from spmd.analysis.reducers import monoid_of
from spmd.errors import CollectiveError, Diagnostic
from spmd.ir import Module, Op, Value, captured_values
from spmd.support.arrays import Array, DType
from spmd.types import QuantizedType, TensorType


class CollectiveOptions(Protocol):
    """The compile options that descriptions of collectives depend on (spmd.compiler.pipeline.options)."""

    @property
    def grid(self) -> ProcessGrid: ...

    @property
    def reproducible(self) -> bool:
        """Whether reductions give the same bits whichever algorithm carries them out."""

    @property
    def combine_threshold(self) -> int:
        """The largest total size, in bytes, of operands that are combined into one message."""


class CollectiveContext(Protocol):
    """What the description of a collective needs from the compiler: a subset of a kernel's Context."""

    @property
    def module(self) -> Module:
        """The module being compiled."""

    @property
    def options(self) -> CollectiveOptions:
        """The compile options that collectives depend on."""

    def vectorized(self, op: Op, index: int) -> Callable[..., tuple[Array, ...]]:
        """Return region `index` of `op`, whose arguments are scalars, as a function on whole arrays."""


@dataclass(frozen=True)
class Collective:
    """A collective op as operations of a communicator, one per operand.

    `groups` are the process groups; None stands for the whole grid. A process in no group gets `outsider(index)` as
    result `index`, or an error if `outsider` is None. `convert` holds the dtype to which each operand is promoted
    (None: not). All_reduces of at most `pack_limit` bytes in total are combined into one message.
    """

    op: Op
    operations: tuple[Operation, ...]
    groups: Groups | None
    outsider: Callable[[int], Array] | None = None
    convert: tuple[DType | None, ...] = ()
    pack_limit: int = 0

    def communicator(self, world: Communicator, rank: int) -> Communicator | None:
        """Return the communicator of the group of process `rank`; None if it is in no group.

        Raises CollectiveError if the op needs every process in a group.
        """
        if self.groups is None:
            return world
        group = self.groups.find(rank)
        if group is not None:
            return world.group(group)
        if self.outsider is None:
            raise left_out(self.op, f"process {rank}", repr(self.groups))
        return None

    @cached_property
    def packed(self) -> AllReduce | None:
        """The combined message of a variadic all_reduce; None if its operands are not combined."""
        first = self.operations[0]
        if not isinstance(first, AllReduce) or len({operation.dtype for operation in self.operations}) > 1:
            return None
        count = sum(prod(operation.shape) for operation in self.operations)
        if len(self.operations) == 1 or count * first.dtype.itemsize > self.pack_limit:
            return None
        return AllReduce((count,), first.dtype, first.reduction, first.reproducible)

    @property
    def messages(self) -> tuple[Operation, ...]:
        """The operations to perform, after combining."""
        return self.operations if self.packed is None else (self.packed,)

    @cached_property
    def where(self) -> str:
        """The op's source location."""
        return str(self.op.location)


def _all_reduce(op: Op, context: CollectiveContext) -> Collective:
    reduction = ADD if op.name == "stablehlo.cross-replica-sum" else _reduction(op, context)
    reproducible = context.options.reproducible
    operations = tuple(AllReduce(_shape(value), value.tensor.dtype, reduction, reproducible) for value in op.results)
    limit = context.options.combine_threshold
    return Collective(op, operations, _groups(op, context), convert=_promotions(op), pack_limit=limit)


def _reduce_scatter(op: Op, context: CollectiveContext) -> Collective:
    operand, dtype = op.operands[0], op.result.tensor.dtype
    operation = ReduceScatter(
        _shape(operand), dtype, _reduction(op, context), op["scatter_dimension"], context.options.reproducible
    )
    return Collective(op, (operation,), _groups(op, context), convert=_promotions(op))


def _all_gather(op: Op, context: CollectiveContext) -> Collective:
    return Collective(op, _gathers(op), _groups(op, context))


def _gathers(op: Op) -> tuple[AllGather, ...]:
    return tuple(AllGather(_shape(v), v.tensor.dtype, op["all_gather_dim"]) for v in op.operands)


def _all_to_all(op: Op, context: CollectiveContext) -> Collective:
    return Collective(op, _exchanges(op), _groups(op, context))


def _exchanges(op: Op) -> tuple[AllToAll, ...]:
    split, concat, count = op["split_dimension"], op["concat_dimension"], op["split_count"]
    return tuple(AllToAll(_shape(v), v.tensor.dtype, split, concat, count) for v in op.operands)


def _collective_permute(op: Op, context: CollectiveContext) -> Collective:
    pairs = process_pairs(op, context.options.grid)
    operand = op.operands[0]
    operation = CollectivePermute(_shape(operand), operand.tensor.dtype, pairs, _zero(operand))
    return Collective(op, (operation,), None)


def _collective_broadcast(op: Op, context: CollectiveContext, root: int = 0) -> Collective:
    values = _data(op)
    operations = tuple(CollectiveBroadcast(_shape(v), v.tensor.dtype, root) for v in values)
    return Collective(op, operations, _groups(op, context), _zeros(op.results))


def _collective_reduce(op: Op, context: CollectiveContext, root: int = 0) -> Collective:
    reduction, reproducible = _reduction(op, context), context.options.reproducible
    operations = tuple(
        CollectiveReduce(_shape(v), v.tensor.dtype, reduction, root, reproducible, _zero(v)) for v in op.results
    )
    return Collective(op, operations, _groups(op, context), _zeros(op.results), _promotions(op))


#: The description of each collective op: (op, context) -> Collective.
DESCRIPTIONS: dict[str, Callable[[Op, CollectiveContext], Collective]] = {
    "stablehlo.all_reduce": _all_reduce,
    "stablehlo.cross-replica-sum": _all_reduce,
    "stablehlo.reduce_scatter": _reduce_scatter,
    "stablehlo.all_gather": _all_gather,
    "stablehlo.all_to_all": _all_to_all,
    "stablehlo.collective_permute": _collective_permute,
    "stablehlo.collective_broadcast": _collective_broadcast,
    "stablehlo.collective_reduce": _collective_reduce,
}

#: The ops by which processes communicate.
COMMUNICATING = frozenset((*DESCRIPTIONS, "stablehlo.send", "stablehlo.recv"))


def messages_of(op: Op, grid: ProcessGrid) -> tuple[CollectivePermute, ...]:
    """Return one permute per tensor that a send transfers, with the ranks that its pairs name.

    Empty if the op has no `source_target_pairs`.
    """
    ends = transfer_ends(op, grid) or {}
    pairs = tuple((source, target) for source, target in ends.items() if source != target)
    tensors = [value for value in op.operands if isinstance(value.type, TensorType)]
    return tuple(CollectivePermute(_shape(each), each.tensor.dtype, pairs) for each in tensors if pairs)


#: Descriptions of ops whose root may be a run-time value: (op, context, root) -> Collective.
ROOTED: dict[str, Callable[[Op, CollectiveContext, int], Collective]] = {
    "stablehlo.collective_broadcast": _collective_broadcast,
    "stablehlo.collective_reduce": _collective_reduce,
}


def left_out(op: Op, who: str, groups: str) -> CollectiveError:
    """Return the error of a process, `who`, that executes `op` but is in none of its `groups`."""
    text = f"{who} is in none of the process groups {groups}"
    return CollectiveError(Diagnostic(op.location, text, op.name, label_of_ids(op)))


def takes_all_processes(op: Op) -> bool:
    """Return whether every process must be in one of the groups of `op`."""
    return op.name in DESCRIPTIONS.keys() - ROOTED.keys() - {"stablehlo.collective_permute"}


#: Ops whose result shape depends on the group size: labels of the constraints on operands and on results.
_LABELS = {
    "stablehlo.all_gather": ("C1", "C6"),
    "stablehlo.all_to_all": ("C8", "C9"),
    "stablehlo.reduce_scatter": ("C1", "C8"),
}


def shape_fault(op: Op, sizes: Iterable[int]) -> Diagnostic | None:
    """Return the fault if, in a group of one of `sizes` processes, results differ from the declared types of `op`.

    The result shape depends on the group size, which the op's types alone do not determine. Dynamic dimensions match
    any size. Source: StableHLO specification, all_gather C6, reduce_scatter C1 and C8, all_to_all C2, C8 and C9.
    """
    labels = _LABELS.get(op.name)
    if labels is None or not all(value.tensor.is_static for value in op.operands):
        return None
    for size in sizes:
        for operation, result in zip(_resized(op), op.results, strict=True):
            try:
                shape = operation.result_shape(size)
            except CommunicationError as error:
                return Diagnostic(op.location, str(error), op.name, labels[0])
            declared = result.tensor
            if len(shape) != declared.rank or any(
                d not in (None, s) for d, s in zip(declared.shape, shape, strict=True)
            ):
                text = f"result in a group of {size} processes must have shape {shape}, got {declared}"
                return Diagnostic(op.location, text, op.name, labels[1])
    return None


def check_shapes(op: Op, sizes: Iterable[int]) -> None:
    """Raise CollectiveError if `shape_fault` finds a fault."""
    fault = shape_fault(op, sizes)
    if fault is not None:
        raise CollectiveError(fault)


def _resized(op: Op) -> tuple[Operation, ...]:
    """Return the operation of each operand of an op of `_LABELS`."""
    if op.name == "stablehlo.all_gather":
        return _gathers(op)
    if op.name == "stablehlo.all_to_all":
        return _exchanges(op)
    operand = op.operands[0]
    return (ReduceScatter(_shape(operand), operand.tensor.dtype, ADD, op["scatter_dimension"]),)


def _groups(op: Op, context: CollectiveContext) -> Groups:
    return process_groups(op, context.options.grid, context.module)


def _shape(value: Value) -> tuple[int, ...]:
    return value.tensor.static_shape


def _data(op: Op) -> tuple[Value, ...]:
    """Return the operands without the root."""
    return op.operands[: len(op.results)]


def _promotions(op: Op) -> tuple[DType | None, ...]:
    """Return the dtype to convert each operand to before the reduction; None where it is the result's own."""
    pairs = zip(_data(op), op.results, strict=True)
    return tuple(None if v.tensor.dtype == r.tensor.dtype else r.tensor.dtype for v, r in pairs)


def _zero(value: Value) -> int:
    """Return the stored value that represents zero in `value` (the zero point of a quantized type)."""
    element = value.tensor.element_type
    return element.zero_points[0] if isinstance(element, QuantizedType) else 0


def _zeros(values: Sequence[Value]) -> Callable[[int], Array]:
    forms = [(_shape(v), v.tensor.dtype, _zero(v)) for v in values]

    def zeros(index: int) -> Array:
        shape, dtype, fill = forms[index]
        return np.full(shape, fill, dtype) if fill else np.zeros(shape, dtype)

    return zeros


def _reduction(op: Op, context: CollectiveContext) -> Reduction:
    """Return the op's region as a reduction: a known monoid, or the region itself applied to whole arrays."""
    monoid = monoid_of(op.regions[0])
    if monoid is not None and monoid.kind in MONOIDS:
        return MONOIDS[monoid.kind]
    function = context.vectorized(op, 0)
    return Reduction(f"by region {_fingerprint(op)}", lambda a, b: function(a, b)[0])


def _fingerprint(op: Op) -> str:
    """Return a short hash of the region's computation, equal for equal regions of different programs."""
    numbers: dict[Value, int] = {}
    text = []
    block = op.regions[0].block
    for value in (*captured_values(op), *block.arguments):
        numbers[value] = len(numbers)
    for nested in block.ops:
        for inner in nested.walk():
            operands, attributes = [numbers.get(v) for v in inner.operands], sorted(map(repr, inner.attributes.items()))
            text.append(f"{inner.name}{operands}{attributes}{inner.result_types}")
            for result in inner.results:
                numbers[result] = len(numbers)
    return hashlib.sha1("\n".join(text).encode()).hexdigest()[:8]
