"""Reading of checkpoints, by any number of processes."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from collectives.record.recorder import RECORDER
from spmd.checkpoint import manifest as manifests
from spmd.checkpoint import per_rank as own_leaves
from spmd.checkpoint import store
from spmd.checkpoint import tree as trees
from spmd.checkpoint.blocks import ArrayBlock, Place, Placement, own_place, place_of, placements
from spmd.checkpoint.manifest import ArrayEntry, Manifest
from spmd.checkpoint.processes import CheckpointRanks
from spmd.checkpoint.safetensors import PartFile, dtype_name, dtype_of
from spmd.checkpoint.writing import settle
from spmd.errors import CheckpointError, DamagedCheckpointError
from spmd.support.arrays import Array, DType, Tree

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")
#: How often a checkpoint may change while it is read before it counts as damaged.
_LOOKS = 100


def newest(folder: str | os.PathLike[str], *, communicator: MPI.Comm | None = None) -> int | None:
    """Return the step of the newest undamaged checkpoint; None if there is none, or no such folder.

    Collective; each process verifies some of the files, every byte. Damaged checkpoints are skipped with a warning that
    names the damage. One that is removed or replaced while it is read, by a job that writes and prunes concurrently,
    does not count as damaged: the folder is listed again.
    """
    place = Path(folder).absolute()
    processes = CheckpointRanks(communicator, "checkpoint.newest")
    settle(place)
    return _first_whole(place, processes, partial(_verified_step, place, processes))


def verify(folder: str | os.PathLike[str], step: int, *, communicator: MPI.Comm | None = None) -> None:
    """Verify every byte of a checkpoint. Collective.

    Raises CheckpointError, which names the file and the array that is damaged.
    """
    place = Path(folder).absolute()
    processes = CheckpointRanks(communicator, f"checkpoint.verify of step {step}")
    _of_step(place, step, processes, partial(_verified_step, place, processes))


def restore(
    folder: str | os.PathLike[str],
    step: int | None = None,
    like: object = None,
    shardings: object = None,
    *,
    communicator: MPI.Comm | None = None,
) -> Tree:
    """Return the tree of a checkpoint, with NumPy arrays as its array leaves.

    Collective; the number of processes need not be that of the writers. Each process reads and verifies what it needs:
    the whole arrays, or, with `shardings` (as for `save`, not necessarily those of the writers), its block of each,
    with zeros as padding.

    Leaves saved with `per_rank` are restored by the same number of processes, each its own. An ArrayBlock in
    `shardings` reads any part of the array of all processes, whose first dimension is the process.

    :param step: the step; None selects the newest undamaged checkpoint, skipping others with a warning. One that is
        removed or replaced while it is read is looked up again.
    :param like: a tree of the same structure: the result has its classes and static fields, and its array leaves
        (arrays, or anything with shape and dtype) are checked against the checkpoint's. Without it named tuples are
        restored as new classes of the same name and fields, dataclasses as SimpleNamespaces.

    :raises CheckpointError: if there is no such checkpoint, it is damaged, or `like`, a sharding or the number of
        processes does not match it.
    """
    place = Path(folder).absolute()
    which = "the newest checkpoint" if step is None else f"step {step}"
    with RECORDER.note("checkpoint", f"restore of {which}"):
        processes = CheckpointRanks(communicator, f"checkpoint.restore of {which}")
        settle(place)
        read = partial(_read, place, shardings, processes)
        loaded = _first_whole(place, processes, read) if step is None else _of_step(place, step, processes, read)
        if loaded is None:
            raise CheckpointError(f"{place}: there is no undamaged checkpoint")
        return processes.agree(partial(_tree, loaded, like))


# --- one checkpoint, or the newest ---------------------------------------------------------------------------------


def _first_whole(folder: Path, processes: CheckpointRanks, read: Callable[[Manifest], T]) -> T | None:
    """Return the result of `read` for the newest undamaged checkpoint; None if there is none. Collective."""
    passed_over: set[int] = set()
    vanished: Counter[int] = Counter()
    while True:
        for step in [step for step in _steps(folder, processes) if step not in passed_over]:
            attempt = _attempt(folder, step, processes, read)
            if not attempt.damage:
                return attempt.result
            if attempt.has_changed and vanished[step] < _LOOKS:
                vanished[step] += 1
                break  # list again: there may be newer ones, or a replacement of this one
            passed_over.add(step)
            if processes.rank == 0:
                warnings.warn(f"passed over: {attempt.damage}", RuntimeWarning, stacklevel=3)
        else:
            return None


def _of_step(folder: Path, step: int, processes: CheckpointRanks, read: Callable[[Manifest], T]) -> T | None:
    """Return the result of `read` for the checkpoint of `step`; DamagedCheckpointError if it is damaged. Collective."""
    for _ in range(_LOOKS):
        attempt = _attempt(folder, step, processes, read)
        if not attempt.damage:
            return attempt.result
        if not attempt.has_changed or not attempt.is_there:
            break
    raise DamagedCheckpointError(attempt.damage)


def _steps(folder: Path, processes: CheckpointRanks) -> list[int]:
    """Return the steps that have a manifest, newest first, as process 0 lists them. Collective."""
    steps = processes.all_gather(processes.on_first(lambda: store.steps(folder)))[0]
    assert steps is not None
    return steps


@dataclass(frozen=True)
class _Attempt(Generic[T]):
    """The outcome of reading a checkpoint: its result here, or the damage that the first process found.

    `has_changed` is set if its manifest was removed or replaced meanwhile; `is_there` if one exists.
    """

    result: T | None
    damage: str = ""
    has_changed: bool = False
    is_there: bool = False


def _attempt(folder: Path, step: int, processes: CheckpointRanks, read: Callable[[Manifest], T]) -> _Attempt[T]:
    """Make all processes read the checkpoint of the manifest that process 0 sees. Collective."""
    path = store.manifest_path(folder, step)

    def bytes_or_fault() -> tuple[bytes, str]:
        try:
            return manifests.read_bytes(path), ""
        except DamagedCheckpointError as error:
            return b"", str(error)

    data, fault = processes.all_gather(processes.on_first(bytes_or_fault))[0] or (b"", "")

    def act() -> tuple[T | None, str]:
        try:
            return (None, fault) if fault else (read(manifests.decode(path, data)), "")
        except DamagedCheckpointError as error:
            return None, str(error)

    result, damage = processes.agree(act)
    damages = [message for message in processes.all_gather(damage) if message]
    if not damages:
        return _Attempt(result)
    now = processes.on_first(bytes_or_fault)
    content, is_there = processes.all_gather((now[0], path.exists()) if now else (b"", False))[0]
    return _Attempt(None, damages[0], not is_there or content != data, is_there)


def _verified_step(folder: Path, processes: CheckpointRanks, manifest: Manifest) -> int:
    store.verify(folder, manifest, range(processes.rank, len(manifest.parts), processes.size))
    return manifest.step


@dataclass(frozen=True)
class _Loaded:
    """What one process has read of a checkpoint."""

    manifest: Manifest
    structure: Tree
    shapes: list[tuple[int, ...]]
    arrays: list[Array]


def _read(folder: Path, shardings: object, processes: CheckpointRanks, manifest: Manifest) -> _Loaded:
    found = placements(manifest.tree, shardings)
    own_places = [_place(leaf, placement, processes) for leaf, placement in zip(manifest.leaves, found, strict=True)]
    dtypes = [dtype_of(leaf.dtype) for leaf in manifest.leaves]
    arrays = [_room(place, dtype) for place, dtype in zip(own_places, dtypes, strict=True)]
    for part in manifest.parts:
        needed = [block for block in part.blocks if own_places[block.leaf].box.meets(block.box)]
        if not needed:
            continue
        with PartFile(folder / manifest.folder, part, manifest.names) as file:
            for block in needed:
                box = own_places[block.leaf].box
                unpadded: Any = (..., *(slice(0, size) for size in box.shape))
                file.read(block, dtypes[block.leaf], arrays[block.leaf][unpadded], box)
    rows = [leaf.per_rank and not isinstance(p, ArrayBlock) for leaf, p in zip(manifest.leaves, found, strict=True)]
    arrays = [array[0] if row else array for array, row in zip(arrays, rows, strict=True)]
    whole = [leaf.shape[1:] if row else leaf.shape for leaf, row in zip(manifest.leaves, rows, strict=True)]
    structure = manifest.tree
    if manifest.scalars:
        _check_number("scalars", len(manifest.scalars), processes)
        structure = own_leaves.put_scalars(structure, manifest.scalars[processes.rank])
    return _Loaded(manifest, structure, whole, arrays)


def _place(leaf: ArrayEntry, placement: Placement, processes: CheckpointRanks) -> Place:
    """Return this process's placement of the array of a leaf."""
    if leaf.per_rank and not isinstance(placement, ArrayBlock):
        _check_number(leaf.name or "the tree", leaf.shape[0], processes)
        return own_place(leaf.shape[1:], processes.rank, processes.size)
    place = place_of(leaf.name, placement, leaf.shape, processes.rank)
    if place.shape != leaf.shape:
        raise CheckpointError(f"{leaf.name}: its sharding must be of shape {leaf.shape}, got {place.shape}")
    return place


def _check_number(what: str, written: int, processes: CheckpointRanks) -> None:
    if written != processes.size:
        raise CheckpointError(
            f"{what}: saved with per_rank by {written} processes, but restored by {processes.size}; an  "
            "ArrayBlock in shardings reads a part of the array of them all"
        )


def _room(place: Place, dtype: DType) -> Array:
    return np.empty(place.local, dtype) if place.local == place.box.shape else np.zeros(place.local, dtype)


def _tree(loaded: _Loaded, like: Tree) -> Tree:
    if like is None:
        return trees.unflatten(loaded.structure, loaded.arrays)

    def take(index: int, wanted_leaf: object) -> Array:
        _check_like(loaded.manifest.leaves[index], loaded.shapes[index], loaded.arrays[index].shape, wanted_leaf)
        return loaded.arrays[index]

    return trees.unflatten_like(loaded.structure, like, take)


def _check_like(leaf: ArrayEntry, shape: tuple[int, ...], local: tuple[int, ...], wanted_leaf: object) -> None:
    """Raise CheckpointError unless an array leaf of `like` has the dtype and shape of the checkpoint's."""
    if not hasattr(wanted_leaf, "dtype") or not hasattr(wanted_leaf, "shape"):
        return
    if dtype_name(np.dtype(wanted_leaf.dtype)) != leaf.dtype or tuple(wanted_leaf.shape) not in (shape, local):
        raise CheckpointError(
            f"{leaf.name or 'the tree'} is {leaf.dtype} of shape {shape} in the checkpoint, "
            f"{wanted_leaf.dtype} of shape {tuple(wanted_leaf.shape)} here"
        )
