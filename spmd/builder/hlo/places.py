"""Where instructions come from in someone's program: metadata, and the tables of a dump that it refers to.

    FileNames       1 "train.py"
    FunctionNames   1 "loss"
    FileLocations   1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=2 end_column=35}
    StackFrames     1 {file_location_id=1 parent_frame_id=1}

A place is kept as the text of MLIR's locations. Source: XLA's HLO text, as `HloModule::ToString` prints it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_TABLE = re.compile(rf"({'|'.join(_TABLES)})[ \t]*\n((?:[ \t]*\d+[ \t]+[\"{{][^\n]*\n?)*)")
_ENTRY = re.compile(r'[ \t]*(\d{1,9})[ \t]+(?:"((?:[^"\\]|\\.)*)"|\{([^\n}]*)\})')
_FIELD = re.compile(r'(\w+)=(?:"((?:[^"\\]|\\.)*)"|(\d{1,9}))')
_DEEPEST = 100
_LONGEST = 1000


def _fields(text: str) -> dict[str, str]:
    return {name: quoted or number for name, quoted, number in _FIELD.findall(text)}


@dataclass
class PlaceTables:
    """The tables of one dump."""

    names: dict[str, dict[str, str]] = field(default_factory=dict)
    _known: dict[str, str | None] = field(default_factory=dict)

    def read(self, text: str, position: int) -> int:
        """Read the table that stands at `position`; returns where it ends, or `position` where none stands."""
        match = _TABLE.match(text, position)
        if match is None:
            return position
        entries = _ENTRY.findall(match[2])
        self.names[match[1]] = {number: name or rest for number, name, rest in entries}
        return match.end()

    def of(self, metadata: str | None) -> str | None:
        """Return the location that an instruction's metadata tell; None where they tell none."""
        if not metadata:
            return None
        if metadata not in self._known:
            self._known[metadata] = self._of(_fields(metadata))
        return self._known[metadata]

    def _of(self, metadata: Mapping[str, str]) -> str | None:
        place = self._frame(metadata.get("stack_frame_id", ""))
        if place is None and "source_file" in metadata:
            column = metadata.get("source_column", "0")
            place = f'"{metadata["source_file"]}":{metadata.get("source_line", "0")}:{column}'
        name = metadata.get("op_name", "").replace(r"\'", "'")
        if not name:
            return place
        text = f'"{name}"' if place is None else f'"{name}"({place})'
        return text if len(text) <= _LONGEST else f'"{name[:_LONGEST]}"'

    def _frame(self, number: str) -> str | None:
        """Return the calls that led to stack frame `number`, as `callsite(callee at caller)`."""
        frames = self.names.get("StackFrames", {})
        places: list[str] = []
        while number in frames and len(places) < _DEEPEST:
            frame = _fields(frames[number])
            place = self._file_location(frame.get("file_location_id", ""))
            if place is not None:
                places.append(place)
            parent = frame.get("parent_frame_id", "")
            if parent == number:
                break
            number = parent
        if not places:
            return None
        text = places.pop()
        while places:
            text = f"callsite({places.pop()} at {text})"
        return text

    def _file_location(self, number: str) -> str | None:
        entry = self.names.get("FileLocations", {}).get(number)
        if entry is None:
            return None
        fields = _fields(entry)
        file = self.names.get("FileNames", {}).get(fields.get("file_name_id", ""), "")
        function = self.names.get("FunctionNames", {}).get(fields.get("function_name_id", ""))
        place = f'"{file}":{fields.get("line", "0")}:{fields.get("column", "0")}'
        return place if function is None else f'"{function}"({place})'
