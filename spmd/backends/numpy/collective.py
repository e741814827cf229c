"""Collectives: each op is bound once per process, at its first call.

Source: StableHLO specification, "Collective ops" and each op's section.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from collectives.communicator import BoundCollective, Communicator, Completed, Request, Start
from collectives.operations import AllReduce, Operation
from spmd.analysis.collectives import DESCRIPTIONS, ROOTED, Collective, check_shapes
from spmd.backends.kernels import Context, Kernel, kernel
from spmd.ir import Op
from spmd.runtime.process import Process
from spmd.support.arrays import Array, DType, Results


@kernel("stablehlo.replica_id")
def replica_id(op: Op, context: Context) -> Kernel:
    return Kernel(lambda process: np.array(process.id.replica_id, np.uint32), needs_process=True)


@kernel("stablehlo.partition_id")
def partition_id(op: Op, context: Context) -> Kernel:
    return Kernel(lambda process: np.array(process.id.partition_id, np.uint32), needs_process=True)


@kernel(*(DESCRIPTIONS.keys() - ROOTED.keys()))
def collective(op: Op, context: Context) -> Kernel:
    """Return a collective with one operation per operand."""
    return _blocking(_described(op, context), context)


@kernel(*ROOTED)
def rooted(op: Op, context: Context) -> Kernel:
    if op["has_dynamic_root"]:
        return _dynamic_root(op, context)
    return _blocking(_described(op, context), context)


def _described(op: Op, context: Context) -> Collective:
    """Return the description of `op`; its result shapes are checked against the group sizes."""
    collective = DESCRIPTIONS[op.name](op, context)
    if collective.groups is not None:
        check_shapes(op, collective.groups.sizes)
    return collective


def _end(collective: Collective, process: Process, context: Context) -> Communicator | None:
    """Return the communicator of the process's group; None for a process in no group."""
    world = process.communicator
    return collective.communicator(world.checked() if context.options.check_collectives else world, process.rank)


def _compare(collective: Collective, operation: Operation, process: Process) -> None:
    """Compare a first call with those of other members, before it is bound."""
    groups, world = collective.groups, process.communicator
    members = world.members if groups is None else groups.find(process.rank)
    if members is not None:
        world.compare(members, operation, collective.where)


def _blocking(collective: Collective, context: Context) -> Kernel:
    key = object()

    def bind(process: Process) -> Sequence[BoundCollective]:
        communicator = _end(collective, process, context)
        if communicator is None:
            return [_outside(collective, i, process) for i in range(len(collective.operations))]
        calls = [communicator.bind(operation, collective.where) for operation in collective.operations]
        return [_promoting(call, dtype) for call, dtype in zip(calls, _conversions(collective), strict=True)]

    if len(collective.operations) > 1:
        if collective.packed is not None:
            return _packed(collective, collective.packed, context)

        def several(process: Process, *arrays: Array) -> tuple[Array, ...]:
            calls = process.bound.get(key)
            if calls is None:
                return at_first(process, arrays)
            return tuple([call(np.asarray(array)) for call, array in zip(calls, arrays, strict=True)])

        def at_first(process: Process, arrays: Sequence[Array]) -> tuple[Array, ...]:
            calls: Sequence[BoundCollective] | None = None
            results = []
            for index, array in enumerate(arrays):
                _compare(collective, collective.operations[index], process)
                if calls is None:
                    calls = process.bound[key] = bind(process)
                results.append(calls[index](np.asarray(array)))
            return tuple(results)

        return Kernel(several, needs_process=True)

    scalar = not collective.operations[0].shape

    def call(process: Process, array: Array, out: Array | None = None) -> Array:
        bound = process.bound.get(key)
        if bound is None:
            _compare(collective, collective.operations[0], process)
            bound = process.bound[key] = bind(process)[0]
        if out is not None and not out.flags.c_contiguous:
            out = None  # MPI needs C order
        return bound(np.asarray(array) if scalar else array, out)

    value, result = collective.op.operands[0].tensor, collective.op.results[0].tensor
    in_place = value.shape == result.shape and value.dtype == result.dtype
    return Kernel(call, needs_process=True, accepts_out=True, reuses=(0,) if in_place else ())


def _packed(collective: Collective, operation: AllReduce, context: Context) -> Kernel:
    """Return one all_reduce of all operands, concatenated and flattened; results are slices of its result."""
    shapes = [operation.shape for operation in collective.operations]
    ends = np.cumsum([0, *map(prod, shapes)]).tolist()
    parts = [(slice(a, b), shape) for a, b, shape in zip(ends, ends[1:], shapes, strict=False)]
    key = object()

    def bind(process: Process) -> BoundCollective:
        communicator = _end(collective, process, context)
        assert communicator is not None
        return communicator.bind(operation, collective.where)

    def call(process: Process, *arrays: Array) -> tuple[Array, ...]:
        bound = process.bound.get(key)
        if bound is None:
            _compare(collective, operation, process)
            bound = process.bound[key] = bind(process)
        together = np.empty(operation.shape, operation.dtype)
        for (where, shape), array in zip(parts, arrays, strict=True):
            together[where].reshape(shape)[...] = array
        bound(together, together)
        return tuple([together[where].reshape(shape) for where, shape in parts])

    return Kernel(call, needs_process=True)


def _conversions(collective: Collective) -> tuple[DType | None, ...]:
    return collective.convert or (None,) * len(collective.operations)


def _promoting(call: BoundCollective, dtype: DType | None) -> BoundCollective:
    if dtype is None:
        return call

    def promoted(array: Array, out: Array | None = None) -> Array:
        return call(np.asarray(array, dtype=dtype), out)

    return promoted


def _outside(collective: Collective, index: int, process: Process) -> BoundCollective:
    """Return the constant result of `process`, which is in no group."""
    outsider = collective.outsider
    assert outsider is not None

    def call(array: Array, out: Array | None = None) -> Array:
        process.communicator.pass_by(collective.where)
        result = outsider(index)
        if out is None:
            return result
        np.copyto(out, result)
        return out

    return call


def _dynamic_root(op: Op, context: Context) -> Kernel:
    """Return a collective with dynamic roots: the last operand has a position in the group for each operand."""
    describe = ROOTED[op.name]
    key = object()
    single = len(op.results) == 1

    def call(process: Process, *arrays: Array) -> Results:
        calls: dict[tuple[int, int], BoundCollective] = process.bind(key, lambda process: {})
        results = []
        for index, root in enumerate(np.ravel(arrays[-1]).tolist()):
            bound = calls.get((index, root))
            if bound is None:
                collective = describe(op, context, root)
                _compare(collective, collective.operations[index], process)
                communicator = _end(collective, process, context)
                if communicator is None:
                    bound = _outside(collective, index, process)
                else:
                    bound = communicator.bind(collective.operations[index], collective.where)
                    bound = _promoting(bound, _conversions(collective)[index])
                calls[index, root] = bound
            results.append(bound(np.asarray(arrays[index])))
        return results[0] if single else tuple(results)

    return Kernel(call, needs_process=True)


# --- asynchronous ----------------------------------------------------------------------------------------------------


class _Pending:
    """A future of running collectives."""

    __slots__ = ("_requests",)

    def __init__(self, requests: Sequence[Request | Completed[Results]]) -> None:
        self._requests = requests

    def wait(self) -> Results:
        results = tuple([request.wait() for request in self._requests])
        return results[0] if len(results) == 1 else results


@kernel("stablehlo.async_start")
def async_start(op: Op, context: Context) -> Kernel:
    """Start the collective of the region. The operands must not be modified until it is done."""
    body = op.regions[0].block
    inner = body.ops[0]
    everything = tuple(range(len(op.operands)))
    if inner.name not in DESCRIPTIONS or inner.attributes.get("has_dynamic_root"):
        program = context.region(op, 0)

        def run(process: Process, *arrays: Array) -> Completed[Results]:
            results = program(process, *arrays)
            return Completed(results[0] if len(results) == 1 else results)

        return Kernel(run, needs_process=True, aliases=everything)
    collective = _described(inner, context)
    positions = [body.arguments.index(value) for value in inner.operands]
    key = object()

    def bind(process: Process) -> Sequence[Callable[[Array], Request | Completed[Results]]]:
        communicator = _end(collective, process, context)
        if communicator is None:
            return [_computing(_outside(collective, i, process)) for i in range(len(collective.operations))]
        starts = [communicator.bind_start(operation, collective.where) for operation in collective.operations]
        return [_converting(start, dtype) for start, dtype in zip(starts, _conversions(collective), strict=True)]

    def call(process: Process, *arrays: Array) -> _Pending:
        starts = process.bind(key, bind)
        operands = [np.asarray(arrays[position]) for position in positions]
        return _Pending([start(array) for start, array in zip(starts, operands, strict=True)])

    return Kernel(call, needs_process=True, aliases=everything)


def _computing(call: BoundCollective) -> Callable[[Array], Completed[Results]]:
    return lambda array: Completed(call(array))


def _converting(start: Start, dtype: DType | None) -> Start:
    return start if dtype is None else lambda array: start(np.asarray(array, dtype=dtype))


@kernel("stablehlo.async_done")
def async_done(op: Op, context: Context) -> Kernel:
    return Kernel(lambda future: future.wait(), aliases=(0,))
