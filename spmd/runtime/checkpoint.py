"""Checkpoints that are whole or absent.

A checkpoint is one file, ``step-<step>.npz``: NumPy arrays under their names, and a description in JSON. It is written
beside its place, flushed to the disk, and only then renamed, so that a machine may stop at any moment and the newest
file that bears a checkpoint's name is whole. Reading verifies every array (zip's CRC-32) all the same, and passes over
what a failing disk has spoilt.
"""

import contextlib
import json
import os
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

_NAME = re.compile(r"step-(\d+)\.npz")
_DESCRIPTION = "__description__"


@dataclass(frozen=True)
class Checkpoint:
    """The state of a program after ``step`` steps.

    ``arrays`` may have any shape and any dtype of NumPy or ml_dtypes; ``metadata`` is what JSON can hold.
    """

    step: int
    arrays: Mapping[str, npt.NDArray[Any]]
    metadata: Mapping[str, Any] = field(default_factory=dict)


def save(folder: str | os.PathLike[str], checkpoint: Checkpoint, keep: int | None = 2) -> Path:
    """Write a checkpoint into ``folder`` (made if absent) and return its path.

    :param keep: how many of the newest checkpoints to leave there; None leaves all.
    :raises ValueError: for an array of Python objects, or one named like the description.
    :raises OSError: when it cannot be written; the checkpoints before it are untouched.
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    final = place / f"step-{checkpoint.step:012d}.npz"
    unfinished = place / f".{final.name}.{os.getpid()}"
    try:
        with unfinished.open("wb") as stream:
            np.savez(stream, **_encode(checkpoint))  # type: ignore[arg-type]
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.rename(final)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    _flush_folder(place)
    if keep is not None:
        for old in _files(place)[keep:]:
            old.unlink(missing_ok=True)
    return final


def load(path: str | os.PathLike[str]) -> Checkpoint:
    """Read one checkpoint.

    :raises ValueError: when the file is not a whole checkpoint.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            entries = {name: file[name] for name in file.files}
        description = json.loads(entries.pop(_DESCRIPTION).tobytes())
        arrays = {name: _decode(entries[name], dtype) for name, dtype in description["dtypes"].items()}
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError) as error:
        raise ValueError(f"{os.fspath(path)}: not a whole checkpoint: {error}") from error
    return Checkpoint(description["step"], arrays, description["metadata"])


def newest(folder: str | os.PathLike[str]) -> Checkpoint | None:
    """The newest whole checkpoint of a folder; None if there is none, or no such folder."""
    for path in _files(Path(folder)):
        with contextlib.suppress(ValueError, FileNotFoundError):
            return load(path)
    return None


def _files(folder: Path) -> list[Path]:
    """Files that bear a checkpoint's name, newest first."""
    if not folder.is_dir():
        return []
    steps = {path: int(match[1]) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))}
    return sorted(steps, key=lambda path: steps[path], reverse=True)


def _encode(checkpoint: Checkpoint) -> dict[str, npt.NDArray[Any]]:
    if _DESCRIPTION in checkpoint.arrays:
        raise ValueError(f"an array must not be named {_DESCRIPTION!r}")
    arrays = {name: np.asarray(array) for name, array in checkpoint.arrays.items()}
    if objects := [name for name, array in arrays.items() if array.dtype.hasobject]:
        raise ValueError(f"array {objects[0]!r} holds Python objects")
    description = {
        "step": checkpoint.step,
        "dtypes": {name: array.dtype.name for name, array in arrays.items()},
        "metadata": dict(checkpoint.metadata),
    }
    text = np.frombuffer(json.dumps(description).encode(), np.uint8)
    return {_DESCRIPTION: text} | {name: _storable(array) for name, array in arrays.items()}


def _storable(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """NumPy's file format does not know the types of ml_dtypes: their bits are stored."""
    return array if array.dtype.isbuiltin == 1 else array.view(np.dtype(f"u{array.dtype.itemsize}"))


def _decode(array: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    return array if array.dtype == dtype else array.view(dtype)


def _flush_folder(folder: Path) -> None:
    """Make the rename itself durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
