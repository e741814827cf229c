"""Calls of a module's functions, followed into the bodies that they stand for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spmd.errors import CompileError, Diagnostic
from spmd.ir import Function, Module, Op

#: Ops that stand for the body of a function, and the attribute that names it.
CALLS = {"func.call": "callee", "stablehlo.composite": "decomposition"}


class Calls:
    """The functions that are being walked through, each called by the one before it.

    Recursion is refused: the specification has none, since a program must be finite.
    """

    def __init__(self, module: Module) -> None:
        self._functions = {function.symbol: function for function in module.functions}
        self._active: list[str] = []

    @contextmanager
    def inside(self, function: Function) -> Iterator[None]:
        """While the walk is in the body of `function`."""
        self._active.append(function.symbol)
        yield
        self._active.pop()

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
