"""What a file is, by its first bytes."""

from __future__ import annotations

from spmd.artifacts.sections import MAGIC
from spmd.artifacts.stream import Buffer
from spmd.ir import Module


def looks_binary(head: Buffer) -> bool:
    """Whether a file that begins so is one of those that are not text."""
    return bytes(head[: len(MAGIC)]) == MAGIC


def read_binary(data: Buffer | bytearray, name: str) -> Module | None:
    """The module that `data` holds; None when they are none of what is known here: text, perhaps."""
    if not looks_binary(memoryview(data)[:64]):
        return None
    from spmd.artifacts.bytecode import read_bytecode

    return read_bytecode(bytes(data) if isinstance(data, bytearray) else data, name)
