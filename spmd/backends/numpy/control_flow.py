"""Loops, branches, calls and tuples: StableHLO specification, "while", "if", "case", "composite", "tuple", ..."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from spmd.backends.kernels import Context, Kernel, kernel
from spmd.ir import Op, captured_values
from spmd.runtime.process import Process
from spmd.support.arrays import Array, Results


@kernel("stablehlo.while")
def while_(op: Op, context: Context) -> Kernel:
    condition = context.region(op, 0)
    body, overwritten = context.loop_body(op, 1)
    carried = len(op.results)
    single = carried == 1

    def own(values: tuple[Array, ...]) -> tuple[Array, ...]:
        """Return the initial state with copies of what the body overwrites."""
        state = list(values)
        for position in overwritten:
            state[position] = np.array(state[position])
        return tuple(state)

    def plain(process: Process, *state: Array) -> Results:
        if overwritten:
            state = own(state)
        while condition(process, *state)[0]:
            state = body(process, *state)
        return state[0] if single else state

    def capturing(process: Process, *values: Array) -> Results:
        state, captured = values[:carried], values[carried:]
        if overwritten:
            state = own(state)
        while condition(process, *state, *captured)[0]:
            state = body(process, *state, *captured)
        return state[0] if single else state

    return _through(op, capturing if captured_values(op) else plain)


@kernel("stablehlo.if")
def if_(op: Op, context: Context) -> Kernel:
    taken, otherwise = context.region(op, 0), context.region(op, 1)
    single = len(op.results) == 1

    def call(process: Process, predicate: Array, *captured: Array) -> Results:
        results = (taken if predicate else otherwise)(process, *captured)
        return results[0] if single else results

    return _through(op, call)


@kernel("stablehlo.case")
def case(op: Op, context: Context) -> Kernel:
    branches = [context.region(op, index) for index in range(len(op.regions))]
    last = len(branches) - 1
    single = len(op.results) == 1

    def call(process: Process, index: Array, *captured: Array) -> Results:
        chosen = int(index)
        results = branches[chosen if 0 <= chosen <= last else last](process, *captured)
        return results[0] if single else results

    return _through(op, call)


@kernel("stablehlo.map")
def map_(op: Op, context: Context) -> Kernel:
    function = context.vectorized(op, 0)
    return Kernel(
        lambda *arrays: function(*arrays)[0], aliases=tuple(range(len(op.operands) + len(captured_values(op))))
    )


@kernel("stablehlo.composite")
def composite(op: Op, context: Context) -> Kernel:
    return _call(op, context, op["decomposition"])


@kernel("func.call")
def call(op: Op, context: Context) -> Kernel:
    return _call(op, context, op["callee"])


def _call(op: Op, context: Context, symbol: str) -> Kernel:
    function = context.function(symbol, op)
    if len(op.results) == 1:
        return _through(op, lambda process, *arguments: function(process, *arguments)[0])
    return _through(op, function)


@kernel("stablehlo.optimization_barrier")
def optimization_barrier(op: Op, context: Context) -> Kernel:
    call = (lambda value: value) if len(op.results) == 1 else (lambda *values: values)
    return Kernel(call, aliases=tuple(range(len(op.operands))))


@kernel("stablehlo.tuple")
def tuple_(op: Op, context: Context) -> Kernel:
    return Kernel(lambda *values: values, aliases=tuple(range(len(op.operands))))


@kernel("stablehlo.get_tuple_element")
def get_tuple_element(op: Op, context: Context) -> Kernel:
    index = op["index"]
    return Kernel(lambda values: values[index], aliases=(0,))


@kernel("stablehlo.after_all", "stablehlo.create_token")
def token(op: Op, context: Context) -> Kernel:
    return Kernel(lambda *tokens: None)


def _through(op: Op, call: Callable[..., Results]) -> Kernel:
    """Return a kernel that runs regions or functions, whose results may alias any operand."""
    captured = len(captured_values(op)) if op.regions else 0
    return Kernel(call, needs_process=True, aliases=tuple(range(len(op.operands) + captured)))
