"""Sharded training state: keeps copies of blocks, and reshards the surviving blocks when ranks fail or join.

Each rank keeps the blocks of its last `_HISTORY` committed steps. With redundancy it also sends them to the next
rank, overlapped with the following step, and holds the previous rank's. If a rank fails and the next one survives, all
blocks of some step still exist; they are redistributed over the remaining ranks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI
from mpi4py.util import pkl5

from spmd.checkpoint import tree as trees
from spmd.checkpoint.blocks import Box, Place, places
from spmd.support.arrays import Array, Tree

#: `shardings(rank, ranks)` returns the tree of shardings that `spmd.checkpoint.save` takes.
Shardings = Callable[[int, int], Tree]

#: The rank that holds a block now, and the rank that owned it before the change.
Source = tuple[int, int]
#: The step of a set of blocks, the rank that owned them, and whether the holder is that rank (not a copy).
Label = tuple[int, int, bool]

_HISTORY = 3  # steps: a rank may be one step ahead of another, and a copy one step behind its original
_COPY = 4  # tag, on the communicator of all ranks


@dataclass(frozen=True)
class Snapshot:
    """Rank `rank`'s blocks of the state after `step` steps, numbered as the ranks were at that step.

    With `own` set it holds every leaf and the tree structure; a copy holds None for unsharded arrays, which every rank
    has.
    """

    step: int
    rank: int
    own: bool
    blocks: Sequence[Array | None]
    structure: Tree = None

    @property
    def label(self) -> tuple[int, int, bool]:
        return self.step, self.rank, self.own


@dataclass(frozen=True)
class _Sending:
    """Nonblocking transfers of copies: this rank's to the next rank, and the previous rank's to this one."""

    requests: list[MPI.Request]
    sent: list[Array]
    received: Snapshot


class Shards:
    """This rank's shard of the state, as `shardings` divides it; with `redundancy` the next rank holds a copy."""

    def __init__(self, state: object, shardings: Shardings, redundancy: bool) -> None:
        self._shardings, self._redundancy = shardings, redundancy
        self._initial = state
        self._structure, leaves = trees.flatten(state)
        self._names = [name for name, _ in leaves]
        self._shapes = [tuple(np.shape(leaf)) for _, leaf in leaves]
        self._dtypes = [np.asarray(leaf).dtype for _, leaf in leaves]
        self._own: deque[Snapshot] = deque(maxlen=_HISTORY)
        self._copies: deque[Snapshot] = deque(maxlen=_HISTORY)
        self._sending: _Sending | None = None
        self._ranks = 0
        self._prepared: tuple[int, Snapshot, Snapshot | None] | None = None

    @property
    def like(self) -> Tree:
        """A tree with the state's structure, for `spmd.checkpoint.restore`; its leaves are placeholder objects."""
        return trees.unflatten_like(self._structure, self._initial, lambda index, leaf: object())

    @property
    def is_empty(self) -> bool:
        """Whether no state has been committed or received yet."""
        return not self._own

    def prepare(self, comm: MPI.Intracomm, step: int, state: Tree) -> None:
        """Stage this rank's shard of the state after `step` steps, and its copies; `settle` makes them current.
        Collective.
        """
        own = self._snapshot(comm, step, state)
        sending = self._sent(comm, own)
        self._prepared = comm.size, own, None if sending is None else _arrived(sending)

    def settle(self) -> None:
        """Replace the blocks by those of the last `prepare`. Called once all ranks have agreed on the change."""
        assert self._prepared is not None
        self._ranks, own, copy = self._prepared
        self._own.clear()
        self._copies.clear()
        self._sending = None
        self._own.append(own)
        if copy is not None:
            self._copies.append(copy)

    def keep(self, comm: MPI.Intracomm, step: int, state: object) -> None:
        """Store the state that this rank committed, and make its arrays read-only.

        On return the copy of the previous step has arrived, and the transfer of this step's has started.
        """
        own = self._snapshot(comm, step, state)
        self._own.append(own)
        sending, self._sending = self._sending, None
        if sending is not None:
            self._copies.append(_arrived(sending))
        self._sending = self._sent(comm, own)

    def hand_over(self, comm: MPI.Intracomm, new: bool) -> tuple[int, Tree] | None:
        """Return the newest step of which every block survives, and this rank's shard of the state after it.

        None if there is no such step. Collective over `comm`; ranks with `new` set hold no blocks.
        """
        held = [] if new else [*self._own, *self._copies]
        reported = comm.allgather(([part.label for part in held], 0 if new else self._ranks))
        labels = [parts for parts, _ in reported]
        before = max(ranks for _, ranks in reported)
        finished = [max(step for step, _, own in parts if own) for parts in labels if parts]
        steps = sorted({step for parts in labels for step, _, _ in parts if step <= min(finished)}, reverse=True)
        for step in steps:
            sources = self._sources(step, labels, before)
            if self._is_whole(sources):
                root = next(rank for rank, parts in enumerate(labels) if any(p[0] == step and p[2] for p in parts))
                mine = {part.rank: part for part in held if part.step == step}
                structure = comm.bcast(next((part.structure for part in mine.values() if part.own), None), root)
                return step, self._cut_anew(comm, structure, sources, mine)
        return None

    def shardings(self, comm: MPI.Intracomm) -> Tree:
        """Return this rank's shardings on `comm`, as `spmd.checkpoint.restore` takes them."""
        return self._shardings(comm.rank, comm.size)

    def _places(self, rank: int, ranks: int) -> list[Place]:
        return places(self._structure, self._shardings(rank, ranks), self._names, self._shapes, rank)

    def _snapshot(self, comm: MPI.Intracomm, step: int, state: object) -> Snapshot:
        structure, leaves = trees.flatten(state)
        arrays = [np.asarray(leaf) for _, leaf in leaves]
        for array in arrays:
            array.flags.writeable = False  # a nonblocking send reads it, and a recovery may return it
        cut = self._places(comm.rank, comm.size)
        blocks = [_block(array, place) for array, place in zip(arrays, cut, strict=True)]
        return Snapshot(step, comm.rank, True, blocks, structure)

    def _sent(self, comm: MPI.Intracomm, own: Snapshot) -> _Sending | None:
        """Start to send this rank's blocks to the next rank. Unsharded arrays are not sent: every rank has them."""
        if not self._redundancy or comm.size == 1:
            return None
        behind, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        received = [
            None if _is_whole_array(place) else np.empty(place.box.shape, dtype)
            for place, dtype in zip(self._places(before, comm.size), self._dtypes, strict=True)
        ]
        sent = [
            np.ascontiguousarray(block)
            for block, place in zip(own.blocks, self._places(comm.rank, comm.size), strict=True)
            if block is not None and not _is_whole_array(place)
        ]
        requests = [comm.Irecv(_bytes(block), before, _COPY) for block in received if block is not None]
        requests += [comm.Isend(_bytes(block), behind, _COPY) for block in sent]
        return _Sending(requests, sent, Snapshot(own.step, before, False, received))

    def _sources(self, step: int, labels: Sequence[list[Label]], before: int) -> dict[tuple[int, Box], Source]:
        """Map each leaf and block of `step` to the rank that holds it now and the rank that owned it then."""
        sources: dict[tuple[int, Box], Source] = {}
        for holder, parts in enumerate(labels):
            for rank, own in [(rank, own) for its_step, rank, own in parts if its_step == step]:
                for leaf, place in enumerate(self._places(rank, before)):
                    if place.box.size and (own or not _is_whole_array(place)):
                        sources.setdefault((leaf, place.box), (holder, rank))
        return sources

    def _is_whole(self, sources: dict[tuple[int, Box], Source]) -> bool:
        shapes = [place.shape for place in self._places(0, 1)]
        sizes = [0] * len(shapes)
        for leaf, box in sources:
            sizes[leaf] += box.size
        return sizes == [int(np.prod(shape)) for shape in shapes]

    def _cut_anew(
        self, comm: MPI.Intracomm, structure: object, sources: dict[tuple[int, Box], Source], held: dict[int, Snapshot]
    ) -> Tree:
        """Redistribute the blocks over the ranks of `comm` by one all-to-all; return this rank's shard."""
        outgoing: list[list[tuple[int, Box, Array]]] = [[] for _ in range(comm.size)]
        for target in range(comm.size):
            for leaf, place in enumerate(self._places(target, comm.size)):
                for box, common, rank in _needed(sources, leaf, place.box, comm.rank):
                    block = held[rank].blocks[leaf]
                    assert block is not None
                    outgoing[target].append((leaf, common, block[common.within(box)]))
        incoming = pkl5.Intracomm(comm).alltoall(outgoing)
        own = self._places(comm.rank, comm.size)
        arrays = [np.zeros(place.local, dtype) for place, dtype in zip(own, self._dtypes, strict=True)]
        for parts in incoming:
            for leaf, common, block in parts:
                arrays[leaf][common.within(own[leaf].box)] = block
        return trees.unflatten_like(structure, self._initial, lambda index, _: arrays[index])


def _needed(
    sources: dict[tuple[int, Box], Source], leaf: int, box_of_target: Box, holder: int
) -> Iterator[tuple[Box, Box, int]]:
    """Yield each block of `holder` that intersects `box_of_target`, the intersection, and the block's former owner."""
    for (its_leaf, box), (its_holder, rank) in sources.items():
        if its_leaf == leaf and its_holder == holder and box.meets(box_of_target):
            yield box, box.common(box_of_target), rank


def _arrived(sending: _Sending) -> Snapshot:
    MPI.Request.Waitall(sending.requests)
    return sending.received


def _is_whole_array(place: Place) -> bool:
    return place.box.shape == place.shape


def _block(array: Array, place: Place) -> Array:
    """Return the block without its trailing padding."""
    return array[tuple(slice(0, size) for size in place.box.shape)]


def _bytes(block: Array) -> Array:
    return block.reshape(-1).view(np.uint8)
