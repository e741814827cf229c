"""Checks that no user's file shadows the packages installed beside `spmd`.

Python looks for `collectives` beside the script that it runs first. A user's `collectives.py` there would be
imported in place of ours, and the errors that follow would name neither.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

#: Installed in the folder that holds `spmd`, and imported by it.
COMPANIONS = ("collectives", "partitioner")

_BESIDE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def check(names: tuple[str, ...] = COMPANIONS) -> None:
    """Raises ImportError, naming the file that shadows it, unless each of `names` is the package beside `spmd`."""
    for name in names:
        spec = find_spec(name)
        ours = os.path.join(_BESIDE, name, "__init__.py")
        if spec is None or not _same(spec.origin, ours):
            place = "nothing" if spec is None else spec.origin or f"a folder {name}/ without __init__.py"
            raise ImportError(
                f"spmd needs its own package `{name}`, in {os.path.dirname(ours)}, but `import {name}` finds {place}: "
                f"rename that file, or move it away from the script's folder",
                name=name,
                path=None if spec is None else spec.origin,
            )


def _same(path: str | None, ours: str) -> bool:
    return path == ours or (path is not None and os.path.realpath(path) == os.path.realpath(ours))
