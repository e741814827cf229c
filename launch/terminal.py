"""Tables on a terminal, by Rich where it is installed; what goes elsewhere is the plain text that it always was."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from collectives.failure import launched_rank

#: The least characters that a column of text has.
_LEAST = 10


@dataclass(frozen=True)
class Column:
    """A column: numbers stand at the `right`; `wraps` where a text may take several lines."""

    name: str
    right: bool = False
    wraps: bool = False
    style: str = ""


@dataclass
class Table:
    """Rows under a header; a row is as many texts as there are columns, and may have a style of its own."""

    title: str
    columns: Sequence[Column]
    rows: list[tuple[Sequence[str], str]] = field(default_factory=list)

    def add(self, *cells: str, style: str = "") -> None:
        self.rows.append((cells, style))


def is_rich() -> bool:
    """Whether standard output is a terminal that is written to with colours and lines.

    A rank's is none: what looks like one is the launcher's, which passes on what is written to it.
    """
    if os.environ.get("TERM") == "dumb" or launched_rank() is not None or importlib.util.find_spec("rich") is None:
        return False
    return sys.stdout.isatty()


def show(*parts: Table | str) -> None:
    """Writes tables and lines to a terminal, as wide as it is. Texts are taken as they are: nothing in them is markup.

    Colours are left out where NO_COLOR is set (no-color.org).
    """
    from rich.console import Console  # late: who writes to no terminal loads it not, and may not have it
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
    """`text` without what would move a terminal's cursor or change its state."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text)


def bar(part: float, width: int = 16) -> str:
    """A bar of `part` of `width` characters, in eighths of one."""
    eighths = round(max(0.0, min(1.0, part)) * width * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def facts(title: str, rows: Iterable[tuple[str, str]]) -> Table:
    """Names and what is known under them."""
    table = Table(title, (Column("", style="bold"), Column("", wraps=True)))
    for name, text in rows:
        table.add(name, text)
    return table
