"""Files of machines and networks: TOML, every entry checked, with errors that name file and entry."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spmd.errors import UsageError


@dataclass(frozen=True)
class FileTable:
    """A table of a file: its entries are taken one by one; what nobody takes is an error (`done`)."""

    entries: Mapping[str, Any]
    where: str
    taken: set[str]

    @classmethod
    def read(cls, path: str | Path) -> FileTable:
        """The whole of the file at `path`. UsageError for a file that cannot be read, or is no TOML."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise UsageError(f"{path}: cannot be read: {why}") from None
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, where: str) -> FileTable:
        try:
            return cls(tomllib.loads(text), where, set())
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"{where}: {error}") from None

    def fault(self, name: str, expected: str) -> UsageError:
        value = self.entries.get(name)
        got = "there is none" if name not in self.entries else f"got {value!r}"
        return UsageError(f"{self.where}: {name} must be {expected}; {got}")

    def _take(self, name: str) -> Any:
        self.taken.add(name)
        return self.entries.get(name)

    def text(self, name: str, among: tuple[str, ...] = ()) -> str:
        value = self._take(name)
        if not isinstance(value, str) or (among and value not in among):
            raise self.fault(name, f"one of {', '.join(among)}" if among else "a text")
        return value

    def number(self, name: str) -> float:
        """A finite number above 0."""
        value = self._take(name)
        if not _is_number(value) or not 0 < value < float("inf"):
            raise self.fault(name, "a number above 0")
        return float(value)

    def optional_number(self, name: str) -> float | None:
        return self.number(name) if name in self.entries else None

    def count(self, name: str) -> int:
        value = self._take(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.fault(name, "a whole number from 1 on")
        return value

    def optional_count(self, name: str) -> int | None:
        return self.count(name) if name in self.entries else None

    def numbers(self, name: str) -> tuple[float, ...]:
        """A list of positive numbers."""
        value = self._take(name)
        if not isinstance(value, list) or not value or not all(_is_number(x) and 0 < x < float("inf") for x in value):
            raise self.fault(name, "a list of positive numbers")
        return tuple(map(float, value))

    def table(self, name: str) -> FileTable:
        value = self._take(name)
        if not isinstance(value, dict):
            raise self.fault(name, f"a table, [{name}]")
        return FileTable(value, f"{self.where}: [{name}]", set())

    def tables(self, name: str) -> list[FileTable]:
        """The tables [[name]]; none where there are none."""
        value = self._take(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            raise self.fault(name, f"tables, [[{name}]]")
        return [FileTable(entry, f"{self.where}: [[{name}]] {index + 1}", set()) for index, entry in enumerate(value)]

    def done(self) -> None:
        """UsageError for an entry that has no meaning."""
        unknown = sorted(set(self.entries) - self.taken)
        if unknown:
            raise UsageError(
                f"{self.where}: {unknown[0]} has no meaning here; what has: {', '.join(sorted(self.taken))}"
            )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def quoted(text: str) -> str:
    """A text as TOML writes it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped) + '"'


def number_text(value: float) -> str:
    """A number with the three digits that are meant."""
    return f"{value:.3g}" if abs(value) < 1000 and value == int(value) else f"{value:.3e}"
