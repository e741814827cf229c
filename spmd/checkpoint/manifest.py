"""The manifest of a checkpoint: its tree, its arrays, and the location of their blocks.

The file is JSON, ``{"crc32": "<8 digits>", "manifest": ...}``; the checksum covers everything after its digits.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spmd.checkpoint import safetensors
from spmd.checkpoint import tree as trees
from spmd.checkpoint.blocks import Box, cover_fault
from spmd.checkpoint.safetensors import FilePart, Stored, dtype_name, dtype_of
from spmd.errors import CheckpointError, DamagedCheckpointError
from spmd.support.arrays import Tree

FORMAT = "spmd checkpoint 2"
_HEAD = '{"crc32": "'
_DIGITS = 8
#: The name of the folder with a checkpoint's files: the name of the manifest, and a unique suffix.
DATA_FOLDER = re.compile(r"(step-\d{12,})-[0-9a-f]{16}")

_PART_FILE = re.compile(r"part-\d+-of-\d+\.safetensors", re.ASCII)
_MOST_DIMENSIONS = 64  # of NumPy's arrays

#: The values of one process's own Python scalars (see `per_rank`).
Scalars = tuple[Tree, ...]


@dataclass(frozen=True)
class ArrayEntry:
    """An array of the tree: its name, dtype name and global shape. With `per_rank` each process has one row."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    per_rank: bool = False


@dataclass(frozen=True)
class Manifest:
    """The contents of a manifest.

    `folder` has the files of `parts`, beside the manifest. `tree` is the structure (see `tree.flatten`). `scalars` are
    the per-rank scalars of each process, if there are any.
    """

    step: int
    folder: str
    tree: Tree
    leaves: tuple[ArrayEntry, ...]
    parts: tuple[FilePart, ...]
    scalars: tuple[Scalars, ...] = ()

    @property
    def names(self) -> Sequence[str]:
        return [leaf.name for leaf in self.leaves]


def encode(manifest: Manifest) -> bytes:
    body = {
        "format": FORMAT,
        "step": manifest.step,
        "folder": manifest.folder,
        "tree": manifest.tree,
        "leaves": [[leaf.name, leaf.dtype, leaf.shape, leaf.per_rank] for leaf in manifest.leaves],
        "parts": [encode_part(part) for part in manifest.parts],
        "scalars": manifest.scalars,
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
    """Return the manifest at `path`; DamagedCheckpointError if it does not exist or is damaged."""
    return decode(path, read_bytes(path))


def read_bytes(path: Path) -> bytes:
    """Return the content of the file at `path`; DamagedCheckpointError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DamagedCheckpointError(f"{path}: cannot be read: {error.strerror}") from error


def decode(path: Path, data: bytes) -> Manifest:
    """Return the manifest in `data`, the content of the file at `path`.

    :raises DamagedCheckpointError: if its checksum does not match, or it does not describe a checkpoint.
    :raises CheckpointError: if it has another format.
    """
    start = len(_HEAD) + _DIGITS
    if data[:start] != f"{_HEAD}{zlib.crc32(data[start:]):0{_DIGITS}x}".encode():
        raise DamagedCheckpointError(f"{path}: damaged: the manifest's checksum does not match")
    try:
        body = json.loads(data)["manifest"]
        kind = body.get("format")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedCheckpointError(f"{path}: is not a manifest of a checkpoint: {_said(error)}") from None
    if kind != FORMAT:
        raise CheckpointError(f"{path}: the manifest's format must be {FORMAT!r}, got {kind!r}")
    try:
        manifest = _decoded(body)
        _check(manifest, path.stem)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedCheckpointError(f"{path}: is not a manifest of a checkpoint: {_said(error)}") from None
    return manifest


def _said(error: Exception) -> str:
    return str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"


def _decoded(body: Tree) -> Manifest:
    leaves = tuple(
        ArrayEntry(name, dtype, tuple(shape), bool(rest and rest[0])) for name, dtype, shape, *rest in body["leaves"]
    )
    parts = tuple(map(decode_part, body["parts"]))
    scalars = tuple(map(tuple, body.get("scalars", ())))
    return Manifest(body["step"], body["folder"], body["tree"], leaves, parts, scalars)


# --- consistency, which the checksum does not cover ----------------------------------------------------------------


def _check(manifest: Manifest, stem: str) -> None:
    """Raise ValueError, or an error of wrong types, unless the manifest describes a complete checkpoint."""
    named = DATA_FOLDER.fullmatch(manifest.folder)
    _expect(named is not None and named[1] == stem, f"its folder is {manifest.folder!r}")
    _expect(_is_size(manifest.step) and f"step-{manifest.step:012d}" == stem, f"its step is {manifest.step!r}")
    for leaf in manifest.leaves:
        _expect(isinstance(leaf.name, str) and all(map(_is_size, leaf.shape)), f"it has an array {leaf!r}")
        _expect(not leaf.per_rank or bool(leaf.shape), f"{leaf.name} has no dimension of processes")
        dtype = dtype_of(leaf.dtype)
        _expect(dtype_name(dtype) == leaf.dtype, f"{leaf.name} is of dtype {leaf.dtype!r}")
        room = math.prod(max(size, 1) for size in leaf.shape) * dtype.itemsize
        _expect(len(leaf.shape) <= _MOST_DIMENSIONS and _is_size(room), f"{leaf.name} is larger than any array")
    counts = {len(scalars) for scalars in manifest.scalars} or {0}
    _expect(len(counts) == 1, "its processes have different numbers of scalars")
    trees.check_structure(manifest.tree, len(manifest.leaves), max(counts))
    for scalar in (scalar for scalars in manifest.scalars for scalar in scalars):
        trees.check_structure(scalar, 0, 0)
    sizes = [dtype_of(leaf.dtype).itemsize for leaf in manifest.leaves]
    covered: list[list[Box]] = [[] for _ in sizes]
    for part in manifest.parts:
        _expect(_PART_FILE.fullmatch(part.file) is not None, f"it names a file {part.file!r}")
        _expect(_is_size(part.size) and _is_size(part.header), f"{part.file} has no valid size")
        for block in part.blocks:
            _check_block(manifest, part, block, sizes)
            covered[block.leaf].append(block.box)
    for leaf, boxes in zip(manifest.leaves, covered, strict=True):
        fault = cover_fault(leaf.shape, boxes)
        _expect(fault is None, f"the blocks of {leaf.name} are not the whole array: {fault}")


def _check_block(manifest: Manifest, part: FilePart, block: Stored, itemsizes: Sequence[int]) -> None:
    what = f"a block of {part.file}"
    _expect(_is_size(block.leaf) and block.leaf < len(itemsizes), f"{what} belongs to no array")
    shape, box = manifest.leaves[block.leaf].shape, block.box
    _expect(len(box.start) == len(box.shape) == len(shape), f"{what} has other dimensions than its array")
    for start, size, whole in zip(box.start, box.shape, shape, strict=True):
        _expect(_is_size(start) and _is_size(size) and start + size <= whole, f"{what} reaches beyond its array")
    _expect(block.size == box.size * itemsizes[block.leaf], f"{what} has another size than its elements")
    _expect(_is_size(block.offset) and block.offset + block.size <= part.size, f"{what} reaches beyond its file")
    _expect(len(block.checksums) == -(-block.size // safetensors.CHUNK), f"{what} has a wrong number of checksums")


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _expect(holds: bool, fault: str) -> None:
    if not holds:
        raise ValueError(fault)
