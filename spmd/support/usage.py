"""Checks of the arguments of public functions, which raise UsageError."""

from __future__ import annotations

from os import PathLike, fspath

from collectives.grid import ProcessGrid as ProcessGrid
from spmd.errors import UsageError
from spmd.ir import Module


def kind_of(value: object) -> str:
    """The name of `value`'s type, with its module unless it is Python's own."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def check_module(value: object, taker: str) -> None:
    """UsageError, which says how to make a module of `value`, unless it is one. `taker` is the function called."""
    if isinstance(value, Module):
        return
    if isinstance(value, str | bytes):
        advice = ", not a program's text: spmd.parse makes a module of it, spmd.load of a file"
    elif isinstance(value, PathLike):
        advice = f", not a path: spmd.load({fspath(value)!r}) gives one"
    elif hasattr(value, "as_text"):
        advice = f", not {kind_of(value)}: spmd.parse(x.as_text()) makes a module of it"
    elif hasattr(value, "to_stablehlo"):
        advice = f", not {kind_of(value)}: its to_stablehlo() gives one"
    else:
        advice = f", got {kind_of(value)}"
    raise UsageError(f"{taker} takes a module{advice}")


def check_grid(value: object, taker: str) -> None:
    """UsageError unless `value` is a ProcessGrid or None."""
    if value is None or isinstance(value, ProcessGrid):
        return
    if isinstance(value, tuple) and len(value) == 2:
        advice = f"spmd.ProcessGrid{value!r}, not {value!r}"
    else:
        advice = f"such as spmd.ProcessGrid(4, 2), not {kind_of(value)}"
    raise UsageError(f"{taker} takes its grid as a ProcessGrid: {advice}")


def check_function(value: object, taker: str) -> None:
    """UsageError unless `value` is a string, the name of a function."""
    if not isinstance(value, str):
        raise UsageError(f"{taker} takes the name of a function as a string, got {kind_of(value)}")


def check_memory(value: object, taker: str) -> None:
    """UsageError unless `value` is a positive number of bytes, or None."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise UsageError(f"{taker} takes its memory as a positive number of bytes, got {value!r}")
