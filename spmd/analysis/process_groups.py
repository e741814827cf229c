"""The process groups of collective ops, computed at compile time from their attributes and the grid.

Source: StableHLO specification, "Collective ops" (strategies, replica groups, meshes).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from collectives.errors import GroupError
from collectives.grid import Groups, ProcessGrid, cross_replica, permute_pairs
from collectives.operations import strategy
from spmd.dialects.mesh_groups import given_groups
from spmd.errors import CollectiveError, Diagnostic
from spmd.ir import Module, Op

#: Labels of the constraints that depend on the grid: on the ids, and on the channel that global ids need.
_OF_GRID = {
    "stablehlo.all_gather": ("C3", "C5"),
    "stablehlo.all_reduce": ("C2", "C4"),
    "stablehlo.all_to_all": ("C6", ""),
    "stablehlo.collective_broadcast": ("C2", ""),
    "stablehlo.collective_permute": ("C4", ""),
    "stablehlo.collective_reduce": ("C2", ""),
    "stablehlo.recv": ("C4", ""),
    "stablehlo.reduce_scatter": ("C4", "C6"),
    "stablehlo.send": ("C4", ""),
}


def label_of_ids(op: Op) -> str:
    """Return the label of the constraint on the ids in the groups or pairs of `op`; empty if there is none."""
    return _OF_GRID.get(op.name, ("", ""))[0]


def process_groups(op: Op, grid: ProcessGrid, module: Module) -> Groups:
    """Return the groups of ranks of `op`. Raises CollectiveError for ids outside the grid, or duplicate ones."""
    family = op.name.removeprefix("stablehlo.")
    try:
        ids = np.asarray(given_groups(op, module), np.int64)
        global_ids = bool(op.attributes.get("use_global_device_ids", False))
        return _grouped(family, channel_id(op) > 0, global_ids, grid, ids.shape, ids.tobytes())
    except GroupError as error:
        text = f"replica_groups, on a {grid} process grid: {error}"
        lacks_channel = op.attributes.get("use_global_device_ids") and channel_id(op) <= 0
        label = _OF_GRID.get(op.name, ("", ""))[1] if lacks_channel else label_of_ids(op)
        raise CollectiveError(Diagnostic(op.location, text, op.name, label)) from None


def process_pairs(op: Op, grid: ProcessGrid) -> tuple[tuple[int, int], ...]:
    """Return the (source, target) ranks of `op`. Raises CollectiveError for ids outside the grid, or duplicate ones."""
    try:
        pairs = np.asarray(op["source_target_pairs"], np.int64)
        return _paired(grid, pairs.tobytes(), channel_id(op) > 0)
    except GroupError as error:
        text = f"on a {grid} process grid: {error}"
        raise CollectiveError(Diagnostic(op.location, text, op.name, label_of_ids(op))) from None


def transfer_ends(op: Op, grid: ProcessGrid) -> dict[int, int] | None:
    """Return, for a send, the target of each sending rank; for a recv, the source of each receiving rank.

    None if the op has no `source_target_pairs`: its channel determines the peer. Ids are partitions if the grid has
    several, else replicas. Raises CollectiveError for ids outside the grid, or duplicate ones.
    """
    pairs = op.attributes.get("source_target_pairs")
    if pairs is None or not pairs.size:
        return None
    try:
        ranks = permute_pairs(grid, pairs, 1 if grid.num_partitions > 1 else 0)
    except GroupError as error:
        text = f"on a {grid} process grid: {error}"
        raise CollectiveError(Diagnostic(op.location, text, op.name, label_of_ids(op))) from None
    return dict(ranks) if op.name == "stablehlo.send" else {target: source for source, target in ranks}


@lru_cache(maxsize=64)
def _grouped(
    family: str, crosses: bool, global_ids: bool, grid: ProcessGrid, shape: tuple[int, ...], data: bytes
) -> Groups:
    """Return the groups for rows of ids; cached, since most ops of a program share theirs."""
    ids = np.frombuffer(data, np.int64).reshape(shape)
    chosen = cross_replica if family == "cross-replica-sum" else strategy(family, int(crosses), global_ids)
    return chosen(grid, ids)


@lru_cache(maxsize=64)
def _paired(grid: ProcessGrid, data: bytes, crosses: bool) -> tuple[tuple[int, int], ...]:
    return permute_pairs(grid, np.frombuffer(data, np.int64).reshape(-1, 2), int(crosses))


def channel_id(op: Op) -> int:
    """Return the op's channel id; 0 if it has none."""
    handle = op.attributes.get("channel_handle")
    return 0 if handle is None else int(handle.handle)
