"""The manifest of a checkpoint: its tree, its arrays, and where each block of them lies.

The file is JSON, ``{"crc32": "<8 digits>", "manifest": ...}``; the checksum is of all that follows its own digits.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spmd.checkpoint.blocks import Box
from spmd.checkpoint.safetensors import FilePart, Stored
from spmd.errors import CheckpointError, DamagedCheckpointError
from spmd.support.arrays import Tree

FORMAT = "spmd checkpoint 2"
_HEAD = '{"crc32": "'
_DIGITS = 8


@dataclass(frozen=True)
class ArrayEntry:
    """An array of the tree: its name, its dtype's name, its global shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Manifest:
    """`folder`: where the files of `parts` are, beside the manifest. `tree`: the structure (see `tree.flatten`)."""

    step: int
    folder: str
    tree: Tree
    leaves: tuple[ArrayEntry, ...]
    parts: tuple[FilePart, ...]

    @property
    def names(self) -> Sequence[str]:
        return [leaf.name for leaf in self.leaves]


def encode(manifest: Manifest) -> bytes:
    body = {
        "format": FORMAT,
        "step": manifest.step,
        "folder": manifest.folder,
        "tree": manifest.tree,
        "leaves": [[leaf.name, leaf.dtype, leaf.shape] for leaf in manifest.leaves],
        "parts": [encode_part(part) for part in manifest.parts],
    }
    rest = f'", "manifest": {json.dumps(body)}}}\n'.encode()
    return f"{_HEAD}{zlib.crc32(rest):0{_DIGITS}x}".encode() + rest


def encode_part(part: FilePart) -> Tree:
    blocks = [
        [block.leaf, block.box.start, block.box.shape, block.offset, block.size, block.checksums]
        for block in part.blocks
    ]
    return [part.file, part.size, part.header, blocks]


def decode_part(part: Tree) -> FilePart:
    file, size, header, blocks = part
    stored = [
        Stored(leaf, Box(tuple(start), tuple(shape)), offset, size, tuple(checksums))
        for leaf, start, shape, offset, size, checksums in blocks
    ]
    return FilePart(file, size, header, tuple(stored))


def read(path: Path) -> Manifest:
    """The manifest at `path`; DamagedCheckpointError when there is none, or it is not as it was written."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DamagedCheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    start = len(_HEAD) + _DIGITS
    if data[:start] != f"{_HEAD}{zlib.crc32(data[start:]):0{_DIGITS}x}".encode():
        raise DamagedCheckpointError(f"{path}: damaged: the manifest has not its checksum")
    body = json.loads(data)["manifest"]
    if body.get("format") != FORMAT:
        raise CheckpointError(f"{path}: a manifest of format {body.get('format')!r}, not {FORMAT!r}")
    leaves = tuple(ArrayEntry(name, dtype, tuple(shape)) for name, dtype, shape in body["leaves"])
    return Manifest(body["step"], body["folder"], body["tree"], leaves, tuple(map(decode_part, body["parts"])))
