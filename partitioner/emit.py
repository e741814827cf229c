"""Builds the ops of one process's program: per-device constants, and collectives over sub-axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collectives.shapes import scale_shape, split_shape
from partitioner.mesh import Axes, DeviceMesh
from partitioner.processes import ProcessLayout
from spmd.dialects.make import make_op
from spmd.dialects.op_builder import OpBuilder
from spmd.dialects.structs import (
    AxisRefAttr,
    ChannelHandleAttr,
    MeshAttr,
    MeshAxisAttr,
    ReplicaGroupMeshAxesAttr,
    SubAxisInfoAttr,
)
from spmd.ir import AttributeValue, Op, Value
from spmd.ir.attributes import ArrayAttr
from spmd.types import I32, UI32, ElementType, TensorType

#: The number of padding elements of a value: (low, high) of each dimension.
Padding = Sequence[tuple[int, int]]


class Emitter(OpBuilder):
    """A builder of one process's program; `prologue` holds the ops at its start."""

    def __init__(self, mesh: DeviceMesh, processes: ProcessLayout, index_type: ElementType = I32) -> None:
        super().__init__(index_type)
        self.mesh = mesh
        self.processes = processes
        self.prologue: list[Op] = []
        self._channels = 0
        self._tables: dict[bytes, Value] = {}
        self._device: Value | None = None
        self._is_device: dict[int, Value] = {}

    # --- per-device values

    def per_device_constant(self, entries: Sequence[int] | NDArray[np.int64]) -> Value:
        """Return this process's entry of a table with one entry per device: a scalar of the index type, cached."""
        table = np.asarray(entries, np.int64)
        if (table == table[0]).all():
            return self.index(int(table[0]))
        key = table.tobytes()
        if key not in self._tables:
            ops, self.ops = self.ops, self.prologue
            steps = _steps(self.mesh, table) if self.mesh.size > _LARGE else None
            self._tables[key] = self._looked_up(table) if steps is None else self._counted(int(table[0]), steps)
            self.ops = ops
        return self._tables[key]

    def _looked_up(self, table: NDArray[np.int64]) -> Value:
        constant = self.constant(table.astype(self.index_type.dtype))
        return self.reshape(self.one("dynamic_slice", [constant, self._device_id()], slice_sizes=(1,)), ())

    def _counted(self, first: int, steps: list[_Step]) -> Value:
        """Return `first` plus, for each step, its factor times the coordinate of this process."""
        device = self.convert(self._device_id(), TensorType((), self.index_type))
        total = self.index(first)
        for step in steps:
            place = device if step.stride == 1 else self.binary("divide", device, self.index(step.stride))
            if step.stride * step.size < self.mesh.size:
                place = self.binary("remainder", place, self.index(step.size))
            term = place if step.factor == 1 else self.binary("multiply", place, self.index(step.factor))
            total = self.binary("add", total, term)
        return total

    def _device_id(self) -> Value:
        if self._device is None:
            name = "replica_id" if self.processes.by_replica else "partition_id"
            self._device = self.one(name, (), TensorType((), UI32))
        return self._device

    def coordinate(self, axes: Axes) -> Value:
        """Return the block index of this process along `axes`."""
        return self.per_device_constant(self.mesh.block_index(axes))

    def is_first(self, axes: Axes) -> Value:
        """Return whether this process is the first along `axes`: a scalar of type i1."""
        return self.compare(self.coordinate(axes), self.index(0), "EQ")

    def is_device(self, device: int) -> Value:
        """Return whether this process is `device`: a scalar of type i1, cached."""
        if device not in self._is_device:
            ops, self.ops = self.ops, self.prologue
            own_id = self.convert(self._device_id(), TensorType((), self.index_type))
            self._is_device[device] = self.compare(own_id, self.index(device), "EQ")
            self.ops = ops
        return self._is_device[device]

    # --- collectives

    def _groups(self, axes: Axes, replicas: int) -> NDArray[np.int64] | ReplicaGroupMeshAxesAttr:
        """Return the groups of devices along `axes`, in each of `replicas` copies of the mesh."""
        if self.mesh.size > _LARGE and self.mesh.order is None:
            return _mesh_groups(self.mesh, axes, replicas)
        groups = self.mesh.groups(axes)
        return np.concatenate([groups + replica * self.mesh.size for replica in range(replicas)])

    def _channel(self) -> ChannelHandleAttr:
        self._channels += 1
        return ChannelHandleAttr(self._channels, 1)

    def _among_all(self, axes: Axes) -> dict[str, AttributeValue]:
        """Return the attributes of a collective along `axes` whose groups consist of global process ids."""
        groups = self._groups(axes, self.processes.replicas)
        return {"replica_groups": groups, "channel_handle": self._channel(), "use_global_device_ids": True}

    def _among_devices(self) -> dict[str, AttributeValue]:
        """Return the attributes of a collective of device ids: a channel if they are partitions."""
        return {} if self.processes.by_replica else {"channel_handle": self._channel()}

    def all_gather(self, value: Value, dimension: int, axes: Axes) -> Value:
        """Return the blocks of `value` of the processes along `axes`, concatenated along `dimension`."""
        type = value.tensor.with_shape(scale_shape(value.tensor.static_shape, dimension, self.mesh.count(axes)))
        if type.size == 0:
            return self.splat(0, type)
        attributes = {"all_gather_dim": dimension, **self._among_all(axes)}
        return self.op("stablehlo.all_gather", [value], [type], attributes).results[0]

    def all_reduce(self, value: Value, axes: Axes, name: str) -> Value:
        """Return the reduction of `value` by op `name` over the processes along `axes`."""
        if value.tensor.size == 0:
            return value
        region = self.fold(name, value.tensor)
        return self.op("stablehlo.all_reduce", [value], None, self._among_all(axes), [region]).results[0]

    def reduce_scatter(self, value: Value, dimension: int, axes: Axes, name: str) -> Value:
        """Return this process's block along `dimension` of the result of `all_reduce`."""
        type = value.tensor.with_shape(split_shape(value.tensor.static_shape, dimension, self.mesh.count(axes)))
        if value.tensor.size == 0:
            return self.splat(0, type)
        attributes = {"scatter_dimension": dimension, **self._among_all(axes)}
        region = self.fold(name, value.tensor)
        return self.op("stablehlo.reduce_scatter", [value], [type], attributes, [region]).results[0]

    def all_to_all(self, value: Value, split: int, concat: int, axes: Axes) -> Value:
        """Split `value` along `split` among the processes along `axes`, and concatenate what is received."""
        count = self.mesh.count(axes)
        attributes = {
            "split_dimension": split,
            "concat_dimension": concat,
            "split_count": count,
            "replica_groups": self._groups(axes, 1),
            **self._among_devices(),
        }
        return self._of_some("stablehlo.all_to_all", value, attributes)

    def _of_some(self, name: str, value: Value, attributes: dict[str, AttributeValue]) -> Value:
        """Return the result of a collective on one value; empty values need no communication."""
        op = make_op(name, [value], None, attributes, location=self.location)
        if op.result.tensor.size == 0:
            return self.splat(0, op.result.tensor)
        self.ops.append(op)
        return op.result

    def broadcast_from(self, value: Value, device: int) -> Value:
        """Return the value that `device` holds, on all devices."""
        others = [other for other in range(self.mesh.size) if other != device]
        groups = np.array([[device, *others]], np.int64)
        return self._of_some(
            "stablehlo.collective_broadcast", value, {"replica_groups": groups, **self._among_devices()}
        )

    def permute(self, value: Value, pairs: Iterable[tuple[int, int]]) -> Value:
        """Send `value` from the first to the second device of each pair; devices without a source get zeros."""
        table = np.array(sorted(pairs), np.int64).reshape(-1, 2)
        return self._of_some(
            "stablehlo.collective_permute", value, {"source_target_pairs": table, **self._among_devices()}
        )


#: For meshes with more devices than this, no tables or groups with an entry per device are emitted.
_LARGE = 64


@dataclass(frozen=True)
class _Step:
    """A term `factor * (device // stride % size)` of an entry that is linear in mesh coordinates."""

    stride: int
    size: int
    factor: int


def _steps(mesh: DeviceMesh, table: NDArray[np.int64]) -> list[_Step] | None:
    """Return the terms of a table that is linear in mesh coordinates, in device order; None for any other table."""
    if mesh.order is not None:
        return None
    cube = table.reshape(mesh.sizes)
    origin = (0,) * cube.ndim
    steps: list[_Step] = []
    expected = np.full(mesh.sizes, cube[origin])
    for axis, size in enumerate(mesh.sizes):
        factor = int(cube[(*origin[:axis], 1, *origin[axis + 1 :])] - cube[origin])
        expected += (np.arange(size) * factor).reshape(-1, *(1,) * (cube.ndim - axis - 1))
        last = steps[-1] if steps else None
        if factor and last is not None and last.factor == factor * size and last.stride == mesh.stride(axis) * size:
            steps[-1] = _Step(mesh.stride(axis), last.size * size, factor)
        elif factor:
            steps.append(_Step(mesh.stride(axis), size, factor))
    return steps if np.array_equal(expected, cube) else None


def _mesh_groups(mesh: DeviceMesh, axes: Axes, replicas: int) -> ReplicaGroupMeshAxesAttr:
    """Return the groups along `axes` as mesh axes, with a major axis for the replicas."""
    outer = [MeshAxisAttr(_unused(mesh), replicas)] if replicas > 1 else []
    named = (*outer, *(MeshAxisAttr(name, size) for name, size in mesh.axes.items()))
    refs = tuple(
        AxisRefAttr(run.name, None if run.size == run.full_size else SubAxisInfoAttr(run.pre_size, run.size))
        for run in mesh.runs(axes)
    )
    return ReplicaGroupMeshAxesAttr(MeshAttr(named), ArrayAttr(refs))


def _unused(mesh: DeviceMesh) -> str:
    """Return a name for the axis of replicas that the mesh does not use."""
    name = "replica"
    while name in mesh.axes:
        name += "_"
    return name
