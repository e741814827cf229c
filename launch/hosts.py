"""Hosts to run on, as the command line or a file names them."""

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

_HOST = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?::([1-9][0-9]{0,5}))?", re.ASCII)
_SLOTS = re.compile(r"(\S+)\s+slots\s*=\s*(\S+)(?:\s+max[-_]slots\s*=\s*\S+)?", re.ASCII)


@dataclass(frozen=True)
class Host:
    """A machine by its name or address, and how many ranks it takes."""

    name: str
    slots: int = 1

    def __str__(self) -> str:
        return f"{self.name}:{self.slots}"


def from_text(text: str) -> tuple[Host, ...]:
    """``a:2,b:2``; one rank where no number stands."""
    return tuple(_host(word, f"hosts are named as a:2,b:2, got {text!r}") for word in text.split(","))


def from_file(path: str) -> tuple[Host, ...]:
    """A host a line, as ``a slots=2``, ``a:2`` or ``a``; what stands behind ``#`` is left out."""
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
            hosts.append(_host(word, f"{path}:{number}: a line is a host, as a slots=2, got {text!r}"))
    if not hosts:
        raise argparse.ArgumentTypeError(f"{path} names no host")
    return tuple(hosts)


def _host(text: str, fault: str) -> Host:
    match = _HOST.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(fault)
    return Host(match[1], int(match[2] or 1))
