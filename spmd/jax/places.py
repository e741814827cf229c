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

register_exclusion(str(Path(__file__).parent))  # JAX writes the ten innermost remaining frames


def user_line(frames: Iterable[tuple[str, int]]) -> str:
    """Return "file:line: " of the user's first of `frames` (files and lines); "" without one."""
    return next((f"{file}:{line}: " for file, line in frames if is_of_the_user(file)), "")


def raising_line(traceback: TracebackType | None) -> str:
    """Return `user_line` of the raising code, from the innermost frame of its traceback outwards."""
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(traceback)]
    return user_line(reversed(frames))


def locate(module: Module) -> None:
    """Set the location in Python of each op of `module` that has one."""
    for op in module.walk():
        text = op.debug_location
        if text is not None:
            op.move(TracedLocation(op.location, partial(str, text)))
