"""Hosts to run on, parsed from the command line or a file."""

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

_HOST = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?::([1-9][0-9]{0,5}))?", re.ASCII)
_SLOTS = re.compile(r"(\S+)\s+slots\s*=\s*(\S+)(?:\s+max[-_]slots\s*=\s*\S+)?", re.ASCII)


@dataclass(frozen=True)
class Host:
    """A host name or address, and its number of ranks."""

    name: str
    slots: int = 1

    def __str__(self) -> str:
        return f"{self.name}:{self.slots}"


def from_text(text: str) -> tuple[Host, ...]:
    """Return the hosts in ``a:2,b:2``, with one rank by default; ArgumentTypeError for anything else."""
    return tuple(_host(word, f"hosts must be given as a:2,b:2, got {text!r}") for word in text.split(","))


def from_file(path: str) -> tuple[Host, ...]:
    """Return the hosts in a file, one per line as ``a slots=2``, ``a:2`` or ``a``, with comments after ``#``.

    Raises ArgumentTypeError if the file cannot be read or parsed.
    """
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"{path} cannot be read: {error}") from None
    hosts = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if text:
            slots = _SLOTS.fullmatch(text)
            word = f"{slots[1]}:{slots[2]}" if slots else text
            hosts.append(_host(word, f"{path}:{number}: a line must be a host, such as a slots=2, got {text!r}"))
    if not hosts:
        raise argparse.ArgumentTypeError(f"{path} names no host")
    return tuple(hosts)


def _host(text: str, fault: str) -> Host:
    match = _HOST.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(fault)
    return Host(match[1], int(match[2] or 1))
