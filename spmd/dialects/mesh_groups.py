"""Process groups along mesh axes, which JAX writes instead of lists of processes since version 0.11.

Source: StableHLO specification, "Collective ops" (replica groups, meshes).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from collectives.errors import GroupError
from spmd.dialects.sdy_attributes import Mesh as SdyMesh
from spmd.dialects.structs import AxisRefAttr, MeshAttr, MeshAxisAttr, ReplicaGroupMeshAxesAttr
from spmd.errors import CollectiveError, Diagnostic
from spmd.ir import Module, Op
from spmd.ir.attributes import DenseAttr, SymbolRefAttr
from spmd.support.arrays import Array
from spmd.types import I64, TensorType


def given_groups(op: Op, module: Module) -> Array:
    """Return the groups of `op` as rows of int64, padded with -1; those along mesh axes are computed.

    Raises GroupError for a mesh that `module` lacks, or axes that the mesh lacks.
    """
    groups = op["replica_groups"]
    return _mesh_groups(groups, module) if isinstance(groups, ReplicaGroupMeshAxesAttr) else groups


def inline_meshes(ops: Iterable[Op], module: Module) -> None:
    """Replace symbols of meshes of `module` in `replica_groups` by the meshes, in `ops` and their regions.

    Such groups are valid without the symbol. Raises CollectiveError for a mesh that `module` lacks.
    """
    for op in (inner for outer in ops for inner in outer.walk()):
        groups = op.attributes.get("replica_groups")
        if isinstance(groups, ReplicaGroupMeshAxesAttr) and isinstance(groups.mesh, SymbolRefAttr):
            try:
                axes, ids = _mesh(groups, module)
            except GroupError as error:
                raise CollectiveError(Diagnostic(op.location, f"replica_groups: {error}", op.name)) from None
            in_order = np.array_equal(ids, np.arange(ids.size))
            listed = None if in_order else DenseAttr(np.asarray(ids, np.int64), TensorType((ids.size,), I64))
            mesh = MeshAttr(tuple(MeshAxisAttr(name, size) for name, size in axes), listed)
            op.attributes = {**op.attributes, "replica_groups": ReplicaGroupMeshAxesAttr(mesh, groups.axes)}


def _mesh_groups(groups: ReplicaGroupMeshAxesAttr, module: Module) -> Array:
    """Return rows of device ids that differ along the given axes only, in their order, the last axis being minor."""
    axes, devices = _mesh(groups, module)
    axis_refs = [axis for axis in groups.axes.elements if isinstance(axis, AxisRefAttr)]
    parts = [part for name, size in axes for part in _parts(name, size, axis_refs)]
    shape = [size for _, _, size in parts]
    moved = []
    for axis in axis_refs:
        pre, size = (axis.sub_axis_info.pre_size, axis.sub_axis_info.size) if axis.sub_axis_info else (1, None)
        if axis.name not in dict(axes):
            raise GroupError(f"the mesh has no axis {axis.name!r}")
        size = dict(axes)[axis.name] if size is None else size
        moved += [i for i, (name, before, _) in enumerate(parts) if name == axis.name and pre <= before < pre * size]
    kept = [i for i in range(len(parts)) if i not in moved]
    count = prod(shape[i] for i in moved)
    return devices.reshape(shape).transpose([*kept, *moved]).reshape(-1, count)


def _parts(name: str, size: int, axis_refs: list[AxisRefAttr]) -> list[tuple[str, int, int]]:
    """Return axis `name` split at all boundaries of sub-axes: (name, size of the more major part, size)."""
    cuts = {1, size}
    for axis in axis_refs:
        if axis.name == name and axis.sub_axis_info is not None:
            pre = axis.sub_axis_info.pre_size
            cuts |= {pre, pre * axis.sub_axis_info.size}
    ends = sorted(cuts)
    if any(after % before for before, after in pairwise(ends)):
        raise GroupError(f"the sub-axes of {name!r} must divide its size {size}")
    return [(name, before, after // before) for before, after in pairwise(ends)]


def _mesh(groups: ReplicaGroupMeshAxesAttr, module: Module) -> tuple[list[tuple[str, int]], Array]:
    """Return the mesh's axes as (name, size), and its device ids."""
    mesh: Any = groups.mesh
    if isinstance(mesh, SymbolRefAttr):
        mesh_op = module.symbols.get(mesh.root)
        if mesh_op is None or not isinstance(mesh_op.attributes.get("mesh"), (MeshAttr, SdyMesh)):
            raise GroupError(f"there is no mesh @{mesh.root}")
        mesh = mesh_op.attributes["mesh"]
    axes = [(axis.name, axis.size) for axis in getattr(mesh.axes, "elements", mesh.axes)]
    ids = mesh.device_ids
    count = prod(size for _, size in axes)
    device_ids = np.ravel(() if ids is None else getattr(ids, "array", ids))
    return axes, device_ids if device_ids.size else np.arange(count)
