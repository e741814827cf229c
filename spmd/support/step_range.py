"""Which steps of a program a profile keeps: `FIRST:LAST`, counted from 0, the last one not among them."""

from __future__ import annotations

import re

_STEPS = re.compile(r"(\d{1,9}):(\d{1,9})", re.ASCII)


def steps_from(text: str) -> range:
    """Return the steps that `2:10` stands for: 2 to 9. ValueError where there are none."""
    match = _STEPS.fullmatch(text)
    if match is None or int(match[1]) >= int(match[2]):
        raise ValueError("steps FIRST:LAST are needed, counted from 0, of which LAST is left out, such as 2:10")
    return range(int(match[1]), int(match[2]))
