"""Writing of checkpoints: each process writes its blocks, process 0 the manifest."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, overload

import numpy as np

from collectives.record.recorder import RECORDER
from spmd.checkpoint import per_rank as own_leaves
from spmd.checkpoint import tree as trees
from spmd.checkpoint.blocks import (
    Box,
    Place,
    Placement,
    check_cover,
    check_local,
    own_place,
    place_of,
    placements,
    writers,
)
from spmd.checkpoint.manifest import ArrayEntry, Scalars
from spmd.checkpoint.per_rank import PerRank
from spmd.checkpoint.processes import CheckpointRanks
from spmd.checkpoint.safetensors import dtype_name
from spmd.checkpoint.writing import Pending, Writing, settle
from spmd.errors import CheckpointError
from spmd.support.arrays import Array, Tree

if TYPE_CHECKING:
    from mpi4py import MPI


class SaveOptions(TypedDict, total=False):
    """Keyword arguments of `save`."""

    keep: int | None
    per_rank: PerRank
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
    per_rank: PerRank = False,
    communicator: MPI.Comm | None = None,
) -> Path | Pending:
    """Write `tree` as the checkpoint of `step` into `folder` (created if absent), and return its manifest's path.

    Collective, with trees of equal structure. Leaves are arrays of any dtype of NumPy or ml_dtypes (JAX's as well), or
    Python's scalars and strings. Without `shardings` every process has the same whole arrays, and each writes some of
    them. `shardings` is a tree like `tree`, or a prefix of it, with a ShardedType (an Executable's `in_shardings`), an
    `ArrayBlock`, or None for a whole array. Blocks that several processes hold are compared by checksum.

    :param step: non-negative. A checkpoint of the same step is replaced atomically.
    :param keep: number of newest undamaged checkpoints to keep, including this one; None keeps all.
    :param wait: False returns a `Pending` as soon as the arrays are copied; another save to the folder waits for it.
    :param per_rank: leaves that have their own value on each process, which `restore` returns to it: True for all,
        their names or those of nodes above them (``"/stats/mean"``, ``["stats", "seed"]``), or a tree like `tree`, or a
        prefix of it, with True and False.
    :param communicator: the processes that write it; by default all MPI ranks. `MPI.COMM_SELF` for this one only.
    :raises CheckpointError: on all processes, if the tree, a leaf or a sharding cannot be saved, or processes that must
        have equal values differ (with the leaf and the processes).
    :raises OutputError: an OSError, if it cannot be written; CheckpointError, with its message, on the processes that
        could write. Earlier checkpoints are unaffected.
    """
    place = Path(folder).absolute()
    with RECORDER.note("checkpoint", f"save of step {step}"):
        how = "" if wait else ", wait=False"
        processes = CheckpointRanks(communicator, f"checkpoint.save of step {step} to {os.path.realpath(place)}{how}")
        state = processes.agree(lambda: _state(place, step, keep, wait, tree, shardings, per_rank, processes))
        held = processes.all_gather(
            (state.structure, state.leaves, [entry.box for entry in state.places], state.scalars)
        )
        mine = processes.agree(lambda: _share(held, state))[processes.rank]
        _check_shared(processes, [boxes for _, _, boxes, _ in held], state)
        blocks = [(leaf, box, _block(state.arrays[leaf], box, copy=not wait)) for leaf, box in mine.items()]
        scalars = tuple(its for *_, its in held) if state.scalars else ()
        writing = Writing.begin(processes, place, step, keep, state.structure, state.leaves, scalars, blocks)
        return writing.together() if wait else writing.apart()


@dataclass(frozen=True)
class _OwnState:
    """One process's contribution: structure, leaves, placements and local arrays by leaf, per-rank scalars."""

    structure: Tree
    leaves: tuple[ArrayEntry, ...]
    places: list[Place]
    arrays: list[Array]
    scalars: Scalars


#: What processes exchange: structure, leaves, blocks by leaf, per-rank scalars.
_Held = tuple[Tree, tuple[ArrayEntry, ...], list[Box], Scalars]


def _state(
    place: Path,
    step: int,
    keep: int | None,
    wait: bool,
    tree: object,
    shardings: object,
    per_rank: PerRank,
    processes: CheckpointRanks,
) -> _OwnState:
    if isinstance(step, bool) or not isinstance(step, int | np.integer) or not 0 <= step < 1 << 63:
        raise CheckpointError(f"step must be a non-negative integer of at most 63 bits, got {str(step)[:80]}")
    if keep is not None and (isinstance(keep, bool) or not isinstance(keep, int | np.integer) or keep < 1):
        raise CheckpointError(f"keep must be at least 1, or None to keep all checkpoints, got {keep!r}")
    if not isinstance(wait, bool):
        raise CheckpointError(f"wait must be True or False, got {wait!r}")
    settle(place)
    structure, leaves = trees.flatten(tree)
    own = own_leaves.select(structure, per_rank)
    structure, scalars = own_leaves.take_scalars(structure, own)
    arrays, placed, described = [], [], []
    for (name, leaf), placement in zip(leaves, placements(structure, shardings), strict=True):
        array = _array(name, leaf)
        if name in own:
            array = _own(name, placement, array, processes)
            entry = own_place(array.shape[1:], processes.rank, processes.size)
        else:
            entry = place_of(name, placement, array.shape, processes.rank)
            check_local(name, array, entry)
        arrays.append(array)
        placed.append(entry)
        described.append(ArrayEntry(name, dtype_name(array.dtype), entry.shape, name in own))
    return _OwnState(structure, tuple(described), placed, arrays, tuple(scalars))


def _own(name: str, placement: Placement, array: Array, processes: CheckpointRanks) -> Array:
    """Return a per-rank array as a row of the array of all processes."""
    entry = place_of(name, placement, array.shape, processes.rank)
    if entry.box.shape != entry.shape:
        raise CheckpointError(f"{name} is selected by per_rank, but its sharding divides one array among processes")
    check_local(name, array, entry)
    return array[np.newaxis]


def _array(name: str, leaf: object) -> Array:
    shown = name or "the tree"
    if isinstance(leaf, np.ma.MaskedArray):
        raise CheckpointError(f"{shown} is a masked array: its mask would be lost")
    if not hasattr(leaf, "dtype"):
        raise CheckpointError(f"{shown} is of type {type(leaf).__name__}, which is neither an array nor a tree")
    try:
        array = np.asarray(leaf)
        dtype_name(array.dtype)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{shown} cannot be saved in a checkpoint: it {error}") from error
    return array


def _share(held: list[_Held], state: _OwnState) -> list[dict[int, Box]]:
    """Return the blocks that each process writes; CheckpointError if the trees differ or blocks do not cover arrays."""
    for rank, (structure, leaves, _, _) in enumerate(held):
        if structure != state.structure or leaves != state.leaves:
            differing = own_leaves.first_difference(state.structure, structure) or next(
                (mine.name for mine, its in zip(state.leaves, leaves, strict=False) if mine != its), ""
            )
            raise CheckpointError(
                f"the tree of process {rank} has another structure, scalar, dtype or shape than this one's"
                f"{f', first at {differing}' if differing else ''}; per_rank= names leaves that may have other values"
            )
    boxes = [process[2] for process in held]
    check_cover([leaf.name for leaf in state.leaves], [leaf.shape for leaf in state.leaves], boxes)
    return writers(boxes, [array.dtype.itemsize for array in state.arrays])


def _check_shared(processes: CheckpointRanks, held: list[list[Box]], state: _OwnState) -> None:
    """Raise CheckpointError on all processes if processes hold different values of one block. Collective."""
    if processes.size == 1:
        return

    def block(leaf: int) -> Array:
        return _block(state.arrays[leaf], held[processes.rank][leaf], copy=False)

    sums = processes.all_gather(own_leaves.checksums_of_shared(held, processes.rank, block))
    own_leaves.check_shared([leaf.name for leaf in state.leaves], held, sums)


def _block(array: Array, box: Box, *, copy: bool) -> Array:
    """Return the elements of a block without its padding."""
    block = array[tuple(slice(0, size) for size in box.shape)] if array.shape != box.shape else array
    return np.array(block) if copy else block
