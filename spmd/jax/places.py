"""Locations of ops in the user's Python code, from the locations that JAX writes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from traceback import walk_tb
from types import TracebackType

from jax.extend.source_info_util import register_exclusion

from spmd.ir import Module
from spmd.ir.traced import TracedLocation, is_of_the_user

<<<<<<< HEAD
#: One frame: function, file and line, as MLIR prints a name and a location inside it.
_FRAME = re.compile(r'"((?:[^"\\]|\\.)*)"\("((?:[^"\\]|\\.)*)":(\d+):(\d+)')
#: Matches files of installed packages and of Python itself.
_LIBRARY = re.compile(rf"[/\\](?:site|dist)-packages[/\\]|{re.escape(sysconfig.get_path('stdlib'))}")
_OWN = str(Path(__file__).parent)
register_exclusion(_OWN)  # JAX writes the ten innermost remaining frames


def _is_of_the_user(file: str) -> bool:
    return not file.startswith(_OWN) and not _LIBRARY.search(file)


def user_line(frames: Iterable[tuple[str, int]]) -> str:
    """Return "file:line: " of the user's first of `frames` (files and lines); "" without one."""
    return next((f"{file}:{line}: " for file, line in frames if _is_of_the_user(file)), "")
=======
register_exclusion(str(Path(__file__).parent))  # JAX writes the ten innermost frames that are left


def user_line(frames: Iterable[tuple[str, int]]) -> str:
    """What an error begins with, "file:line: ", of the user's first of `frames`, files and lines; "" without one."""
    return next((f"{file}:{line}: " for file, line in frames if is_of_the_user(file)), "")
>>>>>>> 0af8a52b (Name the user's lines in errors of programs on JAX's client)


def raising_line(traceback: TracebackType | None) -> str:
    """Return `user_line` of the raising code, from the innermost frame of its traceback outwards."""
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(traceback)]
    return user_line(reversed(frames))


<<<<<<< HEAD
class TracedLocation(Location):
    """A line of Python that JAX traced; computed on first use."""

    __slots__ = ("_kept_place", "_program", "_text")

    def __init__(self, program: Location, text: str) -> None:
        super().__init__(program.source, program.offset)
        self._program = program
        self._text = text
        self._kept_place: tuple[str, int, int] | None = None

    def _place(self) -> tuple[str, int, int]:
        """Return file, line and column of the innermost frame of the user's code, or else the innermost of all."""
        if self._kept_place is None:
            frames = [(file, int(line), int(column)) for _, file, line, column in _FRAME.findall(self._text)]
            frames = [frame for frame in frames if not frame[0].startswith(_OWN)]
            own = [frame for frame in frames if _is_of_the_user(frame[0])]
            self._kept_place = next(iter(own or frames), ("", 0, 0))
        return self._kept_place

    @property
    def is_known(self) -> bool:
        """Whether JAX recorded a line of Python."""
        return bool(self._place()[0])

    @property
    def file(self) -> str:
        """The file of the line, or of the program if unknown."""
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
        """Return the source line with a caret below the column."""
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


=======
>>>>>>> 0af8a52b (Name the user's lines in errors of programs on JAX's client)
def locate(module: Module) -> None:
    """Set the location in Python of each op of `module` that has one."""
    for op in module.walk():
        text = op.debug_location
        if text is not None:
            op.move(TracedLocation(op.location, partial(str, text)))
