"""Where ops come from: their places, the names of the code around them, and the lines of the source there."""

from __future__ import annotations

import linecache
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from spmd.errors import ByteLocation, Location, PythonLocation
from spmd.ir import Module, Op
from spmd.ir.traced import TracedLocation
from spmd.viewing.tables import Json, Texts, short

#: A name that stands in front of a location, or alone; and a file with a line.
_NAME = re.compile(r'"((?:[^"\\]|\\.)*)"(?!\s*:\d)')
_FILE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+)')
#: Lines around an op's that are shown, lines that a page has at most, and characters of a line.
_AROUND, _MOST_LINES, _WIDTH = 2, 6000, 200
_DEEPEST, _LONGEST_NAME = 12, 80


def key_of(location: Location) -> Hashable:
    """What ops of one place in the program have in common."""
    if isinstance(location, PythonLocation):
        return str(location)
    return location.source.name, location.offset


def scope_of(debug: str | None) -> tuple[str, ...]:
    """Return the names of the code around an op, the outermost first: of `jit(f)/block/mlp/dot`, `jit(f)`, `block`,
    `mlp`."""
    return _scope_of(debug) if debug else ()


@lru_cache(maxsize=1 << 14)
def _scope_of(debug: str) -> tuple[str, ...]:
    found = _NAME.match(debug.strip())
    if found is None:
        return ()
    parts = _split(found[1])[:-1]
    if len(parts) > _DEEPEST:
        parts = [*parts[: _DEEPEST - 1], "/".join(parts[_DEEPEST - 1 :])]
    return tuple(short(part, _LONGEST_NAME) for part in parts)


def _split(name: str) -> list[str]:
    """Return a path's parts; a slash in parentheses belongs to its part."""
    parts, depth = [""], 0
    for letter in name:
        depth += (letter == "(") - (letter == ")")
        if letter == "/" and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part]


@dataclass
class Places:
    """The places that a page tells, by number, and the lines of the files that they are in."""

    module: Module
    texts: Texts
    entries: list[Json] = field(default_factory=list)
    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _debug: dict[Hashable, str] = field(default_factory=dict)
    _keys: dict[tuple[int, int], Hashable] = field(default_factory=dict)
    _lines: dict[str, set[int]] = field(default_factory=dict)
    _sources: dict[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for op in self.module.walk():
            if (text := op.debug_location) is not None:
                self._debug.setdefault(self.key(op), text)

    def key(self, op: Op) -> Hashable:
        """What `op` has in common with the ops that were made of the same one of the program."""
        found = self._keys.get(op.place)
        if found is None:
            found = self._keys[op.place] = key_of(op.location)
        return found

    def debug(self, op: Op) -> str | None:
        """Return the location that the program's producer wrote on `op`, or on what it was made of."""
        return op.debug_location or self._debug.get(self.key(op))

    def number(self, op: Op) -> int:
        """Return the number of the place of `op`: [what messages call it, [file, line] of each level, the innermost
        first]."""
        key = self.key(op)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.entries)
            self.entries.append([self.texts.of(str(op.location)), self._frames(op)])
        return number

    def _frames(self, op: Op) -> list[list[int]]:
        location = op.location
        frames = [] if _is_a_byte(location) else [(location.file, location.line)]
        if location.source.text and location.file == location.source.name and location.file not in self._sources:
            self._sources[location.file] = location.source.text.split("\n")
        frames += [(file, int(line)) for file, line in _FILE.findall(self.debug(op) or "")[:_DEEPEST]]
        for file, line in frames:
            self._lines.setdefault(file, set()).update(range(max(1, line - _AROUND), line + _AROUND + 1))
        return [[self.texts.of(file), line] for file, line in dict.fromkeys(frames)]

    def sources(self) -> dict[str, dict[int, str]]:
        """Lines around the places, by file and number, of files that are there."""
        found: dict[str, dict[int, str]] = {}
        left = _MOST_LINES
        for file, numbers in self._lines.items():
            lines = self._sources.get(file) or linecache.getlines(file)
            told = {number: _shown(lines[number - 1]) for number in sorted(numbers)[:left] if number <= len(lines)}
            left -= len(told)
            if told:
                found[short(file)] = told
        return found


def _is_a_byte(location: Location) -> bool:
    """Whether a place is that of a byte, of which there is no line."""
    if isinstance(location, TracedLocation):
        return not location.is_known and not location.source.text
    return isinstance(location, ByteLocation)


def _shown(line: str) -> str:
    return short(line.rstrip("\r\n"), _WIDTH)
