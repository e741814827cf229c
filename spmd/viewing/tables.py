"""Tables of a page's data in which equal entries are written once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeAlias

#: What JSON has.
Json: TypeAlias = Any

#: Characters of a text that a page holds at most; a name may have any number.
LONGEST = 300


def short(text: str, most: int = LONGEST) -> str:
    """`text`, its middle left out where it is long."""
    return text if len(text) <= most else f"{text[: most - most // 3]} … {text[-(most // 3) :]}"


class Table:
    """Entries by the number that each has; `add` gives that of an entry that is there already."""

    def __init__(self) -> None:
        self.entries: list[Json] = []
        self._numbers: dict[Hashable, int] = {}

    def add(self, key: Hashable, entry: Json) -> int:
        """Return the number of `key`, whose entry is `entry`."""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.entries)
            self.entries.append(entry)
        return number

    def number(self, key: Hashable) -> int | None:
        """Return the number of `key`, if it is there."""
        return self._numbers.get(key)


class Texts(Table):
    """Texts, shortened."""

    def of(self, text: str) -> int:
        """Return the number of `text`."""
        told = short(text)
        return self.add(told, told)
