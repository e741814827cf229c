"""Declares operations of the builder.

    @operation
    def Neg(builder: XlaBuilder, operand: XlaOp) -> XlaOp: ...

The function takes the builder first; callers may omit it, since operands hold theirs. A leading builder is accepted
(`ops.Neg(builder, x)`), as is the method form (`builder.Neg(x)`). Errors raised by the function are reported with the
operation's name and the Python line of the call.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Concatenate, ParamSpec, TypeVar

from spmd.builder.xla_op import OPERATIONS, Builder, XlaOp

P = ParamSpec("P")
R = TypeVar("R")
B = TypeVar("B", bound=Builder)


def operation(function: Callable[Concatenate[B, P], R]) -> Callable[P, R]:
    """Make `function` an operation of the builder and register it under its name."""
    name = function.__name__

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        named_builder = kwargs.pop("builder", None)
        if args and isinstance(args[0], Builder):
            named_builder, args = args[0], args[1:]
        builder = named_builder if named_builder is not None else _builder_of([*args, *kwargs.values()])
        if builder is None:
            raise TypeError(f"{name}: no operand to take the builder from; pass it first, or call builder.{name}(...)")
        return builder.perform(name, function, args, kwargs)

    signature = inspect.signature(function)
    call.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[parameter for key, parameter in signature.parameters.items() if key != "builder"]
    )
    OPERATIONS[name] = call
    return call


def operation_of(source: str) -> Callable[[Callable[Concatenate[B, P], R]], Callable[P, R]]:
    """Declare an operation from a section that describes several; its docstring names the section."""

    def add(function: Callable[Concatenate[B, P], R]) -> Callable[P, R]:
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nSource: {source}."
        return operation(function)

    return add


def operation_named(name: str, doc: str, source: str) -> Callable[[Callable[Concatenate[B, P], R]], Callable[P, R]]:
    """Declare the operation `name`, with docstring `doc`, for functions generated from a table."""

    def add(function: Callable[Concatenate[B, P], R]) -> Callable[P, R]:
        function.__name__ = function.__qualname__ = name
        function.__doc__ = doc
        return operation_of(source)(function)

    return add


def synonym(name: str, of: Callable[P, R], doc: str, source: str) -> Callable[P, R]:
    """Return the operation `of` under another documented name, with docstring `doc`."""
    meant: Callable[..., R] = inspect.unwrap(of)

    @functools.wraps(meant)
    def function(builder: Builder, *args: Any, **kwargs: Any) -> R:
        return meant(builder, *args, **kwargs)

    return operation_named(name, doc, source)(function)


def _builder_of(values: Iterable[object]) -> Builder | None:
    for value in values:
        if isinstance(value, XlaOp):
            return value.builder
        if isinstance(value, (list, tuple)):
            builder = _builder_of(value)
            if builder is not None:
                return builder
    return None
