"""Traverses calls of a module's functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from spmd.errors import CompileError, Diagnostic
from spmd.ir import Function, Module, Op

#: Ops that call a function, and the attribute that names it.
CALLS = {"func.call": "callee", "stablehlo.composite": "decomposition"}
#: The largest number of ops of a program after inlining all calls.
MOST_OPS = 100_000


class Extent(NamedTuple):
    """The size of a function after inlining: its ops, and the nesting depth of the remaining calls."""

    ops: int
    depth: int


class _Visit:
    """A function being visited: the ops left, and the size of those before."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.unseen = function.walk()
        self.ops = 0
        self.depth = 0

    def add(self, callee: Extent, is_inlined: bool) -> None:
        """Add a call of `callee`."""
        self.ops += callee.ops if is_inlined else 1
        self.depth = max(self.depth, callee.depth if is_inlined else callee.depth + 1)


class Calls:
    """The functions being traversed, each called by the previous one.

    Recursion is an error: the specification has none, since programs are finite.
    """

    def __init__(self, module: Module) -> None:
        self._functions = {function.symbol: function for function in module.functions}
        self._active: dict[str, None] = {}

    @contextmanager
    def inside(self, function: Function) -> Iterator[None]:
        """Traverse the body of `function` within the context."""
        self.enter(function)
        yield
        self.leave(function)

    def enter(self, function: Function) -> None:
        """Start to traverse the body of `function`; raises CompileError for several blocks."""
        blocks = len(function.regions[0].blocks)
        if blocks != 1:
            text = f"@{function.symbol} has {blocks} blocks; only functions with one block can be compiled"
            raise CompileError(Diagnostic(function.location, text, function.name))
        self._active[function.symbol] = None

    def leave(self, function: Function) -> None:
        """End the traversal of `function`."""
        del self._active[function.symbol]

    def callee(self, call: Op) -> Function:
        """Return the function that `call`, one of `CALLS`, names; raises CompileError if it has no body or recurses."""
        symbol = call[CALLS[call.name]]
        function = self._functions.get(symbol)
        if function is None or function.is_declaration:
            raise CompileError(Diagnostic(call.location, f"@{symbol} must be a function with a body", call.name))
        if symbol in self._active:
            cycle = " -> ".join("@" + name for name in [*self._active, symbol])
            raise CompileError(Diagnostic(call.location, f"recursive call: {cycle}", call.name))
        return function

    def extents(self, function: Function, is_inlined: Callable[[int], bool] = lambda ops: True) -> dict[str, Extent]:
        """Return the size, after inlining, of `function` and of all functions that it calls, directly or indirectly.

        A call of a function with a number of ops that `is_inlined` rejects remains, and counts as one op.
        """
        known: dict[str, Extent] = {}
        walks = [_Visit(function)]
        self.enter(function)
        while walks:
            walk = walks[-1]
            for op in walk.unseen:
                if op.name not in CALLS:
                    walk.ops += 1
                    continue
                callee = self.callee(op)
                extent = known.get(callee.symbol)
                if extent is None:
                    self.enter(callee)
                    walks.append(_Visit(callee))
                    break
                walk.add(extent, is_inlined(extent.ops))
            else:
                walks.pop()
                self.leave(walk.function)
                extent = known[walk.function.symbol] = Extent(walk.ops, walk.depth)
                if walks:
                    walks[-1].add(extent, is_inlined(extent.ops))
        return known

    def check_size(self, function: Function) -> None:
        """Raise CompileError if `function` is too large after inlining."""
        size = self.extents(function)[function.symbol].ops
        if size > MOST_OPS:
            count = f"{size:,}" if size < 10**15 else f"more than 2^{size.bit_length() - 1}"
            text = f"@{function.symbol} has {count} ops after inlining; at most {MOST_OPS:,} are supported"
            raise CompileError(Diagnostic(function.location, text, function.name))
