"""Arguments that stand in a program's own file: XLA's HloSnapshot and HloUnoptimizedSnapshot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spmd.support.arrays import Nested


def arguments_in(path: str) -> Sequence[tuple[Nested, ...]]:
    """Return the arguments in the file, a row for each device or one for all; none in files that hold none."""
    file_path = Path(path)
    if file_path.is_dir():
        return ()
    with file_path.open("rb") as stream:
        if stream.read(1) != b"\n":  # of field 1 of a message
            return ()
    from spmd.builder.hlo.proto import hlo_file  # imported lazily: few files are such

    file = hlo_file(file_path.read_bytes())
    return () if file is None else [row for row in file.values(path) if row]
