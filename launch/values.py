"""What stands behind an option on the command line: numbers and grids, refused in a sentence when they are none."""

import argparse
import re
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collectives.grid import ProcessGrid

_GRID = re.compile(r"(\d{1,18})x(\d{1,18})", re.ASCII)


def _at_least(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a whole number is needed, got {text!r}") from None
    if number < least:
        raise argparse.ArgumentTypeError(f"must be at least {least}, got {text}")
    return number


def positive(text: str) -> int:
    """A whole number from 1 on."""
    return _at_least(text, 1)


def not_negative(text: str) -> int:
    """A whole number from 0 on."""
    return _at_least(text, 0)


def seconds(text: str) -> float:
    """A number of seconds, as the ranks read it."""
    from collectives.settings import seconds_from

    try:
        return seconds_from(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}, got {text!r}") from None


def steps(text: str) -> range:
    """``2:10``: steps 2 to 9."""
    from spmd.support.step_range import steps_from

    try:
        return steps_from(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}, got {text!r}") from None


def memory(text: str) -> int:
    """A positive number of bytes, such as 500000, 4GB or 1.5 GiB."""
    from spmd.support.amounts import read_amount

    size = read_amount(text)
    if size is None:
        raise argparse.ArgumentTypeError(f"a number of bytes is needed, such as 4GB, got {text!r}")
    if size < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1 byte, got {text!r}")
    return size


def mesh(text: str) -> dict[str, int]:
    """``data=8,model=4``: the axes of a mesh and their sizes, major first."""
    axes: dict[str, int] = {}
    for entry in text.split(","):
        name, _, size = entry.strip().partition("=")
        if not name or not size.isdecimal() or int(size) < 1 or name in axes:
            text = f"axes and their sizes are needed, each once, such as data=8,model=4, got {text!r}"
            raise argparse.ArgumentTypeError(text)
        axes[name] = int(size)
    return axes


def grid(text: str) -> "ProcessGrid":
    """``4x2``: replicas by partitions."""
    from collectives.errors import GroupError
    from collectives.grid import ProcessGrid

    match = _GRID.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"replicas by partitions are needed, such as 4x2, got {text!r}")
    try:
        return ProcessGrid(int(match[1]), int(match[2]))
    except GroupError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def counts(text: str) -> list[int]:
    """``1,2,4,...,4096``: rising numbers; ``...`` goes on as the two numbers before it do, by a factor."""
    parts = [part.strip() for part in text.split(",")]
    numbers: list[int] = []
    for place, part in enumerate(parts):
        if part == "...":
            numbers += _between(numbers, parts[place + 1 :])
        else:
            numbers.append(positive(part))
    if any(later <= earlier for earlier, later in pairwise(numbers)):
        raise argparse.ArgumentTypeError(f"rising numbers are needed, got {text!r}")
    return numbers


def _between(known: list[int], rest: list[str]) -> list[int]:
    """What `...` stands for, between the numbers before it and the one after."""
    if len(known) < 2 or len(rest) != 1 or known[-1] % known[-2] or known[-1] == known[-2]:
        text = "... stands between two numbers, of which the second is some times the first, and the last one"
        raise argparse.ArgumentTypeError(text)
    factor, last = known[-1] // known[-2], positive(rest[0])
    between = []
    number = known[-1] * factor
    while number < last:
        between.append(number)
        number *= factor
    return between
