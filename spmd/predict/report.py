"""Predictions for people: a page of text, and the terminal picture of a sweep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log2

from spmd.predict.events import amount
from spmd.predict.prediction import Prediction

#: Lines of the critical path that are told.
_TOLD = 12
_HEIGHT, _COLUMN = 12, 6


def duration(seconds: float) -> str:
    """Seconds for people: `1.23 ms`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def page(prediction: Prediction, title: str) -> str:
    """A prediction as text; `title` says of what."""
    size = prediction.grid.size
    processes = f"{size:,} process{'es' * (size > 1)}"
    lines = [f"{title} on a {prediction.grid} grid of {processes}, {prediction.machine}", ""]
    lines += [f"{'a step':24} {duration(prediction.seconds):>9}"]
    parts = (
        ("  computing", prediction.computing),
        ("  communicating", prediction.communicating),
        ("  waiting for others", prediction.waiting),
    )
    whole = prediction.seconds or 1.0
    lines += [f"{name:24} {duration(seconds):>9} {seconds / whole:6.1%}" for name, seconds in parts]
    lines += [f"{'communication beside it':24} {duration(prediction.hidden):>9}"] if prediction.hidden else []
    memory = prediction.memory
    told = ", ".join(f"{name} {amount(value)}" for name, value in vars(memory).items())
    lines += ["", f"memory of a process: {amount(memory.total)} ({told})"]
    for name, sent in prediction.levels.items():
        lines.append(f"sent over level {name}: {amount(sent / size)} a process, {amount(sent)} in all")
    lines += ["", "what a step's length hangs on:"]
    for share in prediction.critical[:_TOLD]:
        lines.append(f"{share.share:6.1%} {duration(share.seconds):>9}  {share.title}  ({share.place})")
    rest = prediction.critical[_TOLD:]
    if rest:
        seconds = sum(share.seconds for share in rest)
        lines.append(f"{seconds / whole:6.1%} {duration(seconds):>9}  {len(rest)} more")
    lines += [f"note: {note}" for note in prediction.notes]
    return "\n".join(lines)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows under a header, right-aligned but for the first column."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        yield "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()


def picture(counts: Sequence[int], curves: dict[str, Sequence[float]], label: str) -> str:
    """Curves over process counts as a terminal shows them, both axes in powers of two.

    Each curve is drawn with the first letter of its name, the ideal one (as many times as there are processes) with
    dots; where several meet, the first in order is seen.
    """
    first = counts[0]
    ideal = [count / first for count in counts]
    values = [value for curve in curves.values() for value in curve if value > 0]
    top = max([*ideal, *values])
    low = min([1.0, *values])
    span = max(log2(top / low), 1e-9)
    cells = [[" "] * (_COLUMN * len(counts)) for _ in range(_HEIGHT + 1)]
    for mark, curve in ((".", ideal), *((name[0], curve) for name, curve in reversed(curves.items()))):
        for column, value in enumerate(curve):
            if value > 0:
                row = round(log2(value / low) / span * _HEIGHT)
                cells[_HEIGHT - row][_COLUMN * column + _COLUMN // 2] = mark
    lines = [label]
    for number, line in enumerate(cells):
        height = low * 2 ** (span * (_HEIGHT - number) / _HEIGHT)
        scale = f"{height:>7.4g}" if number % 3 == 0 else " " * 7
        lines.append(f"{scale} |{''.join(line)}".rstrip())
    lines.append(f"{'':7} +{'-' * _COLUMN * len(counts)}")
    lines.append(f"{'':9}{''.join(f'{count:^{_COLUMN}}' for count in counts)}".rstrip())
    marks = ", ".join(f"{name[0]} {name}" for name in curves)
    lines.append(f"{'':9}processes    {marks}, . ideal")
    return "\n".join(lines)
