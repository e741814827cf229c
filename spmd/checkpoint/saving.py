"""Writing a checkpoint: each process its own blocks, the first of them the manifest."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, overload

import numpy as np

from spmd.checkpoint import tree as trees
from spmd.checkpoint.blocks import Box, Place, check_cover, check_local, places, writers
from spmd.checkpoint.manifest import ArrayEntry
from spmd.checkpoint.processes import CheckpointRanks
from spmd.checkpoint.safetensors import dtype_name
from spmd.checkpoint.writing import Pending, Writing, settle
from spmd.errors import CheckpointError
from spmd.support.arrays import Array, Tree

if TYPE_CHECKING:
    from mpi4py import MPI


class SaveOptions(TypedDict, total=False):
    """Keyword arguments of `save`, which says what they are."""

    keep: int | None
    communicator: MPI.Comm | None


@overload
def save(
    folder: str | os.PathLike[str], step: int, tree: object, shardings: object = None, *, wait: Literal[True] = True,
    **options: Unpack[SaveOptions],
) -> Path: ...  # fmt: skip


@overload
def save(
    folder: str | os.PathLike[str], step: int, tree: object, shardings: object = None, *, wait: Literal[False],
    **options: Unpack[SaveOptions],
) -> Pending: ...  # fmt: skip


def save(
    folder: str | os.PathLike[str],
    step: int,
    tree: object,
    shardings: object = None,
    *,
    keep: int | None = 2,
    wait: bool = True,
    communicator: MPI.Comm | None = None,
) -> Path | Pending:
    """Writes `tree` as the checkpoint of `step` into `folder` (made if absent), and returns its manifest's path.

    All processes call it, with trees of one structure. Leaves are arrays of any dtype of NumPy or ml_dtypes (JAX's
    too), or Python's scalars and strings. Without `shardings` every process has the same whole arrays, and each writes
    some of them. `shardings` is a tree like `tree`, or the upper part of one, that says how arrays are cut: a
    ShardedType (an Executable's `in_shardings`), a `ArrayBlock`, or None for a whole array.

    :param step: not negative. A checkpoint of the same step is replaced, by one rename.
    :param keep: how many of the newest whole checkpoints to leave, of which this one is always one; None leaves all.
    :param wait: False returns a `Pending` as soon as the arrays are copied; another save to the folder waits for it.
    :param communicator: the processes that write it; default all MPI ranks. `MPI.COMM_SELF` for this one alone.
    :raises CheckpointError: when the tree, a leaf or a sharding is not one that can be saved; on all processes.
    :raises OSError: when it cannot be written; what was there before is untouched.
    """
    place = Path(folder).absolute()
    processes = CheckpointRanks(communicator)
    state = processes.agree(lambda: _state(place, step, keep, tree, shardings, processes.rank))
    held = processes.all_gather((state.structure, state.leaves, [entry.box for entry in state.places]))
    mine = processes.agree(lambda: _share(held, state))[processes.rank]
    blocks = [(leaf, box, _block(state.arrays[leaf], box, copy=not wait)) for leaf, box in mine.items()]
    writing = Writing.begin(processes, place, step, keep, state.structure, state.leaves, blocks)
    return writing.together() if wait else writing.apart()


@dataclass(frozen=True)
class _OwnState:
    """What one process brings: the structure, and for each array its leaf, its place and its elements here."""

    structure: Tree
    leaves: tuple[ArrayEntry, ...]
    places: list[Place]
    arrays: list[Array]


def _state(place: Path, step: int, keep: int | None, tree: object, shardings: object, rank: int) -> _OwnState:
    if isinstance(step, bool) or not isinstance(step, int | np.integer) or step < 0:
        raise CheckpointError(f"a step is an integer from 0 on, not {step!r}")
    if keep is not None and keep < 1:
        raise CheckpointError(f"keep is at least 1, or None to leave all checkpoints, not {keep!r}")
    settle(place)
    structure, leaves = trees.flatten(tree)
    arrays = [_array(name, leaf) for name, leaf in leaves]
    names = [name for name, _ in leaves]
    placed = places(structure, shardings, names, [array.shape for array in arrays], rank)
    described = []
    for name, array, entry in zip(names, arrays, placed, strict=True):
        check_local(name, array, entry)
        described.append(ArrayEntry(name, dtype_name(array.dtype), entry.shape))
    return _OwnState(structure, tuple(described), placed, arrays)


def _array(name: str, leaf: object) -> Array:
    shown = name or "the tree"
    if isinstance(leaf, np.ma.MaskedArray):
        raise CheckpointError(f"{shown} is a masked array: its mask would be lost")
    if not hasattr(leaf, "dtype"):
        raise CheckpointError(f"{shown} is of type {type(leaf).__name__}, which is neither an array nor part of a tree")
    try:
        array = np.asarray(leaf)
        dtype_name(array.dtype)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{shown} cannot be kept in a checkpoint: it {error}") from error
    return array


def _share(held: list[tuple[Tree, tuple[ArrayEntry, ...], list[Box]]], state: _OwnState) -> list[dict[int, Box]]:
    """The blocks that each process writes; CheckpointError when their trees differ or leave something out."""
    for rank, (structure, leaves, _) in enumerate(held):
        if structure != state.structure or leaves != state.leaves:
            raise CheckpointError(f"the tree of process {rank} has another structure, dtype or shape than this one's")
    boxes = [process[2] for process in held]
    check_cover([leaf.name for leaf in state.leaves], [leaf.shape for leaf in state.leaves], boxes)
    return writers(boxes, [array.dtype.itemsize for array in state.arrays])


def _block(array: Array, box: Box, *, copy: bool) -> Array:
    """The elements of a block, without the padding behind it."""
    block = array[tuple(slice(0, size) for size in box.shape)] if array.shape != box.shape else array
    return np.array(block) if copy else block
