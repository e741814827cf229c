"""Processes of this machine, as Linux describes them."""

from __future__ import annotations

import contextlib
from pathlib import Path


def start_of(process: int) -> str:
    """When a process started, in ticks since the machine did: ids serve again, such a pair does not. Empty where there
    is no such process, or the system has no ``/proc``."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def is_child(parent: int, text: str) -> bool:
    """Whether `parent` has started a process that runs and whose command line contains `text`."""
    for listed in Path(f"/proc/{parent}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # ended meanwhile; one that has ended has no command line
            for child in listed.read_text().split():
                if text.encode() in Path(f"/proc/{child}/cmdline").read_bytes():
                    return True
    return False
