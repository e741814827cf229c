"""Tables of a page's data, without duplicate entries."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeAlias

#: A JSON value.
Json: TypeAlias = Any

#: The largest number of characters of a text on a page, since names have no limit.
LONGEST = 300


def short(text: str, most: int = LONGEST) -> str:
    """Return `text` with its middle omitted if it is longer than `most`."""
    return text if len(text) <= most else f"{text[: most - most // 3]} … {text[-(most // 3) :]}"


class JsonTable:
    """Numbered entries without duplicates."""

    def __init__(self) -> None:
        self.entries: list[Json] = []
        self._numbers: dict[Hashable, int] = {}

    def add(self, key: Hashable, entry: Json) -> int:
        """Return the number of `key`, adding `entry` for a new one."""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.entries)
            self.entries.append(entry)
        return number

    def number(self, key: Hashable) -> int | None:
        """Return the number of `key`, or None."""
        return self._numbers.get(key)


class Texts(JsonTable):
    """A table of shortened texts."""

    def of(self, text: str) -> int:
        """Return the number of `text`, adding it if it is new."""
        shortened = short(text)
        return self.add(shortened, shortened)
