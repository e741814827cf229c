"""Registries of functions by name, filled by decorators."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def filed(table: dict[str, T], names: Iterable[str], what: str) -> Callable[[T], T]:
    """Decorator: registers a function in `table` under `names`. ValueError where one of them has a `what` already."""

    def add(entry: T) -> T:
        for name in names:
            if name in table:
                raise ValueError(f"{name} has two {what}s")
            table[name] = entry
        return entry

    return add
