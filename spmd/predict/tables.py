"""Reads TOML files of machines and networks with checked entries, and errors that name file and entry."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from spmd.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R", bound="DataclassInstance")

#: The largest number and the largest count that are accepted.
_LARGEST, _LARGEST_COUNT = sys.float_info.max, (1 << 63) - 1
#: The number of characters shown of an invalid entry.
_MOST_SHOWN = 60


@dataclass(frozen=True)
class FileTable:
    """A table of a file; entries are read one by one, and unread ones are an error (`done`)."""

    entries: Mapping[str, Any]
    where: str
    taken: set[str]

    @classmethod
    def read(cls, path: str | Path) -> FileTable:
        """Return the top-level table of the file at `path`; raises UsageError if it cannot be read or parsed."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise UsageError(f"{path}: cannot be read: {why}") from None
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, where: str) -> FileTable:
        """Return the top-level table of a text; `where` names it in errors."""
        try:
            return cls(tomllib.loads(text), where, set())
        except (ValueError, RecursionError) as error:  # no TOML, a number of thousands of digits, or too deep
            raise UsageError(f"{where}: {error}") from None

    def fault(self, name: str, expected: str) -> UsageError:
        """Return the error of entry `name`, which must be `expected`."""
        value = self.entries.get(name)
        got = "there is none" if name not in self.entries else f"got {_shortened(value)}"
        return UsageError(f"{self.where}: {name} must be {expected}; {got}")

    def _take(self, name: str) -> Any:
        self.taken.add(name)
        return self.entries.get(name)

    def text(self, name: str, among: tuple[str, ...] = ()) -> str:
        """Return a string, one of `among` if given."""
        value = self._take(name)
        if not isinstance(value, str) or (among and value not in among):
            raise self.fault(name, f"one of {', '.join(among)}" if among else "a text")
        return value

    def number(self, name: str) -> float:
        """Return a finite positive number."""
        value = self._take(name)
        if not _is_number(value) or not 0 < value <= _LARGEST:
            raise self.fault(name, "a number above 0")
        return float(value)

    def optional_number(self, name: str) -> float | None:
        """Return a finite positive number, or None if there is none."""
        return self.number(name) if name in self.entries else None

    def count(self, name: str) -> int:
        """Return a positive integer."""
        value = self._take(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LARGEST_COUNT:
            raise self.fault(name, "a whole number from 1 on, of 64 bits")
        return value

    def optional_count(self, name: str) -> int | None:
        """Return a positive integer, or None if there is none."""
        return self.count(name) if name in self.entries else None

    def numbers(self, name: str) -> tuple[float, ...]:
        """Return a list of positive numbers."""
        value = self._take(name)
        if not isinstance(value, list) or not value or not all(_is_number(x) and 0 < x <= _LARGEST for x in value):
            raise self.fault(name, "a list of positive numbers")
        return tuple(map(float, value))

    def table(self, name: str) -> FileTable:
        """Return the table [name]."""
        value = self._take(name)
        if not isinstance(value, dict):
            raise self.fault(name, f"a table, [{name}]")
        return FileTable(value, f"{self.where}: [{name}]", set())

    def tables(self, name: str) -> list[FileTable]:
        """Return the tables [[name]]; empty if there are none."""
        value = self._take(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            raise self.fault(name, f"tables, [[{name}]]")
        return [FileTable(entry, f"{self.where}: [[{name}]] {index + 1}", set()) for index, entry in enumerate(value)]

    def record(self, kind: type[R]) -> R:
        """Return the table as a dataclass `kind`, whose fields declare by `entry` how they are read."""
        record = kind(**{each.name: each.metadata[_ENTRY].read(self, each.name) for each in fields(kind)})
        self.done()
        return record

    def done(self) -> None:
        """Raise UsageError for an unread entry."""
        unknown = sorted(set(self.entries) - self.taken)
        if unknown:
            raise UsageError(f"{self.where}: unknown entry {unknown[0]}; known are: {', '.join(sorted(self.taken))}")


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "..."


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def quoted(text: str) -> str:
    """Return a text as a TOML string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped) + '"'


def number_text(value: float) -> str:
    """Return a number with three significant digits."""
    return f"{value:.3g}" if abs(value) < 1000 and value == int(value) else f"{value:.3e}"


@dataclass(frozen=True)
class EntryKind:
    """How an entry of a table is read, and written as TOML."""

    read: Callable[[FileTable, str], object]
    write: Callable[[Any], str]


_ENTRY = "entry"


def entry(read: Callable[[FileTable, str], object], write: Callable[[Any], str]) -> Mapping[str, EntryKind]:
    """Return the metadata of a record's field, an entry with the field's name (see `FileTable.record`)."""
    return {_ENTRY: EntryKind(read, write)}


def one_of(texts: tuple[str, ...]) -> Mapping[str, EntryKind]:
    """Return the metadata of a string among `texts`."""
    return entry(lambda table, name: table.text(name, texts), quoted)


def _listed(write: Callable[[float], str]) -> Callable[[Iterable[float]], str]:
    return lambda values: f"[{', '.join(map(write, values))}]"


_whole = "{:.0f}".format
TEXT = entry(FileTable.text, quoted)
COUNT = entry(FileTable.count, str)
#: A number and a list of numbers, with three significant digits; and without fractions.
NUMBER = entry(FileTable.number, number_text)
NUMBERS = entry(FileTable.numbers, _listed(number_text))
WHOLE = entry(FileTable.number, _whole)
WHOLES = entry(FileTable.numbers, _listed(_whole))


def record_lines(name: str, record: DataclassInstance) -> list[str]:
    """Return `record` as the lines of a table [[name]]."""
    texts = [f"{each.name} = {each.metadata[_ENTRY].write(getattr(record, each.name))}" for each in fields(record)]
    return [f"[[{name}]]", *texts]
