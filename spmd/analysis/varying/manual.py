"""Checks manual computations of a global program (lowered from `shard_map`), mesh devices being the processes.

Operands differ along the manual axes that shard them. A result that is replicated along an axis must be equal there.
Source: Shardy's dialect documentation, ManualComputationOp.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collectives.grid import ProcessGrid
from spmd.analysis.varying.analysis import Analysis
from spmd.analysis.varying.facts import Fact
from spmd.analysis.varying.partitions import Labels, numbered
from spmd.analysis.varying.reasons import reasons
from spmd.analysis.varying.results import is_certain, missing_reduction
from spmd.dialects.sdy_attributes import Mesh
from spmd.ir import Module, Op
from spmd.support.arrays import Array

NAME = "sdy.manual_computation"


def manual_computations(ops: Sequence[Op]) -> list[tuple[Op, Mesh]]:
    """Return the manual computations among `ops`, each with its mesh."""
    meshes = {str(op["sym_name"]): op["mesh"] for op in ops if op.name == "sdy.mesh"}
    found = []
    for op in ops:
        if op.name == NAME:
            mesh = _mesh_of(op, meshes)
            if mesh is not None and mesh.axes:
                found.append((op, mesh))
    return found


def analyse(module: Module, op: Op, mesh: Mesh) -> Analysis:
    """Return the analysis of the body of `op` on the devices of `mesh`."""
    analysis = Analysis(module, ProcessGrid(1, mesh.size))
    coordinates = _coordinates(mesh)
    names = [axis.name for axis in mesh.axes]
    block = op.regions[0].block
    for argument, sharding in zip(block.arguments, op["in_shardings"].shardings, strict=True):
        partition = analysis.partitions.of_rows(coordinates[:, _axes(sharding, names)] if names else coordinates)
        analysis.set(argument, Fact(partition, analysis.partitions.uniform))
    analysis.block(block)
    manual = list(op["manual_axes"].axes)
    for index, (value, sharding) in enumerate(
        zip(block.terminator.operands, op["out_shardings"].shardings, strict=True)
    ):
        fact = analysis.fact(value)
        sharded = set(_axes(sharding, names))
        for axis in manual:
            at = names.index(axis)
            if at in sharded or _is_same_along(fact.may.labels, coordinates, at):
                continue
            text = f'result {index} is replicated along "{axis}" by its out_sharding, but differs there'
            text += missing_reduction(analysis, value)
            certain = is_certain(analysis, value)
            analysis.report_result(value, op, text, certain, reasons(analysis, value))
            break
    return analysis


def _mesh_of(op: Op, meshes: dict[str, Mesh]) -> Mesh | None:
    for sharding in (*op["in_shardings"].shardings, *op["out_shardings"].shardings):
        mesh = sharding.mesh
        found = mesh if isinstance(mesh, Mesh) else meshes.get(str(getattr(mesh, "root", mesh)))
        if found is not None and found.axes:
            return found
    return None


def _coordinates(mesh: Mesh) -> Array:
    """Return one row per device: its coordinates on the mesh."""
    sizes = [axis.size for axis in mesh.axes]
    grid = np.stack(np.unravel_index(np.arange(mesh.size), sizes), axis=1)
    if not mesh.device_ids:
        return grid
    placed = np.empty_like(grid)
    placed[list(mesh.device_ids)] = grid
    return placed


def _axes(sharding: object, names: Sequence[str]) -> list[int]:
    """Return the indices of the axes that shard a value; a sub-axis counts as its axis."""
    found: list[int] = []
    for dimension in sharding.dimensions:  # type: ignore[attr-defined]
        found += [names.index(axis.name) for axis in dimension.axes if axis.name in names]
    return sorted(set(found))


def _is_same_along(labels: Labels, coordinates: Array, axis: int) -> bool:
    """Return whether processes that differ along `axis` only have the same label."""
    others = np.delete(coordinates, axis, axis=1)
    divided = numbered(others) if others.shape[1] else np.zeros(len(labels), np.int64)
    together = numbered(np.stack([divided, labels], axis=1))
    return bool(together.max() == divided.max())
