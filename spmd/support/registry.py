"""Tables that functions are filed in by name, each by a decorator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def filed(table: dict[str, T], names: Iterable[str], what: str) -> Callable[[T], T]:
    """Decorator: files a function in `table` under `names`. ValueError where one of them has a `what` already."""

    def add(entry: T) -> T:
        for name in names:
            if name in table:
                raise ValueError(f"{name} has two {what}s")
            table[name] = entry
        return entry

    return add
