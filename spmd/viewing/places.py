"""Source locations of ops: names, enclosing scopes, and surrounding lines."""

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

#: A name in front of a location or alone; a file with a line.
_NAME = re.compile(r'"((?:[^"\\]|\\.)*)"(?!\s*:\d)')
_FILE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+)')
#: Lines shown around that of an op, the largest number of lines on a page, and of characters of a line.
_AROUND, _MOST_LINES, _WIDTH = 2, 6000, 200
_DEEPEST, _LONGEST_NAME = 12, 80


def key_of(location: Location) -> Hashable:
    """Return a key that ops of one location share."""
    if isinstance(location, PythonLocation):
        return str(location)
    return location.source.name, location.offset


def names_in(debug: str | None) -> tuple[str, ...]:
    """Return the scopes around an op, outermost first, and its name: `jit(f)`, `mlp`, `dot` for `jit(f)/mlp/dot`."""
    return _names_in(debug) if debug else ()


def name_in(debug: str | None) -> str | None:
    """Return the name that a debug location begins with: `state['w']` for `"state['w']"`; None without one."""
    found = _NAME.match(debug.strip()) if debug else None
    return None if found is None else found[1]


@lru_cache(maxsize=1 << 14)
def _names_in(debug: str) -> tuple[str, ...]:
    name = name_in(debug)
    if name is None:
        return ()
    parts = _split(name)
    if len(parts) > _DEEPEST:
        parts = [*parts[: _DEEPEST - 1], "/".join(parts[_DEEPEST - 1 :])]
    return tuple(short(part, _LONGEST_NAME) for part in parts)


def _split(name: str) -> list[str]:
    """Return the components of a path, not split at slashes in parentheses."""
    parts, depth = [""], 0
    for letter in name:
        depth += (letter == "(") - (letter == ")")
        if letter == "/" and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part]


@dataclass
class LocationTable:
    """The numbered source locations on a page, and the lines of their files."""

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
        """Return a key that `op` shares with the ops made from the same op of the program."""
        found = self._keys.get(op.place)
        if found is None:
            found = self._keys[op.place] = key_of(op.location)
        return found

    def debug(self, op: Op) -> str | None:
        """Return the producer's debug location of `op`, or of the op that it was made from."""
        return op.debug_location or self._debug.get(self.key(op))

    def number(self, op: Op) -> int:
        """Return the number of the location of `op`: [text, [file, line] of each frame, innermost first]."""
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
        """Return the lines around the locations, by file and line number, for files that exist."""
        found: dict[str, dict[int, str]] = {}
        left = _MOST_LINES
        for file, numbers in self._lines.items():
            lines = self._sources.get(file) or linecache.getlines(file)
            shown = {number: _shown(lines[number - 1]) for number in sorted(numbers)[:left] if number <= len(lines)}
            left -= len(shown)
            if shown:
                found[short(file)] = shown
        return found


def _is_a_byte(location: Location) -> bool:
    """Whether a place is that of a byte, of which there is no line."""
    if isinstance(location, TracedLocation):
        return not location.is_known and not location.source.text
    return isinstance(location, ByteLocation)


def _shown(line: str) -> str:
    return short(line.rstrip("\r\n"), _WIDTH)
