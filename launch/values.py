"""What stands behind an option on the command line: numbers and grids, refused in a sentence when they are none."""

import argparse
import re
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
