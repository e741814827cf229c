"""Files that hold several programs, split at lines `// -----`."""

from __future__ import annotations

import re

_SPLIT = re.compile(r"^//[ \t]*-----.*$", re.MULTILINE)


def split_file(text: str) -> list[str]:
    """Return the programs of `text`, each preceded by empty lines so that its line numbers are those of the file."""
    parts: list[str] = []
    start = 0
    for end in [*(match.start() for match in _SPLIT.finditer(text)), len(text)]:
        parts.append("\n" * text.count("\n", 0, start) + text[start:end])
        start = end
    return parts
