"""Processes of this machine, as Linux describes them."""

from __future__ import annotations

from pathlib import Path


def start_of(process: int) -> str:
    """When a process started, in ticks since the machine did: ids serve again, such a pair does not. Empty where there
    is no such process, or the system has no ``/proc``."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
