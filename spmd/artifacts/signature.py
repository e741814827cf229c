"""Changes the signature of a loaded @main: replaces arguments by constants, and adds unused ones."""

from __future__ import annotations

import re
from collections.abc import Sequence

from spmd import types as t
from spmd.dialects import core
from spmd.ir import Function, NumberedValue, Op, Value, new_op
from spmd.ir.attributes import DenseAttr, DictAttr
from spmd.support.arrays import Array


def put_constants(function: Function, constants: Sequence[tuple[Value, Array]]) -> None:
    """Replace arguments by constants; `set_arguments` must then remove them."""
    values: dict[Value, Value] = {}
    constant_ops: list[Op] = []
    for argument, array in constants:
        type = argument.type
        assert isinstance(type, t.TensorType)
        constant = new_op(
            "stablehlo.constant", (), (type,), {"value": DenseAttr(array, type)},
            definition=core.OPS["stablehlo.constant"], location=function.location,
        )  # fmt: skip
        constant.result.name_hint = argument.name_hint
        constant_ops.append(constant)
        values[argument] = constant.result
    for op in function.walk():
        op.replace_operands(values)
    function.body.ops[:0] = constant_ops


def unused_argument(type: t.Type) -> Value:
    """Return an unused argument for `set_arguments`."""
    return NumberedValue(type, None, 0)


def set_arguments(function: Function, arguments: Sequence[Value], names: Sequence[str | None]) -> None:
    """Make `arguments`, the function's own or unused ones, the function's arguments; attributes are preserved."""
    described = dict(zip(function.arguments, function.argument_attributes, strict=True))
    dictionaries = [DictAttr(described.get(argument, {})) for argument in arguments]
    for argument, name in zip(arguments, names, strict=True):
        if name is not None:
            argument.name_hint = _identifier(name)
    results = function.type.results
    function.body.set_arguments(arguments)
    attributes = {**function.attributes}
    attributes["function_type"] = t.FunctionType(tuple(argument.type for argument in arguments), results)
    attributes.pop("arg_attrs", None)
    if any(entry.entries for entry in dictionaries):
        attributes["arg_attrs"] = tuple(dictionaries)
    function.attributes = attributes


def _identifier(path: str) -> str:
    """Return a value name for an argument's path: `args[0]['w']` becomes args_0_w."""
    return re.sub(r"\W+", "_", path, flags=re.ASCII).strip("_") or "arg"
