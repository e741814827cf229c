"""Calls become the bodies they call, so that the program of a process is one flat function.

`func.call` and `stablehlo.composite` (by its decomposition) are inlined, in regions too. Recursion is refused: the
specification has none, since a program must be finite.
"""

from __future__ import annotations

from spmd.errors import CompileError, Diagnostic
from spmd.ir import Block, Function, Module, Op, Region, Value, new_op

#: Ops that call a function, and the attribute that names it.
CALLS = {"func.call": "callee", "stablehlo.composite": "decomposition"}


def inline(module: Module, function: Function) -> Function:
    """A copy of `function` without calls."""
    return _Inliner(module).function(function)


class _Inliner:
    def __init__(self, module: Module) -> None:
        self._functions = {entry.symbol: entry for entry in module.functions}
        self._active: list[str] = []

    def function(self, function: Function) -> Function:
        self._active.append(function.symbol)
        region = Region([self._block(function.body, {})])
        made = new_op(
            function.name,
            (),
            (),
            dict(function.attributes),
            [region],
            definition=function.definition,
            discardable=dict(function.discardable),
            location=function.location,
        )
        assert isinstance(made, Function)
        self._active.pop()
        return made

    def _block(self, block: Block, values: dict[Value, Value]) -> Block:
        made = Block(argument.type for argument in block.arguments)
        for old, new in zip(block.arguments, made.arguments, strict=True):
            new.name_hint = old.name_hint
            values[old] = new
        self._append(block.ops, values, made.ops)
        return made

    def _append(self, ops: list[Op], values: dict[Value, Value], target: list[Op]) -> None:
        for op in ops:
            if op.name in CALLS:
                self._call(op, values, target)
                continue
            operands = [values.get(operand, operand) for operand in op.operands]
            regions = [Region(self._block(block, values) for block in region.blocks) for region in op.regions]
            made = op.clone(operands, regions=regions)
            values.update(zip(op.results, made.results, strict=True))
            target.append(made)

    def _call(self, op: Op, values: dict[Value, Value], target: list[Op]) -> None:
        symbol = op[CALLS[op.name]]
        callee = self._functions.get(symbol)
        if callee is None or callee.is_declaration:
            raise CompileError(Diagnostic(op.location, f"no function @{symbol} with a body to call", op.name))
        if symbol in self._active:
            cycle = " -> ".join("@" + name for name in [*self._active, symbol])
            raise CompileError(Diagnostic(op.location, f"recursive call: {cycle}", op.name))
        self._active.append(symbol)
        inner = {
            argument: values.get(operand, operand)
            for argument, operand in zip(callee.arguments, op.operands, strict=True)
        }
        body = callee.body
        self._append(body.ops[:-1], inner, target)
        for result, returned in zip(op.results, body.terminator.operands, strict=True):
            values[result] = inner.get(returned, returned)
        self._active.pop()
