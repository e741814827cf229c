"""Detects the format of a file from its first bytes."""

from __future__ import annotations

from pathlib import Path

from spmd.artifacts.sections import MAGIC
from spmd.artifacts.stream import Buffer
from spmd.errors import UsageError
from spmd.ir import Module

#: The number of bytes that determine the format.
HEAD = 4096
BYTECODE, EXPORTED, TEXT = "MLIR bytecode", "jax.export", "text"


def format_of(head: Buffer) -> str:
    """Return the format of a file that starts with `head`; "text" if no binary format matches."""
    if bytes(head[: len(MAGIC)]) == MAGIC:
        return BYTECODE
    if bytes(head[4:8]) and 0 in bytes(head[:64]):
        from spmd.artifacts.jax_export import looks_exported  # loaded late, as each reader is: text needs none

        if looks_exported(head):
            return EXPORTED
    return TEXT


def looks_saved(folder: Path) -> bool:
    """Return whether PyTorch/XLA saved the folder."""
    try:
        return folder.is_dir() and any((folder / "functions").glob("*.meta"))
    except (OSError, ValueError):
        return False


def read_binary(data: Buffer, name: str, *, vjp: int = 0) -> Module | None:
    """Return the module in `data`; None if the format is not binary, that is, possibly text.

    `vjp` selects the gradient of that order in a file of jax.export.
    """
    format = format_of(data[:HEAD])
    if format == EXPORTED:
        from spmd.artifacts.jax_export import callable_module, read_exported  # late: few files are such

        return callable_module(read_exported(data, name).gradient(vjp))
    if vjp:
        raise UsageError(f"vjp needs a file of jax.export, and {name} is none")
    if format == BYTECODE:
        from spmd.artifacts.bytecode import read_bytecode  # late: text does without

        return read_bytecode(data, name)
    return None
