"""What is compiled while tests run is kept for all processes of the run, in one folder.

These are programs, of which none is found that a test has altered, and bytecode where Python is not to write any beside
the sources (`PYTHONDONTWRITEBYTECODE`): hundreds of processes would compile all that they import anew. What was made of
packages when they were installed is linked there, and the project's sources are compiled before workers begin, each of
which would compile all of them.
"""

from __future__ import annotations

import compileall
import itertools
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from spmd.compiler.pipeline import cache_key

#: The folder of this run, for the processes that its tests start.
RUN_VARIABLE = "SPMD_TEST_CACHE"
PREFIX = "spmd-tests-cache-"
#: A file system in memory, and the bytes that are free in it where it is used: ranks share it. To write thousands of
#: small files to a disk and remove them takes minutes on some.
_IN_MEMORY, _LEAST_FREE = "/dev/shm", 4 << 30
ROOT = Path(__file__).parents[1]
PACKAGES = ("collectives", "launch", "partitioner", "spmd")
_FOLDER: pytest.StashKey[tempfile.TemporaryDirectory[str]] = pytest.StashKey()
_NUMBERS = itertools.count()
#: By the MonkeyPatch that did it: what stands in place of attributes of the project's modules and classes.
_replaced: dict[int, list[str]] = {}


def begin(config: pytest.Config) -> None:
    """Makes the folder of this run, unless this pytest was started by one that has; notes what tests replace."""
    if is_first := RUN_VARIABLE not in os.environ:
        config.stash[_FOLDER] = folder = tempfile.TemporaryDirectory(prefix=PREFIX, dir=_place())
        os.environ[RUN_VARIABLE] = folder.name
    programs, bytecode = (os.path.join(os.environ[RUN_VARIABLE], name) for name in ("programs", "bytecode"))
    os.environ["SPMD_CACHE_DIR"] = programs
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        sys.dont_write_bytecode = False
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = bytecode
        if is_first:
            for name in {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}:
                _link_bytecode(name, bytecode)
    if is_first and getattr(config.option, "numprocesses", None):
        for package in PACKAGES:
            compileall.compile_dir(ROOT / package, quiet=2, workers=0)
    cache_key.PARTS["replaced by a test"] = lambda module, function, options: list(_replaced.values())
    pytest.MonkeyPatch.setattr = _noting(pytest.MonkeyPatch.setattr)  # type: ignore[method-assign]
    pytest.MonkeyPatch.undo = _forgetting(pytest.MonkeyPatch.undo)  # type: ignore[method-assign]


def _link_bytecode(folder: str, prefix: str) -> None:
    """Have Python find the bytecode that lies beside the sources in `folder` below `prefix`, too."""
    for path, _, files in os.walk(folder):
        if os.path.basename(path) == "__pycache__":
            place = prefix + os.path.dirname(path)
            os.makedirs(place, exist_ok=True)
            for file in files:
                with suppress(FileExistsError):  # one folder of packages lies in another
                    os.symlink(os.path.join(path, file), os.path.join(place, file))


def _place() -> str | None:
    """The folder for the run's own; None for the usual one of temporary files."""
    if not os.access(_IN_MEMORY, os.W_OK) or shutil.disk_usage(_IN_MEMORY).free < _LEAST_FREE:
        return None
    return _IN_MEMORY


def end(config: pytest.Config) -> None:
    """Removes the folder, if this run made it."""
    folder = config.stash.get(_FOLDER, None)
    if folder is not None:
        folder.cleanup()


def _noting(setattr: Callable[..., None]) -> Callable[..., None]:
    @wraps(setattr)
    def note(patch: pytest.MonkeyPatch, target: object, *rest: Any, **named: Any) -> None:
        setattr(patch, target, *rest, **named)
        owner = target if isinstance(target, str) else getattr(target, "__module__", getattr(target, "__name__", ""))
        if str(owner).startswith("spmd"):
            value = rest[-1]
            plain = repr(value) if isinstance(value, (int, float, str)) else f"{os.getpid()} {next(_NUMBERS)}"
            _replaced.setdefault(id(patch), []).append(f"{target!r} {rest[0]!r} {plain}")

    return note


def _forgetting(undo: Callable[..., None]) -> Callable[..., None]:
    @wraps(undo)
    def forget(patch: pytest.MonkeyPatch) -> None:
        undo(patch)
        _replaced.pop(id(patch), None)

    return forget
