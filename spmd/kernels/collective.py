"""Collectives: each op becomes one bound call a process, made when the process first comes to it and kept.

Source: StableHLO specification, "Collective ops" and each op's section.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from collectives.communicator import Call, Communicator, Start
from collectives.errors import CollectiveError
from collectives.grid import Groups, find_group
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
from spmd.ir import Op, Value, captured_values
from spmd.kernels.core import Context, Kernel, kernel
from spmd.kernels.process_groups import process_groups, process_pairs
from spmd.kernels.regions import monoid_of
from spmd.runtime.process import Process
from spmd.types import QuantizedType

Array = np.ndarray[Any, Any]


@kernel("stablehlo.replica_id")
def replica_id(op: Op, context: Context) -> Kernel:
    return Kernel(lambda process: np.array(process.id.replica_id, np.uint32), needs_process=True)


@kernel("stablehlo.partition_id")
def partition_id(op: Op, context: Context) -> Kernel:
    return Kernel(lambda process: np.array(process.id.partition_id, np.uint32), needs_process=True)


@dataclass(frozen=True)
class Collective:
    """What a collective op asks of the communicator, one operation an operand.

    `groups` are the process groups, or None for an op on the whole grid. A process in no group gets what
    `outsider(index)` makes, or an error where that is None. `convert` is the dtype to which operands are promoted.
    All_reduces of up to `pack_limit` bytes in all travel as one message.
    """

    op: Op
    operations: tuple[Operation, ...]
    groups: Groups | None
    outsider: Callable[[int], Array] | None = None
    convert: tuple[np.dtype[Any] | None, ...] = ()
    pack_limit: int = 0

    def communicator(self, process: Process, context: Context) -> Communicator | None:
        """The process's end of its group; None for a process in no group."""
        world = process.communicator
        if context.options.check_collectives:
            world = world.checked()
        if self.groups is None:
            return world
        group = find_group(self.groups, process.rank)
        if group is not None:
            return world.group(group)
        if self.outsider is None:
            raise CollectiveError(f"process {process.id} is in none of the process groups {[*map(list, self.groups)]}")
        return None

    @cached_property
    def packed(self) -> AllReduce | None:
        """The one message as which the operands of a variadic all_reduce travel together, if they do."""
        first = self.operations[0]
        if not isinstance(first, AllReduce) or len({operation.dtype for operation in self.operations}) > 1:
            return None
        count = sum(prod(operation.shape) for operation in self.operations)
        if len(self.operations) == 1 or count * first.dtype.itemsize > self.pack_limit:
            return None
        return AllReduce((count,), first.dtype, first.reduction, first.reproducible)

    @property
    def messages(self) -> tuple[Operation, ...]:
        """The operations that are carried out."""
        return self.operations if self.packed is None else (self.packed,)

    @cached_property
    def where(self) -> str:
        """The op's place in the source."""
        return str(self.op.location)


@kernel(
    "stablehlo.all_reduce",
    "stablehlo.cross-replica-sum",
    "stablehlo.all_gather",
    "stablehlo.reduce_scatter",
    "stablehlo.all_to_all",
    "stablehlo.collective_permute",
)
def collective(op: Op, context: Context) -> Kernel:
    """A collective whose every operand is an operation by itself."""
    return _blocking(DESCRIPTIONS[op.name](op, context), context)


@kernel("stablehlo.collective_broadcast", "stablehlo.collective_reduce")
def rooted(op: Op, context: Context) -> Kernel:
    if op["has_dynamic_root"]:
        return _dynamic_root(op, context)
    return _blocking(DESCRIPTIONS[op.name](op, context), context)


# --- what each op asks for -------------------------------------------------------------------------------------------


def _all_reduce(op: Op, context: Context) -> Collective:
    reduction = ADD if op.name == "stablehlo.cross-replica-sum" else _reduction(op, context)
    reproducible = context.options.reproducible
    operations = tuple(AllReduce(_shape(value), value.tensor.dtype, reduction, reproducible) for value in op.results)
    limit = context.options.combine_threshold
    return Collective(op, operations, _groups(op, context), convert=_promotions(op), pack_limit=limit)


def _reduce_scatter(op: Op, context: Context) -> Collective:
    operand, dtype = op.operands[0], op.result.tensor.dtype
    operation = ReduceScatter(
        _shape(operand), dtype, _reduction(op, context), op["scatter_dimension"], context.options.reproducible
    )
    return Collective(op, (operation,), _groups(op, context), convert=_promotions(op))


def _all_gather(op: Op, context: Context) -> Collective:
    operations = tuple(AllGather(_shape(v), v.tensor.dtype, op["all_gather_dim"]) for v in op.operands)
    return Collective(op, operations, _groups(op, context))


def _all_to_all(op: Op, context: Context) -> Collective:
    split, concat, count = op["split_dimension"], op["concat_dimension"], op["split_count"]
    operations = tuple(AllToAll(_shape(v), v.tensor.dtype, split, concat, count) for v in op.operands)
    return Collective(op, operations, _groups(op, context))


def _collective_permute(op: Op, context: Context) -> Collective:
    pairs = process_pairs(op, context.options.grid)
    operand = op.operands[0]
    operation = CollectivePermute(_shape(operand), operand.tensor.dtype, pairs, _zero(operand))
    return Collective(op, (operation,), None)


def _collective_broadcast(op: Op, context: Context, root: int = 0) -> Collective:
    values = _data(op)
    operations = tuple(CollectiveBroadcast(_shape(v), v.tensor.dtype, root) for v in values)
    return Collective(op, operations, _groups(op, context), _zeros(op.results))


def _collective_reduce(op: Op, context: Context, root: int = 0) -> Collective:
    reduction, reproducible = _reduction(op, context), context.options.reproducible
    operations = tuple(
        CollectiveReduce(_shape(v), v.tensor.dtype, reduction, root, reproducible, _zero(v)) for v in op.results
    )
    return Collective(op, operations, _groups(op, context), _zeros(op.results), _promotions(op))


DESCRIPTIONS: dict[str, Callable[[Op, Context], Collective]] = {
    "stablehlo.all_reduce": _all_reduce,
    "stablehlo.cross-replica-sum": _all_reduce,
    "stablehlo.reduce_scatter": _reduce_scatter,
    "stablehlo.all_gather": _all_gather,
    "stablehlo.all_to_all": _all_to_all,
    "stablehlo.collective_permute": _collective_permute,
    "stablehlo.collective_broadcast": _collective_broadcast,
    "stablehlo.collective_reduce": _collective_reduce,
}


def _groups(op: Op, context: Context) -> Groups:
    return process_groups(op, context.options.grid, context.module)


def _shape(value: Value) -> tuple[int, ...]:
    return value.tensor.static_shape


def _data(op: Op) -> list[Value]:
    """The operands without the roots."""
    return op.operands[: len(op.results)]


def _promotions(op: Op) -> tuple[np.dtype[Any] | None, ...]:
    """The dtype to convert each operand to before it is reduced; None where it has the result's own."""
    pairs = zip(_data(op), op.results, strict=True)
    return tuple(None if v.tensor.dtype == r.tensor.dtype else r.tensor.dtype for v, r in pairs)


def _zero(value: Value) -> int:
    """What stands for zero in the storage of `value`."""
    element = value.tensor.element_type
    return element.zero_points[0] if isinstance(element, QuantizedType) else 0


def _zeros(values: Sequence[Value]) -> Callable[[int], Array]:
    forms = [(_shape(v), v.tensor.dtype, _zero(v)) for v in values]

    def zeros(index: int) -> Array:
        shape, dtype, fill = forms[index]
        return np.full(shape, fill, dtype) if fill else np.zeros(shape, dtype)

    return zeros


def _reduction(op: Op, context: Context) -> Reduction:
    """The op's region as a reduction: one of the monoids, or itself on whole arrays."""
    monoid = monoid_of(op.regions[0])
    if monoid is not None and monoid.kind in MONOIDS:
        return MONOIDS[monoid.kind]
    function = context.vectorized(op, 0)
    return Reduction(f"by region {_fingerprint(op)}", lambda a, b: function(a, b)[0])


def _fingerprint(op: Op) -> str:
    """A short name for what the region computes, the same for equal regions in different programs."""
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


# --- how it is called ------------------------------------------------------------------------------------------------


def _blocking(collective: Collective, context: Context) -> Kernel:
    key = object()

    def bind(process: Process) -> Sequence[Call]:
        communicator = collective.communicator(process, context)
        if communicator is None:
            return [_outside(collective, i) for i in range(len(collective.operations))]
        calls = [communicator.bind(operation, collective.where) for operation in collective.operations]
        return [_promoting(call, dtype) for call, dtype in zip(calls, _conversions(collective), strict=True)]

    if len(collective.operations) > 1:
        if collective.packed is not None:
            return _packed(collective, collective.packed, context)

        def several(process: Process, *arrays: Array) -> tuple[Array, ...]:
            calls = process.bound.get(key)
            if calls is None:
                calls = process.bound[key] = bind(process)
            return tuple([call(np.asarray(array)) for call, array in zip(calls, arrays, strict=True)])

        return Kernel(several, needs_process=True)

    scalar = not collective.operations[0].shape

    def call(process: Process, array: Array, out: Array | None = None) -> Array:
        bound = process.bound.get(key)
        if bound is None:
            bound = process.bound[key] = bind(process)[0]
        if out is not None and not out.flags.c_contiguous:
            out = None  # MPI writes elements in C order
        return bound(np.asarray(array) if scalar else array, out)

    value, result = collective.op.operands[0].tensor, collective.op.results[0].tensor
    in_place = value.shape == result.shape and value.dtype == result.dtype
    return Kernel(call, needs_process=True, accepts_out=True, reuses=(0,) if in_place else ())


def _packed(collective: Collective, operation: AllReduce, context: Context) -> Kernel:
    """One all_reduce of all operands end to end; the results are the parts of its result."""
    shapes = [operation.shape for operation in collective.operations]
    ends = np.cumsum([0, *map(prod, shapes)]).tolist()
    parts = [(slice(a, b), shape) for a, b, shape in zip(ends, ends[1:], shapes, strict=False)]
    key = object()

    def bind(process: Process) -> Call:
        communicator = collective.communicator(process, context)
        assert communicator is not None
        return communicator.bind(operation, collective.where)

    def call(process: Process, *arrays: Array) -> tuple[Array, ...]:
        bound = process.bound.get(key)
        if bound is None:
            bound = process.bound[key] = bind(process)
        together = np.empty(operation.shape, operation.dtype)
        for (where, shape), array in zip(parts, arrays, strict=True):
            together[where].reshape(shape)[...] = array
        bound(together, together)
        return tuple([together[where].reshape(shape) for where, shape in parts])

    return Kernel(call, needs_process=True)


def _conversions(collective: Collective) -> tuple[np.dtype[Any] | None, ...]:
    return collective.convert or (None,) * len(collective.operations)


def _promoting(call: Call, dtype: np.dtype[Any] | None) -> Call:
    if dtype is None:
        return call

    def promoted(array: Array, out: Array | None = None) -> Array:
        return call(np.asarray(array, dtype=dtype), out)

    return promoted


def _outside(collective: Collective, index: int) -> Call:
    """What a process gets that is in no group."""
    outsider = collective.outsider
    assert outsider is not None

    def call(array: Array, out: Array | None = None) -> Array:
        result = outsider(index)
        if out is None:
            return result
        np.copyto(out, result)
        return out

    return call


def _dynamic_root(op: Op, context: Context) -> Kernel:
    """The root of each operand's operation is a position in the group, told by the last operand."""
    describe = _collective_broadcast if op.name == "stablehlo.collective_broadcast" else _collective_reduce
    key = object()
    single = len(op.results) == 1

    def call(process: Process, *arrays: Array) -> Any:
        calls: dict[tuple[int, int], Call] = process.bind(key, lambda process: {})
        results = []
        for index, root in enumerate(np.ravel(arrays[-1]).tolist()):
            bound = calls.get((index, root))
            if bound is None:
                collective = describe(op, context, root)
                communicator = collective.communicator(process, context)
                if communicator is None:
                    bound = _outside(collective, index)
                else:
                    bound = communicator.bind(collective.operations[index], collective.where)
                    bound = _promoting(bound, _conversions(collective)[index])
                calls[index, root] = bound
            results.append(bound(np.asarray(arrays[index])))
        return results[0] if single else tuple(results)

    return Kernel(call, needs_process=True)


# --- asynchronously --------------------------------------------------------------------------------------------------


class _Computed:
    """A future whose value is there already."""

    __slots__ = ("_values",)

    def __init__(self, values: Any) -> None:
        self._values = values

    def wait(self) -> Any:
        return self._values


class _Pending:
    """A future of collectives under way."""

    __slots__ = ("_requests",)

    def __init__(self, requests: Sequence[Any]) -> None:
        self._requests = requests

    def wait(self) -> Any:
        results = tuple([request.wait() for request in self._requests])
        return results[0] if len(results) == 1 else results


@kernel("stablehlo.async_start")
def async_start(op: Op, context: Context) -> Kernel:
    """Starts the collective of the region. The operands belong to the future until it is done."""
    body = op.regions[0].block
    inner = body.ops[0]
    everything = tuple(range(len(op.operands)))
    describe = DESCRIPTIONS.get(inner.name)
    if describe is None or inner.attributes.get("has_dynamic_root"):
        program = context.region(op, 0)

        def run(process: Process, *arrays: Array) -> _Computed:
            results = program(process, *arrays)
            return _Computed(results[0] if len(results) == 1 else results)

        return Kernel(run, needs_process=True, aliases=everything)
    collective = describe(inner, context)
    positions = [body.arguments.index(value) for value in inner.operands]
    key = object()

    def bind(process: Process) -> Sequence[Callable[[Array], Any]]:
        communicator = collective.communicator(process, context)
        if communicator is None:
            return [_computing(_outside(collective, i)) for i in range(len(collective.operations))]
        starts = [communicator.bind_start(operation, collective.where) for operation in collective.operations]
        return [_converting(start, dtype) for start, dtype in zip(starts, _conversions(collective), strict=True)]

    def call(process: Process, *arrays: Array) -> _Pending:
        starts = process.bind(key, bind)
        operands = [np.asarray(arrays[position]) for position in positions]
        return _Pending([start(array) for start, array in zip(starts, operands, strict=True)])

    return Kernel(call, needs_process=True, aliases=everything)


def _computing(call: Call) -> Callable[[Array], Any]:
    return lambda array: _Computed(call(array))


def _converting(start: Start, dtype: np.dtype[Any] | None) -> Callable[[Array], Any]:
    return start if dtype is None else lambda array: start(np.asarray(array, dtype=dtype))


@kernel("stablehlo.async_done")
def async_done(op: Op, context: Context) -> Kernel:
    return Kernel(lambda future: future.wait(), aliases=(0,))
