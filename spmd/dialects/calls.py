"""Calls of a module's functions, followed into the bodies that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from spmd.errors import CompileError, Diagnostic
from spmd.ir import Function, Module, Op

#: Ops that stand for the body of a function, and the attribute that names it.
CALLS = {"func.call": "callee", "stablehlo.composite": "decomposition"}
#: How many ops a program may have once every call is the body that it stands for.
MOST_OPS = 100_000


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
        """The function that `call`, one of `CALLS`, names; CompileError where there is no body to walk through."""
        symbol = call[CALLS[call.name]]
        function = self._functions.get(symbol)
        if function is None or function.is_declaration:
            raise CompileError(Diagnostic(call.location, f"no function @{symbol} with a body to call", call.name))
        if symbol in self._active:
            cycle = " -> ".join("@" + name for name in [*self._active, symbol])
            raise CompileError(Diagnostic(call.location, f"recursive call: {cycle}", call.name))
        return function

    def sizes(self, function: Function, is_inlined: Callable[[int], bool] = lambda size: True) -> dict[str, int]:
        """How many ops `function`, and each function that it comes to call, has once calls are the bodies called.

        A call of a function of a size that `is_inlined` refuses counts as one op.
        """
        known: dict[str, int] = {}
        counts = [0]
        walks: list[tuple[Function, Iterator[Op]]] = [(function, function.walk())]
        self.enter(function)
        while walks:
            current, ops = walks[-1]
            for op in ops:
                if op.name not in CALLS:
                    counts[-1] += 1
                    continue
                callee = self.callee(op)
                size = known.get(callee.symbol)
                if size is None:
                    self.enter(callee)
                    walks.append((callee, callee.walk()))
                    counts.append(0)
                    break
                counts[-1] += size if is_inlined(size) else 1
            else:
                walks.pop()
                self.leave(current)
                size = known[current.symbol] = counts.pop()
                if counts:
                    counts[-1] += size if is_inlined(size) else 1
        return known

    def check_size(self, function: Function) -> None:
        """CompileError for a function that is too large once every call is the body that it stands for."""
        size = self.sizes(function)[function.symbol]
        if size > MOST_OPS:
            told = f"{size:,}" if size < 10**15 else f"more than 2^{size.bit_length() - 1}"
            text = f"@{function.symbol} has {told} ops once calls are written out; at most {MOST_OPS:,} are supported"
            raise CompileError(Diagnostic(function.location, text, function.name))
