"""Reading a checkpoint: any number of processes, each what it needs."""

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

from collectives.recorder import RECORDER
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
#: How often one checkpoint may change while it is read, before it counts as damaged.
_LOOKS = 100


def newest(folder: str | os.PathLike[str], *, communicator: MPI.Comm | None = None) -> int | None:
    """The step of the newest checkpoint that is whole, every byte of it; None if there is none, or no such folder.

    All processes call it, and each verifies some of the files. A damaged checkpoint is passed over with a warning that
    names what is damaged. One that is removed or replaced while it is read, by a job that writes and prunes beside this
    one, is no damage: the folder is listed again.
    """
    place = Path(folder).absolute()
    processes = CheckpointRanks(communicator, "checkpoint.newest")
    settle(place)
    return _first_whole(place, processes, partial(_verified_step, place, processes))


def verify(folder: str | os.PathLike[str], step: int, *, communicator: MPI.Comm | None = None) -> None:
    """Reads all of a checkpoint; CheckpointError names the file, and the array, that is not as it was written."""
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
    """The tree of a checkpoint, with NumPy arrays for its array leaves.

    All processes call it, as many as there are; how many wrote it does not matter. Each reads and verifies what it
    needs: the whole arrays, or, with `shardings` (as `save` takes them, not necessarily those of the writers), its own
    block of each, with zeros where a block is padded.

    Leaves that were saved with `per_rank` are this process's own: as many processes as wrote them have to restore them.
    An ArrayBlock in `shardings` reads any part of the array of them all, whose first dimension is of processes.

    :param step: which; None is the newest whose bytes are whole, others are passed over with a warning. One that is
        removed or replaced while it is read is looked for again.
    :param like: a tree of the same structure, whose classes and static fields the result has, and whose array leaves
        (arrays, or anything with shape and dtype) are checked against the checkpoint's. Without it named tuples come
        back as new classes of the same name and fields, dataclasses as SimpleNamespaces.

    :raises CheckpointError: when there is no such checkpoint, it is damaged, or `like`, a sharding or the number of
        processes does not fit it.
    """
    place = Path(folder).absolute()
    which = "the newest checkpoint" if step is None else f"step {step}"
    with RECORDER.note("checkpoint", f"restore of {which}"):
        processes = CheckpointRanks(communicator, f"checkpoint.restore of {which}")
        settle(place)
        read = partial(_read, place, shardings, processes)
        loaded = _first_whole(place, processes, read) if step is None else _of_step(place, step, processes, read)
        if loaded is None:
            raise CheckpointError(f"{place}: there is no whole checkpoint")
        return processes.agree(partial(_tree, loaded, like))


# --- one checkpoint, or the newest ---------------------------------------------------------------------------------


def _first_whole(folder: Path, processes: CheckpointRanks, read: Callable[[Manifest], T]) -> T | None:
    """What `read` gives of the newest checkpoint that is whole; None where none is. Collective."""
    passed_over: set[int] = set()
    vanished: Counter[int] = Counter()
    while True:
        for step in [step for step in _steps(folder, processes) if step not in passed_over]:
            attempt = _attempt(folder, step, processes, read)
            if not attempt.damage:
                return attempt.result
            if attempt.has_changed and vanished[step] < _LOOKS:
                vanished[step] += 1
                break  # list anew: there may be newer ones, or this one's successor
            passed_over.add(step)
            if processes.rank == 0:
                warnings.warn(f"passed over: {attempt.damage}", RuntimeWarning, stacklevel=3)
        else:
            return None


def _of_step(folder: Path, step: int, processes: CheckpointRanks, read: Callable[[Manifest], T]) -> T | None:
    """What `read` gives of the checkpoint of `step`; DamagedCheckpointError where that is not whole. Collective."""
    for _ in range(_LOOKS):
        attempt = _attempt(folder, step, processes, read)
        if not attempt.damage:
            return attempt.result
        if not attempt.has_changed or not attempt.is_there:
            break
    raise DamagedCheckpointError(attempt.damage)


def _steps(folder: Path, processes: CheckpointRanks) -> list[int]:
    """Steps of which there is a manifest, newest first: as process 0 sees the folder."""
    steps = processes.all_gather(processes.on_first(lambda: store.steps(folder)))[0]
    assert steps is not None
    return steps


@dataclass(frozen=True)
class _Attempt(Generic[T]):
    """What reading a checkpoint gave: the result here, or the damage that the first process has met. `has_changed`: its
    manifest was removed or replaced meanwhile; `is_there`: there is one."""

    result: T | None
    damage: str = ""
    has_changed: bool = False
    is_there: bool = False


def _attempt(folder: Path, step: int, processes: CheckpointRanks, read: Callable[[Manifest], T]) -> _Attempt[T]:
    """Has all processes read the checkpoint of one manifest, the one that process 0 sees."""
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
    """Where this process has the array of a leaf."""
    if leaf.per_rank and not isinstance(placement, ArrayBlock):
        _check_number(leaf.name or "the tree", leaf.shape[0], processes)
        return own_place(leaf.shape[1:], processes.rank, processes.size)
    place = place_of(leaf.name, placement, leaf.shape, processes.rank)
    if place.shape != leaf.shape:
        raise CheckpointError(f"{leaf.name}: its sharding is of shape {place.shape}, the array's is {leaf.shape}")
    return place


def _check_number(what: str, written: int, processes: CheckpointRanks) -> None:
    if written != processes.size:
        raise CheckpointError(
            f"{what}: saved with per_rank by {written} processes, each its own, and {processes.size} restore it; an "
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
    """CheckpointError unless what stands for an array in the tree `like` has its dtype and shape."""
    if not hasattr(wanted_leaf, "dtype") or not hasattr(wanted_leaf, "shape"):
        return
    if dtype_name(np.dtype(wanted_leaf.dtype)) != leaf.dtype or tuple(wanted_leaf.shape) not in (shape, local):
        raise CheckpointError(
            f"{leaf.name or 'the tree'} is {leaf.dtype} of shape {shape} in the checkpoint, "
            f"{wanted_leaf.dtype} of shape {tuple(wanted_leaf.shape)} here"
        )
