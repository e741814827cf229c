"""Every error a user can meet, each with its place in the source.

An error shows as `file:line:column: what is wrong`, then the source line and a caret. Several errors of one file are
told in one go: `error.diagnostics` lists them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from collectives.errors import CollectiveError as _TransportError

_QUOTED_WIDTH = 160
_MOST_SHOWN = 20


class Source:
    """A text and its name; turns offsets into lines and columns."""

    __slots__ = ("_starts", "name", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self._starts: list[int] | None = None

    def position(self, offset: int) -> tuple[int, int]:
        """(line, column), both from 1."""
        if self._starts is None:
            starts = [0]
            find = self.text.find
            end = find("\n")
            while end >= 0:
                starts.append(end + 1)
                end = find("\n", end + 1)
            self._starts = starts
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def line_text(self, line: int) -> str:
        if self._starts is None:
            self.position(0)
        assert self._starts is not None
        if not 1 <= line <= len(self._starts):
            return ""
        start = self._starts[line - 1]
        end = self.text.find("\n", start)
        return self.text[start : end if end >= 0 else len(self.text)].rstrip("\r")


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
        line, column = self.source.position(self.offset)
        text = "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in self.source.line_text(line))
        start = max(0, column - 1 - _QUOTED_WIDTH // 2) if len(text) > _QUOTED_WIDTH else 0
        shown = text[start : start + _QUOTED_WIDTH]
        before, after = ("..." if start else ""), ("..." if start + _QUOTED_WIDTH < len(text) else "")
        lead = "".join("\t" if c == "\t" else " " for c in before + shown[: column - 1 - start])
        return f"  {before}{shown}{after}\n  {lead}^"

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

    def __str__(self) -> str:
        return f"{self.source.name}:{self._line}"

    __repr__ = __str__


class _UnknownLocation(Location):
    __slots__ = ()

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
        return f"{self.location}: {op}{label}{self.message}"

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


class VerificationError(SpmdError):
    """The program breaks a constraint of the specification."""


class CompileError(SpmdError):
    """The program is sound but cannot be compiled here (an unknown custom call, a grid that does not fit)."""


class ExecutionError(SpmdError):
    """The program failed while it ran."""


class CollectiveError(SpmdError, _TransportError):
    """Processes disagree at a collective, or one waits in vain."""
