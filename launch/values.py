"""Parsers of option values, such as numbers and grids, with an error message for invalid ones.

Each raises ArgumentTypeError for invalid text.
"""

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
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}") from None
    if number < least:
        raise argparse.ArgumentTypeError(f"must be at least {least}, got {text}")
    return number


def positive(text: str) -> int:
    """Return a whole number, at least 1."""
    return _at_least(text, 1)


def not_negative(text: str) -> int:
    """Return a whole number, at least 0."""
    return _at_least(text, 0)


def seconds(text: str) -> float:
    """Return a non-negative number of seconds."""
    from collectives.settings import seconds_from

    try:
        return seconds_from(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}, got {text!r}") from None


def steps(text: str) -> range:
    """Return a range of steps: ``2:10`` is steps 2 to 9."""
    from spmd.support.step_range import steps_from

    try:
        return steps_from(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}, got {text!r}") from None


def memory(text: str) -> int:
    """Return a positive number of bytes, such as 500000, 4GB or 1.5 GiB."""
    from spmd.support.amounts import read_amount

    size = read_amount(text)
    if size is None:
        raise argparse.ArgumentTypeError(f"must be a number of bytes, such as 4GB, got {text!r}")
    if size < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1 byte, got {text!r}")
    return size


def mesh(text: str) -> dict[str, int]:
    """Return the axes of a mesh and their sizes, major first: ``data=8,model=4``."""
    axes: dict[str, int] = {}
    for entry in text.split(","):
        name, _, size = entry.strip().partition("=")
        if not name or not size.isdecimal() or int(size) < 1 or name in axes:
            text = f"must be distinct axes with their sizes, such as data=8,model=4, got {text!r}"
            raise argparse.ArgumentTypeError(text)
        axes[name] = int(size)
    return axes


def grid(text: str) -> "ProcessGrid":
    """Return a grid of replicas by partitions: ``4x2``."""
    from collectives.errors import GroupError
    from collectives.grid import ProcessGrid

    match = _GRID.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"must be replicas by partitions, such as 4x2, got {text!r}")
    try:
        return ProcessGrid(int(match[1]), int(match[2]))
    except GroupError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def counts(text: str) -> list[int]:
    """Return increasing numbers: ``1,2,4,...,4096``; ``...`` continues the ratio of the two numbers before it."""
    parts = [part.strip() for part in text.split(",")]
    numbers: list[int] = []
    for place, part in enumerate(parts):
        if part == "...":
            numbers += _between(numbers, parts[place + 1 :])
        else:
            numbers.append(positive(part))
    if any(later <= earlier for earlier, later in pairwise(numbers)):
        raise argparse.ArgumentTypeError(f"must be increasing numbers, got {text!r}")
    return numbers


def _between(known: list[int], rest: list[str]) -> list[int]:
    """Return the numbers abbreviated by `...`."""
    if len(known) < 2 or len(rest) != 1 or known[-1] % known[-2] or known[-1] == known[-2]:
        text = "... must follow two numbers, the second a multiple of the first, and precede the last"
        raise argparse.ArgumentTypeError(text)
    factor, last = known[-1] // known[-2], positive(rest[0])
    between = []
    number = known[-1] * factor
    while number < last:
        between.append(number)
        number *= factor
    return between
