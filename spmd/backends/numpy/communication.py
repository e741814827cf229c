"""Transfers between two processes, and between a process and its host.

Source: StableHLO specification, "Point-to-point communication", "Streaming communication", send, recv, infeed, outfeed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from collectives.channels import Channels
from spmd.analysis.process_groups import channel_id, transfer_ends
from spmd.backends.kernels import Context, Kernel, kernel
from spmd.errors import Diagnostic, ExecutionError
from spmd.ir import Op
from spmd.runtime.process import Process
from spmd.support.arrays import Array, Results
from spmd.types import TensorType


@kernel("stablehlo.send")
def send(op: Op, context: Context) -> Kernel:
    """Send the inputs one by one, without blocking; the token orders them."""
    channel, target, where = channel_id(op), _other_end(op, context, sending=True), str(op.location)

    def call(process: Process, *values: Array) -> None:
        other = target(process)
        if other is not None:
            for array in values[:-1]:
                process.communicator.send(np.asarray(array), other, channel, where)

    return Kernel(call, needs_process=True)


@kernel("stablehlo.recv")
def recv(op: Op, context: Context) -> Kernel:
    """Receive one array per tensor result, blocking."""
    channel, source, where = channel_id(op), _other_end(op, context, sending=False), str(op.location)
    types = [result.type for result in op.results if isinstance(result.type, TensorType)]
    forms = [(type.static_shape, type.dtype) for type in types]

    def call(process: Process, token: Array) -> Results:
        other = source(process)
        if other is None:
            return _results([np.zeros(shape, dtype) for shape, dtype in forms])
        receive = process.communicator.receive
        return _results([receive(shape, dtype, other, channel, where) for shape, dtype in forms])

    return Kernel(call, needs_process=True)


def _results(arrays: Sequence[Array]) -> Results:
    """Return the results of an op whose last result is a token."""
    return (*arrays, None) if arrays else None


def _other_end(op: Op, context: Context, sending: bool) -> Callable[[Process], int | None]:
    """Return a function from a process to the peer of its transfer; None for a process at neither end."""
    ends = transfer_ends(op, context.options.grid)
    channel = channel_id(op)
    if ends is None:
        return lambda process: _found_end(process, channel, sending)
    return lambda process: ends.get(process.rank)


def _found_end(process: Process, channel: int, sending: bool) -> int:
    channels: Channels = process.bind(Channels, _one_program)
    return channels.target(channel, process.rank) if sending else channels.source(channel, process.rank)


def _one_program(process: Process) -> Channels:
    """Return the channels of a single program, in which each process sends to itself."""
    size = process.communicator.size
    return _Everyone([()] * size, [()] * size)


class _Everyone(Channels):
    def target(self, channel: int, rank: int) -> int:
        return rank

    def source(self, channel: int, rank: int) -> int:
        return rank


@kernel("stablehlo.infeed")
def infeed(op: Op, context: Context) -> Kernel:
    """Return the next entry of the process's infeed; ExecutionError if it is not of the result types."""
    types = [result.type for result in op.results if isinstance(result.type, TensorType)]

    def call(process: Process, token: Array) -> Results:
        if process.infeed is None:
            raise ExecutionError(Diagnostic(op.location, f"process {process.rank} has no infeed", op.name))
        try:
            with process.communicator.outside():
                arrays = process.infeed()
        except StopIteration:
            text = f"the infeed of process {process.rank} is exhausted"
            raise ExecutionError(Diagnostic(op.location, text, op.name)) from None
        fed = [np.asarray(array) for array in (arrays if isinstance(arrays, tuple | list) else (arrays,))]
        if [(a.shape, a.dtype) for a in fed] != [(t.shape, t.dtype) for t in types]:
            got = ", ".join(f"{array.dtype} of shape {array.shape}" for array in fed) or "nothing"
            expected = ", ".join(map(str, types)) or "nothing"
            text = f"the infeed of process {process.rank} gives {got} where {expected} is read"
            raise ExecutionError(Diagnostic(op.location, text, op.name))
        return _results(fed)

    return Kernel(call, needs_process=True, owned=False)


@kernel("stablehlo.outfeed")
def outfeed(op: Op, context: Context) -> Kernel:
    """Pass copies of the inputs to the process's outfeed."""

    def call(process: Process, *values: Array) -> None:
        if process.outfeed is not None:
            arrays = tuple([np.array(array) for array in values[:-1]])
            with process.communicator.outside():
                process.outfeed(arrays)

    return Kernel(call, needs_process=True)
