"""Source locations of Python callers."""

from __future__ import annotations

import sys


def caller_of(package: str | None) -> str:
    """Return the location, ``file:line``, of the innermost caller outside of ``package``."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).split(".")[0] == package:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
