"""Files of machines and networks: TOML, every entry checked, with errors that name file and entry."""

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

#: The largest number that is read, and the largest count.
_LARGEST, _LARGEST_COUNT = sys.float_info.max, (1 << 63) - 1
#: How many characters of a wrong entry are shown.
_MOST_SHOWN = 60


@dataclass(frozen=True)
class FileTable:
    """A table of a file: its entries are taken one by one; what nobody takes is an error (`done`)."""

    entries: Mapping[str, Any]
    where: str
    taken: set[str]

    @classmethod
    def read(cls, path: str | Path) -> FileTable:
        """Return the whole of the file at `path`. UsageError for a file that cannot be read, or is no TOML."""
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
        except (ValueError, RecursionError) as error:  # no TOML, a number of thousands of digits, or too deep
            raise UsageError(f"{where}: {error}") from None

    def fault(self, name: str, expected: str) -> UsageError:
        value = self.entries.get(name)
        got = "there is none" if name not in self.entries else f"got {_shortened(value)}"
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
        """Return a finite number above 0."""
        value = self._take(name)
        if not _is_number(value) or not 0 < value <= _LARGEST:
            raise self.fault(name, "a number above 0")
        return float(value)

    def optional_number(self, name: str) -> float | None:
        return self.number(name) if name in self.entries else None

    def count(self, name: str) -> int:
        value = self._take(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LARGEST_COUNT:
            raise self.fault(name, "a whole number from 1 on, of 64 bits")
        return value

    def optional_count(self, name: str) -> int | None:
        return self.count(name) if name in self.entries else None

    def numbers(self, name: str) -> tuple[float, ...]:
        """Return a list of positive numbers."""
        value = self._take(name)
        if not isinstance(value, list) or not value or not all(_is_number(x) and 0 < x <= _LARGEST for x in value):
            raise self.fault(name, "a list of positive numbers")
        return tuple(map(float, value))

    def table(self, name: str) -> FileTable:
        value = self._take(name)
        if not isinstance(value, dict):
            raise self.fault(name, f"a table, [{name}]")
        return FileTable(value, f"{self.where}: [{name}]", set())

    def tables(self, name: str) -> list[FileTable]:
        """Return the tables [[name]]; none where there are none."""
        value = self._take(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            raise self.fault(name, f"tables, [[{name}]]")
        return [FileTable(entry, f"{self.where}: [[{name}]] {index + 1}", set()) for index, entry in enumerate(value)]

    def record(self, kind: type[R]) -> R:
        """Return all of the table as a `kind`, a dataclass that says by `entry` what each of its fields is in a
        file."""
        record = kind(**{each.name: each.metadata[_ENTRY].read(self, each.name) for each in fields(kind)})
        self.done()
        return record

    def done(self) -> None:
        """UsageError for an entry that has no meaning."""
        unknown = sorted(set(self.entries) - self.taken)
        if unknown:
            raise UsageError(
                f"{self.where}: {unknown[0]} has no meaning here; what has: {', '.join(sorted(self.taken))}"
            )


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "..."


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def quoted(text: str) -> str:
    """Return a text as TOML writes it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped) + '"'


def number_text(value: float) -> str:
    """Return a number with the three digits that are meant."""
    return f"{value:.3g}" if abs(value) < 1000 and value == int(value) else f"{value:.3e}"


@dataclass(frozen=True)
class EntryKind:
    """How an entry of a table is read, and written as TOML."""

    read: Callable[[FileTable, str], object]
    write: Callable[[Any], str]


_ENTRY = "entry"


def entry(read: Callable[[FileTable, str], object], write: Callable[[Any], str]) -> Mapping[str, EntryKind]:
    """Return the metadata of a field of a record (see `FileTable.record`): an entry of the field's name."""
    return {_ENTRY: EntryKind(read, write)}


def one_of(texts: tuple[str, ...]) -> Mapping[str, EntryKind]:
    """Return a text among `texts`."""
    return entry(lambda table, name: table.text(name, texts), quoted)


def _listed(write: Callable[[float], str]) -> Callable[[Iterable[float]], str]:
    return lambda values: f"[{', '.join(map(write, values))}]"


_whole = "{:.0f}".format
TEXT = entry(FileTable.text, quoted)
COUNT = entry(FileTable.count, str)
#: A number, and several, in the digits that are meant; and without a fraction.
NUMBER = entry(FileTable.number, number_text)
NUMBERS = entry(FileTable.numbers, _listed(number_text))
WHOLE = entry(FileTable.number, _whole)
WHOLES = entry(FileTable.numbers, _listed(_whole))


def record_lines(name: str, record: DataclassInstance) -> list[str]:
    """`record` as the lines of a table [[name]]."""
    texts = [f"{each.name} = {each.metadata[_ENTRY].write(getattr(record, each.name))}" for each in fields(record)]
    return [f"[[{name}]]", *texts]
