"""Checks of the packages that `spmd` imports: those installed beside it, and the LLVM that it was made for.

Python looks for `collectives` beside the script that it runs first. A user's `collectives.py` there would be
imported in place of ours, and the errors that follow would name neither. An llvmlite that another package pins (numba
does) replaces the one that is needed, of which pip only warns, and refuses some functions with errors of LLVM.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from importlib.util import find_spec

#: Installed in the folder that holds `spmd`, and imported by it.
COMPANIONS = ("collectives", "partitioner")

#: The first release of llvmlite whose LLVM reads all that is written for it; pyproject.toml names it, too.
LLVMLITE = (0, 50)

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


def warn_of_llvmlite() -> None:
    """Issue a RuntimeWarning for an llvmlite that is older than needed."""
    fault = llvmlite_fault()
    if fault is not None:
        warnings.warn(f"spmd: {fault}", RuntimeWarning, stacklevel=3)


def llvmlite_fault(folder: str | None = None) -> str | None:
    """Return what is wrong with the llvmlite that is installed, in `folder` or where Python finds it; None if nothing.

    Its version is read off its metadata's folder, which takes no import.
    """
    if folder is None:
        spec = find_spec("llvmlite")
        if spec is None or spec.origin is None:
            return None
        folder = os.path.dirname(os.path.dirname(spec.origin))
    found = [re.fullmatch(r"llvmlite-(\d+)\.(\d+)(.*)\.dist-info", name) for name in os.listdir(folder)]
    versions = [(int(match[1]), int(match[2]), match[3]) for match in found if match is not None]
    if not versions or max(versions)[:2] >= LLVMLITE:
        return None
    major, minor, rest = max(versions)
    needed = ".".join(map(str, LLVMLITE))
    return (
        f"llvmlite {major}.{minor}{rest} is older than {needed}, and cannot compile some functions: "
        f"{sys.executable} -m pip install 'llvmlite>={needed}'"
    )
