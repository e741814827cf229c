"""Per-rank leaves, and the check that all other leaves are equal on every process.

An array leaf of `per_rank=` is stored as one array with a leading dimension of processes, one row each. A Python scalar
is part of the tree's structure: there ``{"per_rank": index}`` replaces it, and the manifest lists each process's
values.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from spmd.checkpoint.blocks import Box
from spmd.checkpoint.checksum import checksum
from spmd.checkpoint.safetensors import to_bytes
from spmd.checkpoint.tree import Json, node_of, pointer, read_key
from spmd.errors import CheckpointError
from spmd.support.arrays import Array

#: The `per_rank` argument of `save`: all leaves or none, names, or a tree of bools.
PerRank = Any
_AFTER_SLASH = chr(ord("/") + 1)
_SHOWN = 8  # maximum number of ranks with one value that an error lists


def select(structure: Json, per_rank: PerRank) -> frozenset[str]:
    """Return the names of the leaves of `structure` (arrays and scalars) that `per_rank` selects.

    :param per_rank: True or False for all leaves; the name of a leaf, or of a node for all leaves below it, as a JSON
        Pointer (``/stats/mean``; the first slash may be omitted), or a collection of such names; or a tree like the
        saved one, or a prefix of it, with True and False.
    :raises CheckpointError: for a name that is not in the tree, or another kind of argument.
    """
    leaves = [name for name, _ in _leaves(structure, "")]
    if isinstance(per_rank, bool) or per_rank is None:
        return frozenset(leaves if per_rank else ())
    if isinstance(per_rank, str):
        per_rank = [per_rank]
    if isinstance(per_rank, Collection) and not isinstance(per_rank, Mapping):
        names = list(per_rank)
        if names and all(isinstance(name, str) for name in names):
            in_order = sorted(leaves)
            found = {name: _named(in_order, name) for name in names}
            for name in (name for name, below in found.items() if not below):
                has = ", ".join(leaves[:_SHOWN]) or "no leaf"
                raise CheckpointError(f"per_rank names {name!r}, and the tree has {has}")
            return frozenset(leaf for below in found.values() for leaf in below)
    return frozenset(_marked(structure, per_rank, ""))


def _named(leaves: Sequence[str], name: str) -> Sequence[str]:
    """Return those of the sorted `leaves` that are called `name`, or are below the node of that name."""
    path = name if name.startswith("/") or not name else f"/{name}"
    below, behind = bisect_left(leaves, f"{path}/"), bisect_left(leaves, f"{path}{_AFTER_SLASH}")
    return [*leaves[bisect_left(leaves, path) : bisect_right(leaves, path)], *leaves[below:behind]]


def _marked(structure: Json, marks: object, path: str) -> Iterator[str]:
    if isinstance(marks, bool) or marks is None:
        yield from (name for name, _ in _leaves(structure, path) if marks)
        return
    node = node_of(marks)
    children = {} if structure is None else {read_key(key): child for key, child in structure.get("entries", ())}
    if node is None or not {key for key, _ in node.entries} <= set(children):
        raise CheckpointError(
            "per_rank must be True, False, names of leaves, or a tree of True and False like the saved one, "
            f"got {marks!r}"
            f"{f' for {path}' if path else ''}"
        )
    for key, mark in node.entries:
        yield from _marked(children[key], mark, pointer(path, key))


def _leaves(structure: Json, path: str) -> Iterator[tuple[str, Json]]:
    """Yield the arrays and scalars of a structure with their names."""
    if structure is None:
        return
    if "kind" not in structure:
        yield path, structure
        return
    for key, child in structure["entries"]:
        yield from _leaves(child, pointer(path, read_key(key)))


# --- scalars -----------------------------------------------------------------------------------------------------


def take_scalars(structure: Json, selected: Collection[str]) -> tuple[Json, list[Json]]:
    """Return the structure with the `selected` scalars replaced by indices, and the scalars by index."""
    taken: list[Json] = []

    def take(path: str, leaf: Json) -> Json:
        if "array" in leaf or path not in selected:
            return leaf
        taken.append(leaf)
        return {"per_rank": len(taken) - 1}

    return _map_leaves(structure, take, ""), taken


def put_scalars(structure: Json, scalars: Sequence[Json]) -> Json:
    """Return the structure with one process's `scalars` put back."""
    return _map_leaves(structure, lambda path, leaf: scalars[leaf["per_rank"]] if "per_rank" in leaf else leaf, "")


def _map_leaves(structure: Json, change: Callable[[str, Json], Json], path: str) -> Json:
    if structure is None:
        return None
    if "kind" not in structure:
        return change(path, structure)
    entries = [[key, _map_leaves(child, change, pointer(path, read_key(key)))] for key, child in structure["entries"]]
    return {**structure, "entries": entries}


# --- shared leaves ------------------------------------------------------------------------------------------------


def first_difference(own: Json, other: Json, path: str = "") -> str:
    """Return the name of the first node or leaf at which two structures differ; "" for the whole tree."""
    if own is None or other is None or "kind" not in own or "kind" not in other:
        return path
    children, others = own["entries"], other["entries"]
    if own["kind"] != other["kind"] or [key for key, _ in children] != [key for key, _ in others]:
        return path
    for (key, child), (_, its) in zip(children, others, strict=True):
        if child != its:
            return first_difference(child, its, pointer(path, read_key(key)))
    return path


def checksums_of_shared(
    held: Sequence[Sequence[Box]], rank: int, blocks: Callable[[int], Array]
) -> list[tuple[int, int]]:
    """Return (leaf, checksum) of each leaf whose block on process `rank` other processes hold as well.

    `held` has the blocks of each process by leaf; `blocks(leaf)` returns this process's block without padding.
    """
    shared = [
        leaf
        for leaf, box in enumerate(held[rank])
        if box.size and any(boxes[leaf] == box for other, boxes in enumerate(held) if other != rank)
    ]
    return [(leaf, checksum(to_bytes(blocks(leaf)))) for leaf in shared]


def check_shared(
    names: Sequence[str], held: Sequence[Sequence[Box]], sums: Sequence[Sequence[tuple[int, int]]]
) -> None:
    """Raise CheckpointError, with the leaf and the processes, if processes hold different values of one block.

    `sums` has the result of `checksums_of_shared` on each process.
    """
    holders: dict[tuple[int, Box], dict[int, list[int]]] = {}
    for rank, of_leaves in enumerate(sums):
        for leaf, value in of_leaves:
            holders.setdefault((leaf, held[rank][leaf]), {}).setdefault(value, []).append(rank)
    differing = {leaf: values for (leaf, _), values in sorted(holders.items(), key=_leaf_first) if len(values) > 1}
    if not differing:
        return
    leaf, values = next(iter(differing.items()))
    who = "; ".join(_processes(ranks) for ranks in list(values.values())[:_SHOWN])
    name = names[leaf] or "the tree"
    raise CheckpointError(
        f"{name} must be equal on all processes that hold it, but has different values on {who}"
        f"{f' ({len(differing) - 1} more leaves differ, too)' if len(differing) > 1 else ''}. "
        f"Make it equal, or save each process's own value with per_rank={[names[leaf]] if names[leaf] else True}"
    )


def _leaf_first(entry: tuple[tuple[int, Box], object]) -> tuple[int, tuple[int, ...]]:
    (leaf, box), _ = entry
    return leaf, box.start


def _processes(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:_SHOWN])) + (", ..." if len(ranks) > _SHOWN else "")
    return f"process{'es' * (len(ranks) > 1)} {shown}"
