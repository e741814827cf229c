"""Tables on a terminal, by Rich if it is installed; other output stays plain text."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from collectives.failure import launched_rank

#: Minimum width of a column of text.
_LEAST = 10


@dataclass(frozen=True)
class Column:
    """A column: right-aligned with `right`; `wraps` if a text may take several lines."""

    name: str
    right: bool = False
    wraps: bool = False
    style: str = ""


@dataclass
class Table:
    """Rows under a header; a row has one text per column, and may have a style."""

    title: str
    columns: Sequence[Column]
    rows: list[tuple[Sequence[str], str]] = field(default_factory=list)

    def add(self, *cells: str, style: str = "") -> None:
        self.rows.append((cells, style))


def is_rich() -> bool:
    """Return whether standard output is a terminal for colours and lines.

    Not on a rank, whose output the launcher forwards.
    """
    if os.environ.get("TERM") == "dumb" or launched_rank() is not None or importlib.util.find_spec("rich") is None:
        return False
    return sys.stdout.isatty()


def show(*parts: Table | str) -> None:
    """Write tables and lines to a terminal, in its width. Texts are literal, without markup.

    NO_COLOR disables colours (no-color.org).
    """
    from rich.console import Console  # late: not needed, and perhaps not installed, without a terminal
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False)
    for part in parts:
        console.print(_table(part) if isinstance(part, Table) else Text(_printable(part)))


def _table(table: Table) -> object:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    named = any(column.name for column in table.columns)
    title = Text(_printable(table.title), style="bold") if table.title else None
    drawn = RichTable(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, show_header=named)
    for column in table.columns:
        drawn.add_column(
            Text(column.name),
            justify="right" if column.right else "left",
            no_wrap=not column.wraps,
            overflow="fold" if column.wraps else "ellipsis",
            min_width=_LEAST if column.wraps else None,
            style=column.style,
        )
    for cells, style in table.rows:
        drawn.add_row(*(Text(_printable(cell)) for cell in cells), style=style)
    return drawn


def _printable(text: str) -> str:
    """Return `text` without control characters."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text)


def bar(part: float, width: int = 16) -> str:
    """Return a bar of `part` of `width` characters, in steps of an eighth."""
    eighths = round(max(0.0, min(1.0, part)) * width * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def facts(title: str, rows: Iterable[tuple[str, str]]) -> Table:
    """Return a table of names and texts."""
    table = Table(title, (Column("", style="bold"), Column("", wraps=True)))
    for name, text in rows:
        table.add(name, text)
    return table
