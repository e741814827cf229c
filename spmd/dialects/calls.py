"""Calls of a module's functions, followed into the bodies that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from spmd.errors import CompileError, Diagnostic
from spmd.ir import Function, Module, Op

#: Ops that stand for the body of a function, and the attribute that names it.
CALLS = {"func.call": "callee", "stablehlo.composite": "decomposition"}
#: How many ops a program may have once every call is the body that it stands for.
MOST_OPS = 100_000


class Extent(NamedTuple):
    """What a function is once its calls are written out: its ops, and how deep calls that stay nest in it."""

    ops: int
    depth: int


class _Visit:
    """A function on its way to an extent: the ops still to be seen, and what those before them come to."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.unseen = function.walk()
        self.ops = 0
        self.depth = 0

    def add(self, callee: Extent, is_inlined: bool) -> None:
        self.ops += callee.ops if is_inlined else 1
        self.depth = max(self.depth, callee.depth if is_inlined else callee.depth + 1)


class Calls:
    """The functions that are being walked through, each called by the one before it.

    Recursion is refused: the specification has none, since a program must be finite.
    """

    def __init__(self, module: Module) -> None:
        self._functions = {function.symbol: function for function in module.functions}
        self._active: dict[str, None] = {}

    @contextmanager
    def inside(self, function: Function) -> Iterator[None]:
        """While the walk is in the body of `function`."""
        self.enter(function)
        yield
        self.leave(function)

    def enter(self, function: Function) -> None:
        """The walk goes into the body of `function`, and stays there until `leave`. CompileError for several blocks."""
        blocks = len(function.regions[0].blocks)
        if blocks != 1:
            text = f"@{function.symbol} has {blocks} blocks; control flow between blocks cannot be compiled"
            raise CompileError(Diagnostic(function.location, text, function.name))
        self._active[function.symbol] = None

    def leave(self, function: Function) -> None:
        del self._active[function.symbol]

    def callee(self, call: Op) -> Function:
        """Return the function that `call`, one of `CALLS`, names; CompileError where there is no body to walk
        through."""
        symbol = call[CALLS[call.name]]
        function = self._functions.get(symbol)
        if function is None or function.is_declaration:
            raise CompileError(Diagnostic(call.location, f"no function @{symbol} with a body to call", call.name))
        if symbol in self._active:
            cycle = " -> ".join("@" + name for name in [*self._active, symbol])
            raise CompileError(Diagnostic(call.location, f"recursive call: {cycle}", call.name))
        return function

    def extents(self, function: Function, is_inlined: Callable[[int], bool] = lambda ops: True) -> dict[str, Extent]:
        """Return the extent of `function`, and of each function that it comes to call, once calls are the bodies
        called.

        A call of a function of so many ops that `is_inlined` refuses stays a call, and counts as one op.
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
        """CompileError for a function that is too large once every call is the body that it stands for."""
        size = self.extents(function)[function.symbol].ops
        if size > MOST_OPS:
            told = f"{size:,}" if size < 10**15 else f"more than 2^{size.bit_length() - 1}"
            text = f"@{function.symbol} has {told} ops once calls are written out; at most {MOST_OPS:,} are supported"
            raise CompileError(Diagnostic(function.location, text, function.name))
