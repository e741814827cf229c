"""Linux control groups of this process; the limits of all of them, from its own up to the root, apply.

Sources: cgroups(7); the kernel's cgroup-v2 documentation, memory and cpu controllers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from collectives.system import IS_LINUX

#: The mount point of the groups, and the file that lists this process's.
ROOT = Path("/sys/fs/cgroup")
OF_PROCESS = Path("/proc/self/cgroup")


def folders(controller: str) -> tuple[Path, ...]:
    """The folder of each group that this process is in for `controller`, from its own up, of either version."""
    if not IS_LINUX:
        return ()
    try:
        text = OF_PROCESS.read_text()
    except OSError:
        text = ""
    return _folders(ROOT, text, controller)


@lru_cache(maxsize=16)
def _folders(mount: Path, of_process: str, controller: str) -> tuple[Path, ...]:
    """The folders below `mount` of a process that `of_process`, the text of its file, is of: each compilation reads
    the limits of them several times."""
    found = dict.fromkeys(_inner(mount, of_process, controller))
    return (*(folder for folder in found if folder not in (mount, mount / controller)), mount, mount / controller)


def _inner(mount: Path, of_process: str, controller: str) -> Iterator[Path]:
    for line in of_process.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        root = mount / controller if controller in controllers.split(",") else mount if not controllers else None
        if root is None or ".." in path.split("/"):
            continue  # another controller's, or a group outside this container
        inside = root / path.lstrip("/")
        while inside != root:
            yield inside
            inside = inside.parent


def number(file: Path) -> int | None:
    """The number in a file of a group; None where there is no such file, or no limit."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def entry(file: Path, *names: str) -> int:
    """The number behind the first of `names` that a file of lines `name number` has; 0 where it has none."""
    try:
        pairs = dict(line.split()[:2] for line in file.read_text().splitlines() if line)
        return next((int(pairs[name]) for name in names if name in pairs), 0)
    except (OSError, ValueError):
        return 0
