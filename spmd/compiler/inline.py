"""Calls become the bodies they call, so that the program of a process is one flat function.

`func.call` and `stablehlo.composite` (by its decomposition) are inlined, in regions too.
"""

from __future__ import annotations

from spmd.dialects.calls import CALLS, Calls
from spmd.ir import Block, Function, Module, Op, Region, Value, copy_arguments, new_op


def inline(module: Module, function: Function) -> Function:
    """A copy of `function` without calls."""
    return _Inliner(module).function(function)


class _Inliner:
    def __init__(self, module: Module) -> None:
        self._calls = Calls(module)

    def function(self, function: Function) -> Function:
        with self._calls.inside(function):
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
        return made

    def _block(self, block: Block, values: dict[Value, Value]) -> Block:
        made = copy_arguments(block, values)
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
        callee = self._calls.callee(op)
        inner = {
            argument: values.get(operand, operand)
            for argument, operand in zip(callee.arguments, op.operands, strict=True)
        }
        body = callee.body
        with self._calls.inside(callee):
            self._append(body.ops[:-1], inner, target)
        for result, returned in zip(op.results, body.terminator.operands, strict=True):
            values[result] = inner.get(returned, returned)
