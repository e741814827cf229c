"""Every error a user can meet, each with its place in the source.

An error shows as `file:line:column: what is wrong`, then the source line and a caret. Several errors of one file are
reported together: `error.diagnostics` lists them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from collectives.errors import CommunicationError as _TransportError
from collectives.errors import GroupError, refuse_grids_with, report_without_frames
from spmd.support.editions import edition_note

_QUOTED_WIDTH = 160
_MOST_SHOWN = 20


class Source:
    """A text and its name; turns offsets into lines and columns."""

    __slots__ = ("_known", "name", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self._known = (0, 1)  # an offset and its line: lines are counted from there

    def position(self, offset: int) -> tuple[int, int]:
        """(line, column), both from 1."""
        known, line = self._known
        if offset >= known:
            line += self.text.count("\n", known, offset)
        else:
            line -= self.text.count("\n", offset, known)
        self._known = (offset, line)
        return line, offset - self.text.rfind("\n", 0, offset)

    def around(self, offset: int, width: int) -> tuple[str, int, bool]:
        """Up to `width` characters of the line that has `offset`: text, where it starts, whether the line goes on."""
        start = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", offset)
        end = len(self.text) if end < 0 else end
        if end > start and self.text[end - 1] == "\r":
            end -= 1
        first = max(start, offset - width // 2) if end - start > width else start
        return self.text[first : min(end, first + width)], first, first + width < end


class Location:
    """A place in a source text; line and column are worked out only when someone asks."""

    __slots__ = ("offset", "source")

    def __init__(self, source: Source, offset: int) -> None:
        self.source = source
        self.offset = offset

    @property
    def file(self) -> str:
        return self.source.name

    @property
    def line(self) -> int:
        return self.source.position(self.offset)[0]

    @property
    def column(self) -> int:
        return self.source.position(self.offset)[1]

    def quote(self) -> str:
        """The source line, shortened around the place, and a caret below it; what cannot be printed is replaced."""
        text, start, goes_on = self.source.around(self.offset, _QUOTED_WIDTH)
        shown = "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in text)
        before = "..." if start and self.source.text[start - 1] != "\n" else ""
        lead = "".join("\t" if c == "\t" else " " for c in before + shown[: self.offset - start])
        return f"  {before}{shown}{'...' if goes_on else ''}\n  {lead}^"

    def __reduce__(self) -> str | tuple[object, ...]:
        return Location, (self.source, self.offset)

    def __str__(self) -> str:
        line, column = self.source.position(self.offset)
        return f"{self.source.name}:{line}:{column}"

    __repr__ = __str__


class PythonLocation(Location):
    """A place in a Python program: where a builder call added an op."""

    __slots__ = ("_line",)

    def __init__(self, file: str, line: int) -> None:
        super().__init__(Source(file, ""), 0)
        self._line = line

    @property
    def line(self) -> int:
        return self._line

    @property
    def column(self) -> int:
        return 1

    def quote(self) -> str:
        return ""

    def __reduce__(self) -> tuple[object, ...]:
        return PythonLocation, (self.source.name, self._line)

    def __str__(self) -> str:
        return f"{self.source.name}:{self._line}"

    __repr__ = __str__


class ByteLocation(Location):
    """A place in a file that is no text: a byte's offset, and the section that has it."""

    __slots__ = ("section",)

    def __init__(self, file: str, offset: int, section: str = "") -> None:
        super().__init__(Source(file, ""), offset)
        self.section = section

    @property
    def line(self) -> int:
        return 1

    @property
    def column(self) -> int:
        return self.offset + 1

    def quote(self) -> str:
        return ""

    def __str__(self) -> str:
        return f"{self.source.name}: byte {self.offset}" + (f" ({self.section})" if self.section else "")

    __repr__ = __str__


class _UnknownLocation(Location):
    __slots__ = ()

    def __reduce__(self) -> str:
        return "UNKNOWN"

    def __str__(self) -> str:
        return "<unknown>"

    def quote(self) -> str:
        return ""


UNKNOWN = _UnknownLocation(Source("<unknown>", ""), 0)


@dataclass(frozen=True)
class Diagnostic:
    """One thing that is wrong: where, with which op (empty when none), which constraint label, and why."""

    location: Location
    message: str
    op: str = ""
    label: str = ""
    notes: tuple[str, ...] = field(default=())

    @property
    def headline(self) -> str:
        op = f"{self.op}: " if self.op else ""
        label = f"({self.label}) " if self.label else ""
        return f"{self.location}: {op}{label}{self.message}{edition_note(self.op, self.label)}"

    def __str__(self) -> str:
        return "\n".join(part for part in (self.headline, self.location.quote(), *self.notes) if part)


class SpmdError(Exception):
    """The base of every error of spmd. `diagnostics` holds what is wrong, in source order."""

    def __init__(self, message: str | Diagnostic | Sequence[Diagnostic], location: Location = UNKNOWN) -> None:
        if isinstance(message, str):
            self.diagnostics: tuple[Diagnostic, ...] = (Diagnostic(location, message),)
        elif isinstance(message, Diagnostic):
            self.diagnostics = (message,)
        else:
            self.diagnostics = tuple(message)
        super().__init__(self._text())

    def _text(self) -> str:
        shown = [
            diagnostic.message if diagnostic.location is UNKNOWN and not diagnostic.op else str(diagnostic)
            for diagnostic in self.diagnostics[:_MOST_SHOWN]
        ]
        if len(self.diagnostics) > _MOST_SHOWN:
            shown.append(f"... and {len(self.diagnostics) - _MOST_SHOWN} more errors")
        return "\n".join(shown)


class ParseError(SpmdError):
    """The text is not the language's."""


class FileError(ParseError, OSError):
    """A file cannot be read: `filename`, `errno` and `strerror` say which and why."""

    def __init__(self, path: str, error: OSError) -> None:
        super().__init__(f"{path}: cannot be read: {error.strerror}")
        self.filename, self.errno, self.strerror = path, error.errno, error.strerror

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.filename, OSError(self.errno, self.strerror))

    def __str__(self) -> str:
        return self._text()


class MissingFileError(FileError, FileNotFoundError):
    """There is no such file."""


class OutputError(SpmdError, OSError):
    """A file cannot be written: `filename`, `errno` and `strerror` say which and why."""

    def __init__(self, path: str, error: OSError) -> None:
        super().__init__(f"{path}: cannot be written: {error.strerror or error}")
        self.filename, self.errno, self.strerror = path, error.errno, error.strerror

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.filename, OSError(self.errno, self.strerror))

    def __str__(self) -> str:
        return self._text()


class UsageError(SpmdError, TypeError):
    """A function or a command was given something other than what it takes."""


class VerificationError(SpmdError):
    """The program breaks a constraint of the specification."""


class CompileError(SpmdError):
    """The program is sound but cannot be compiled here (an unknown custom call, a grid that does not fit)."""


class InternalError(SpmdError):
    """Something inside of spmd is not as it must be: a fault of spmd, and not of the program."""


class NativeCodeError(InternalError, RuntimeError):
    """LLVM does not take the native code that was written for a program."""


class ConversionError(SpmdError):
    """The program cannot be written so: the form, or that version of it, has no place for something in it."""


class ExecutionError(SpmdError):
    """The program failed while it ran."""


class ArrayFileError(ExecutionError, UsageError):
    """A file of arrays cannot be read, or is none."""


class CollectiveError(SpmdError, _TransportError):
    """Processes disagree at a collective, or one waits in vain."""


class GridError(SpmdError, GroupError):
    """A process grid that cannot be: numbers that are none, or too many processes."""


refuse_grids_with(GridError)
report_without_frames(SpmdError)


class CheckpointError(SpmdError, ValueError):
    """A tree that a checkpoint cannot hold, or a checkpoint that is not there or does not fit what it is read for."""


class DamagedCheckpointError(CheckpointError):
    """A checkpoint whose bytes are not those that were written."""
