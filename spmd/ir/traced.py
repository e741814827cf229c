"""The places of ops in the user's Python, of the locations that frontends write."""

from __future__ import annotations

import linecache
import re
import sysconfig
from collections.abc import Callable
from pathlib import Path

from spmd.errors import Location, Source

#: One frame: its function, file and line, as MLIR prints a name and a place inside of it.
_FRAME = re.compile(r'"((?:[^"\\]|\\.)*)"\("((?:[^"\\]|\\.)*)":(\d+):(\d+)')
#: Files of libraries: of packages that are installed, and of Python itself.
_LIBRARY = re.compile(rf"[/\\](?:site|dist)-packages[/\\]|{re.escape(sysconfig.get_path('stdlib'))}")
_OWN = str(Path(__file__).parents[1])


def is_own(file: str) -> bool:
    """Return whether a file is one of this package."""
    return file.startswith(_OWN)


def is_of_the_user(file: str) -> bool:
    """Return whether a file is of the user's program, not of a library or of Python."""
    return not is_own(file) and not _LIBRARY.search(file)


class TracedLocation(Location):
    """A line of Python that was traced; found in the location's text on first use."""

    __slots__ = ("_kept_place", "_program", "_text")

    def __init__(self, program: Location, text: Callable[[], str | None]) -> None:
        """`program` is the op's place in the program, `text` gives what that says of its place in Python."""
        super().__init__(program.source, program.offset)
        self._program = program
        self._text = text
        self._kept_place: tuple[str, int, int] | None = None

    def _place(self) -> tuple[str, int, int]:
        """File, line and column of the innermost frame of the user's own code, or else the innermost of all."""
        if self._kept_place is None:
            frames = [(file, int(line), int(column)) for _, file, line, column in _FRAME.findall(self._text() or "")]
            frames = [frame for frame in frames if not is_own(frame[0])]
            own = [frame for frame in frames if is_of_the_user(frame[0])]
            self._kept_place = next(iter(own or frames), ("", 0, 0))
        return self._kept_place

    @property
    def is_known(self) -> bool:
        """Whether the frontend recorded a line of Python."""
        return bool(self._place()[0])

    @property
    def file(self) -> str:
        """The file of the line, or of the program where none is known."""
        return self._place()[0] or self._program.file

    @property
    def line(self) -> int:
        """The number of the line, from 1."""
        return self._place()[1] or self._program.line

    @property
    def column(self) -> int:
        """The column in the line, from 1."""
        return self._place()[2] + 1 if self.is_known else self._program.column

    def quote(self) -> str:
        """The source line with a caret below the column."""
        if not self.is_known:
            return self._program.quote()
        text = linecache.getline(self.file, self.line).rstrip("\n")
        if not text:
            return ""
        source = Source(self.file, text)
        return Location(source, min(self.column - 1, len(text))).quote()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.is_known else str(self._program)

    __repr__ = __str__
