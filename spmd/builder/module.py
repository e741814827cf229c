"""Converts a computation to a module of functions."""

from __future__ import annotations

import re

from spmd import types as t
from spmd.builder.computation import (
    CALLEES,
    SHARDING,
    XlaComputation,
    drop_unused_tuples,
    inline,
    leaf_types,
    make,
    unpack,
    writes_modules,
)
from spmd.dialects.core import OPS
from spmd.ir import Block, Function, Module, NumberedValue, Region
from spmd.ir.attributes import DictAttr, StringAttr


@writes_modules
def to_module(computation: XlaComputation, *, owned: bool = False) -> Module:
    """Return a module with `computation` as @main and the computations it calls as private functions, callees first.

    With `owned`, computations that nothing else uses become functions themselves, rather than copies of them.
    """
    symbols = {"": "main"}
    functions = []
    for callee in _callees(computation):
        symbols[callee.symbol] = _free_symbol(callee.name(), set(symbols.values()))
        functions.append(_function(callee, symbols[callee.symbol], public=False, owned=owned))
    functions.insert(0, _function(computation, "main", public=True, owned=owned))
    for function in functions if computation.called else ():
        for op in function.walk():
            for name in CALLEES.intersection(op.attributes):
                named = op.attributes[name]
                renamed = symbols[named] if isinstance(named, str) else tuple(symbols[each] for each in named)
                op.attributes = {**op.attributes, name: renamed}
    name = _clean(computation.name())
    body = Region([Block((), functions)])
    return Module("builtin.module", (), (), {"sym_name": name}, [body], definition=OPS.get("builtin.module"))


def _callees(computation: XlaComputation) -> list[XlaComputation]:
    """Return all computations called by name from here, each once, callees first."""
    computations: dict[str, XlaComputation] = {}

    def visit(caller: XlaComputation) -> None:
        for symbol, callee in caller.called.items():
            if symbol not in computations:
                visit(callee)
                computations[symbol] = callee

    visit(computation)
    return list(computations.values())


def _function(computation: XlaComputation, symbol: str, *, public: bool, owned: bool) -> Function:
    block = computation.block if owned else Block(computation.parameter_types)
    names = computation.program_shape().parameter_names
    for argument, parameter, name in zip(block.arguments, computation.block.arguments, names, strict=True):
        argument.name_hint = _clean(name) or None
        if isinstance(argument, NumberedValue) and isinstance(parameter, NumberedValue):
            argument.locate_like(parameter)
    result = computation.result if owned else inline(block, computation, block.arguments)
    make(block, "func.return", unpack(block, result), [])
    drop_unused_tuples(block)
    kind = t.FunctionType(tuple(computation.parameter_types), tuple(leaf_types(computation.result.type)))
    attributes: dict[str, object] = {"sym_name": symbol, "function_type": kind}
    attributes["sym_visibility"] = "public" if public else "private"
    for name, texts in (("arg_attrs", computation.parameter_shardings), ("res_attrs", computation.result_shardings)):
        if any(texts):
            attributes[name] = tuple(DictAttr({SHARDING: StringAttr(s.encode())} if s else {}) for s in texts)
    return Function("func.func", (), (), attributes, [Region([block])], definition=OPS.get("func.func"))


def _clean(name: str) -> str:
    """Return `name` as an identifier of the language."""
    text = re.sub(r"[^\w.$-]", "_", name)
    return text if not text[:1].isdigit() else "_" + text


def _free_symbol(name: str, taken: set[str]) -> str:
    base = _clean(name) or "computation"
    number = 0
    symbol = base
    while symbol in taken:
        number += 1
        symbol = f"{base}_{number}"
    return symbol
