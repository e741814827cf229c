"""Inlining of calls: the program of a process becomes one flat function.

`func.call` and `stablehlo.composite` (its decomposition) are inlined, in regions too. If the result would be too large,
large functions are compiled once and called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from spmd.dialects.calls import CALLS, MOST_OPS, Calls
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Block, Function, Module, Op, Region, Value, copy_arguments

#: In a program of more than MOST_OPS, the largest function that is still inlined.
_SMALL = 1 << 8
#: Deepest nesting of regions, and of calls that are not inlined: later stages recurse into them.
_DEEPEST = 100


def inline(module: Module, function: Function, *, whole: bool = False) -> Function:
    """Return a copy of `function` without calls, except of large functions if it would be too large.

    `whole`: raise CompileError for such a function instead.
    """
    calls = Calls(module)
    if whole:
        calls.check_size(function)
    extents = calls.extents(function)
    inlined = lambda symbol: True  # noqa: E731
    if extents[function.symbol].ops > MOST_OPS:
        extents = calls.extents(function, lambda ops: ops <= _SMALL)
        inlined = lambda symbol: extents[symbol].ops <= _SMALL  # noqa: E731
        if extents[function.symbol].depth > _DEEPEST:
            text = f"calls of functions too large to inline nest more than {_DEEPEST} deep"
            raise CompileError(Diagnostic(function.location, text, function.name))
    return _Inliner(calls, inlined).function(function)


@dataclass
class _Inlining:
    """Ops being copied to another block: the values that replace operands, and an action at the end."""

    ops: Iterator[Op]
    values: dict[Value, Value]
    target: list[Op]
    depth: int
    finish: Callable[[], None] = lambda: None


class _Inliner:
    """Copies ops without recursion, since calls and regions may nest deeply."""

    def __init__(self, calls: Calls, is_inlined: Callable[[str], bool]) -> None:
        self._calls = calls
        self._is_inlined = is_inlined
        self._walks: list[_Inlining] = []

    def function(self, function: Function) -> Function:
        self._calls.enter(function)
        body = self._copy(function.body, {}, 0)
        while self._walks:
            walk = self._walks[-1]
            op = next(walk.ops, None)
            if op is None:
                self._walks.pop()
                walk.finish()
            elif op.name in CALLS and self._is_inlined(op[CALLS[op.name]]):
                self._call(op, walk)
            else:
                self._plain(op, walk)
        self._calls.leave(function)
        return function.with_body(body)

    def _copy(self, block: Block, values: dict[Value, Value], depth: int) -> Block:
        """Return a new block; the ops of `block` are copied to it later."""
        copy = copy_arguments(block, values)
        self._walks.append(_Inlining(iter(block.ops), values, copy.ops, depth))
        return copy

    def _plain(self, op: Op, walk: _Inlining) -> None:
        operands = [walk.values.get(operand, operand) for operand in op.operands]
        if op.regions and walk.depth >= _DEEPEST:
            text = f"regions nest more than {_DEEPEST} deep after inlining"
            raise CompileError(Diagnostic(op.location, text, op.name))
        regions = [
            Region([self._copy(block, walk.values, walk.depth + 1) for block in region.blocks]) for region in op.regions
        ]
        clone = op.clone(operands, regions=regions)
        walk.values.update(zip(op.results, clone.results, strict=True))
        walk.target.append(clone)

    def _call(self, op: Op, walk: _Inlining) -> None:
        callee = self._calls.callee(op)
        operands = [walk.values.get(operand, operand) for operand in op.operands]
        inner = dict(zip(callee.arguments, operands, strict=True))
        body = callee.body

        def finish() -> None:
            self._calls.leave(callee)
            for result, returned in zip(op.results, body.terminator.operands, strict=True):
                walk.values[result] = inner.get(returned, returned)

        self._calls.enter(callee)
        self._walks.append(_Inlining(iter(body.ops[:-1]), inner, walk.target, walk.depth, finish))
