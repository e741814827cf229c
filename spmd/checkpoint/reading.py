"""Reading a checkpoint: any number of processes, each what it needs."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from spmd.checkpoint import manifest as manifests
from spmd.checkpoint import store
from spmd.checkpoint import tree as trees
from spmd.checkpoint.blocks import Place, places
from spmd.checkpoint.manifest import ArrayEntry, Manifest
from spmd.checkpoint.processes import CheckpointRanks
from spmd.checkpoint.safetensors import PartFile, dtype_name, dtype_of
from spmd.checkpoint.writing import settle
from spmd.errors import CheckpointError, DamagedCheckpointError
from spmd.support.arrays import Array, DType, Tree

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")


def newest(folder: str | os.PathLike[str], *, communicator: MPI.Comm | None = None) -> int | None:
    """The step of the newest checkpoint that is whole, every byte of it; None if there is none, or no such folder.

    All processes call it, and each verifies some of the files. A damaged checkpoint is passed over with a warning that
    names what is damaged.
    """
    place = Path(folder).absolute()
    processes = CheckpointRanks(communicator)
    settle(place)
    for step in _steps(place, processes):
        if _unless_damaged(processes, partial(_verify, place, step, processes)):
            return step
    return None


def verify(folder: str | os.PathLike[str], step: int, *, communicator: MPI.Comm | None = None) -> None:
    """Reads all of a checkpoint; CheckpointError names the file, and the array, that is not as it was written."""
    processes = CheckpointRanks(communicator)
    processes.agree(lambda: _verify(Path(folder).absolute(), step, processes))


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

    :param step: which; None is the newest whose bytes are whole, others are passed over with a warning.
    :param like: a tree of the same structure, whose classes and static fields the result has, and whose array leaves
        (arrays, or anything with shape and dtype) are checked against the checkpoint's. Without it named tuples come
        back as new classes of the same name and fields, dataclasses as SimpleNamespaces.
    :raises CheckpointError: when there is no such checkpoint, it is damaged, or `like` or a sharding does not fit it.
    """
    place = Path(folder).absolute()
    processes = CheckpointRanks(communicator)
    settle(place)
    if step is not None:
        loaded: _Loaded | None = processes.agree(partial(_read, place, step, shardings, processes.rank))
    else:
        reads = (partial(_read, place, candidate, shardings, processes.rank) for candidate in _steps(place, processes))
        loaded = next((loaded for read in reads if (loaded := _unless_damaged(processes, read))), None)
    if loaded is None:
        raise CheckpointError(f"{place}: there is no whole checkpoint")
    return processes.agree(partial(_tree, loaded, like))


def _steps(folder: Path, processes: CheckpointRanks) -> list[int]:
    """Steps of which there is a manifest, newest first: as process 0 sees the folder."""
    steps = processes.all_gather(processes.on_first(lambda: store.steps(folder)))[0]
    assert steps is not None
    return steps


def _verify(folder: Path, step: int, processes: CheckpointRanks) -> bool:
    manifest = manifests.read(store.manifest_path(folder, step))
    store.verify(folder, manifest, range(processes.rank, len(manifest.parts), processes.size))
    return True


def _unless_damaged(processes: CheckpointRanks, act: Callable[[], T]) -> T | None:
    """What `act` returns; None, and a warning, when it finds the checkpoint damaged on any process."""

    def attempt() -> tuple[T | None, str]:
        try:
            return act(), ""
        except DamagedCheckpointError as error:
            return None, str(error)

    result, damage = processes.agree(attempt)
    told = [message for message in processes.all_gather(damage) if message]
    if not told:
        return result
    if processes.rank == 0:
        warnings.warn(f"passed over: {told[0]}", RuntimeWarning, stacklevel=4)
    return None


@dataclass(frozen=True)
class _Loaded:
    """What one process has read of a checkpoint."""

    manifest: Manifest
    places: list[Place]
    arrays: list[Array]


def _read(folder: Path, step: int, shardings: object, rank: int) -> _Loaded:
    manifest = manifests.read(store.manifest_path(folder, step))
    shapes = [leaf.shape for leaf in manifest.leaves]
    own_places = places(manifest.tree, shardings, manifest.names, shapes, rank)
    for leaf, place in zip(manifest.leaves, own_places, strict=True):
        if place.shape != leaf.shape:
            raise CheckpointError(f"{leaf.name}: its sharding is of shape {place.shape}, the array's is {leaf.shape}")
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
    return _Loaded(manifest, own_places, arrays)


def _room(place: Place, dtype: DType) -> Array:
    return np.empty(place.local, dtype) if place.local == place.box.shape else np.zeros(place.local, dtype)


def _tree(loaded: _Loaded, like: Tree) -> Tree:
    if like is None:
        return trees.unflatten(loaded.manifest.tree, loaded.arrays)

    def take(index: int, wanted_leaf: object) -> Array:
        _check_like(loaded.manifest.leaves[index], loaded.places[index], wanted_leaf)
        return loaded.arrays[index]

    return trees.unflatten_like(loaded.manifest.tree, like, take)


def _check_like(leaf: ArrayEntry, place: Place, wanted_leaf: object) -> None:
    """CheckpointError unless what stands for an array in the tree `like` has its dtype and shape."""
    if not hasattr(wanted_leaf, "dtype") or not hasattr(wanted_leaf, "shape"):
        return
    if dtype_name(np.dtype(wanted_leaf.dtype)) != leaf.dtype or tuple(wanted_leaf.shape) not in (
        leaf.shape,
        place.local,
    ):
        raise CheckpointError(
            f"{leaf.name or 'the tree'} is {leaf.dtype} of shape {leaf.shape} in the checkpoint, "
            f"{wanted_leaf.dtype} of shape {tuple(wanted_leaf.shape)} here"
        )
