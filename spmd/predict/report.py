"""Predictions as text: a page, and a plot of a sweep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil, floor, log2
from string import ascii_letters

from spmd.predict.prediction import Prediction
from spmd.support.amounts import amount

#: The number of entries of the critical path that are shown.
SHOWN = 12
#: The largest number of rows of a plot, and the characters per column.
_MOST_ROWS, _COLUMN = 12, 7


def duration(seconds: float) -> str:
    """Return seconds with a unit: `1.23 ms`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def heading(prediction: Prediction, title: str) -> str:
    """Return the heading of a prediction: `title`, the processes and the machine."""
    size = prediction.grid.size
    processes = f"{size:,} process{'es' * (size > 1)}"
    return f"{title} on a {prediction.grid} grid of {processes}, {prediction.machine}"


def parts_of_step(prediction: Prediction) -> Sequence[tuple[str, float]]:
    """Return the parts of a process's step in seconds, with hidden communication if there is any."""
    hidden = [("communication hidden", prediction.hidden)] if prediction.hidden else []
    return [
        ("  computing", prediction.computing),
        ("  communicating", prediction.communicating),
        ("  waiting for others", prediction.waiting),
        *hidden,
    ]


def page(prediction: Prediction, title: str) -> str:
    """Return a prediction as text with a `title`."""
    size = prediction.grid.size
    lines = [heading(prediction, title), "", f"{'a step':24} {duration(prediction.seconds):>9}"]
    whole = prediction.seconds or 1.0
    for name, seconds in parts_of_step(prediction):
        percent = f" {seconds / whole:6.1%}" if name.startswith(" ") else ""
        lines.append(f"{name:24} {duration(seconds):>9}{percent}")
    memory = prediction.memory
    areas = ", ".join(f"{name} {amount(value)}" for name, value in vars(memory).items())
    lines += ["", f"memory of a process: {amount(memory.total)} ({areas})"]
    for name, sent in prediction.levels.items():
        lines.append(f"sent over level {name}: {amount(sent / size)} a process, {amount(sent)} in all")
    lines += ["", "critical path:"]
    for share in prediction.critical[:SHOWN]:
        lines.append(f"{share.share:6.1%} {duration(share.seconds):>9}  {share.title}  ({share.place})")
    rest = prediction.critical[SHOWN:]
    if rest:
        seconds = sum(share.seconds for share in rest)
        lines.append(f"{seconds / whole:6.1%} {duration(seconds):>9}  {len(rest)} more")
    lines += [f"note: {note}" for note in prediction.notes]
    return "\n".join(lines)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, right-aligned."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        yield "  ".join(map(str.rjust, row, widths))


def picture(counts: Sequence[int], curves: Mapping[str, Sequence[float]], label: str) -> str:
    """Return a text plot of curves over process counts, with a logarithmic vertical axis.

    Each curve is drawn with a letter of its name and the ideal one (linear in the processes) with dots; of several at
    one position, the first is shown.
    """
    ideal = [count / counts[0] for count in counts]
    values = [value for curve in (ideal, *curves.values()) for value in curve if value > 0]
    low, high = floor(log2(min(values)) + 1e-9), ceil(log2(max(values)) - 1e-9)
    step = max(1, -(-(high - low) // _MOST_ROWS))
    rows = 2 * max(1, -(-(high - low) // step))
    cells = [[" "] * (_COLUMN * len(counts)) for _ in range(rows + 1)]
    marks = _marks(curves)
    for mark, curve in ((".", ideal), *((marks[name], curve) for name, curve in reversed(list(curves.items())))):
        for column, value in enumerate(curve):
            if value > 0:
                row = round((log2(value) - low) * 2 / step)
                cells[rows - row][_COLUMN * column + _COLUMN // 2] = mark
    lines = [label]
    for number, line in enumerate(cells):
        scale = f"{2.0 ** (low + step * (rows - number) / 2):>8.4g}" if number % 2 == 0 else " " * 8
        lines.append(f"{scale} |{''.join(line)}".rstrip())
    lines.append(f"{'':8} +{'-' * _COLUMN * len(counts)}")
    lines.append(f"{'':10}{''.join(f'{count:^{_COLUMN}}' for count in counts)}".rstrip())
    legend = ", ".join(f"{marks[name]} {name}" for name in curves)
    return "\n".join([*lines, f"{'':10}processes; {legend}, . ideal"])


def _marks(names: Iterable[str]) -> dict[str, str]:
    """Return a unique letter for each name, from the name if possible."""
    marks: dict[str, str] = {}
    for name in names:
        free = [letter for letter in name + ascii_letters if letter.isalpha() and letter not in marks.values()]
        marks[name] = free[0]
    return marks
