"""Writing the ops of one process's program: constants, slices at run-time places, collectives over atoms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from partitioner.mesh import Axes, DeviceMesh
from spmd.dialects.structs import ChannelHandle
from spmd.dialects.writer import Writer
from spmd.ir import Op, Value
from spmd.types import I32, UI32, TensorType

#: How many elements of padding a value gets: (low, high) of each dimension.
Padding = Sequence[tuple[int, int]]


class Emitter(Writer):
    """A writer of one process's program; `prologue` is its start."""

    def __init__(self, mesh: DeviceMesh, replicas: int = 1) -> None:
        super().__init__()
        self.mesh = mesh
        self.replicas = replicas
        self.prologue: list[Op] = []
        self._channels = 0
        self._coordinates: dict[tuple[int, ...], Value] = {}
        self._partition: Value | None = None

    # --- where this process is

    def table(self, entries: Sequence[int] | NDArray[np.int64]) -> Value:
        """The entry of this process in a table with one entry a device: a scalar of type i32, made once."""
        key = tuple(int(entry) for entry in entries)
        if len(set(key)) == 1:
            return self.index(key[0])
        if key not in self._coordinates:
            ops, self.ops = self.ops, self.prologue
            constant = self.constant(np.array(key, np.int32))
            one = self.one("dynamic_slice", [constant, self._partition_id()], TensorType((1,), I32), slice_sizes=(1,))
            self._coordinates[key] = self.reshape(one, ())
            self.ops = ops
        return self._coordinates[key]

    def _partition_id(self) -> Value:
        if self._partition is None:
            self._partition = self.one("partition_id", (), TensorType((), UI32))
        return self._partition

    def coordinate(self, axes: Axes) -> Value:
        """The block index of this process along `axes`."""
        return self.table(self.mesh.block_index(axes))

    def flag(self, devices: Sequence[bool] | NDArray[np.bool_]) -> Value:
        """Whether this process is among `devices`: a scalar of type i1."""
        entry = self.table([int(device) for device in devices])
        return self.compare(entry, self.index(0), "NE")

    # --- collectives

    def _groups(self, axes: Axes) -> NDArray[np.int64]:
        groups = self.mesh.groups(axes)
        return np.concatenate([groups + replica * self.mesh.size for replica in range(self.replicas)])

    def _channel(self) -> ChannelHandle:
        self._channels += 1
        return ChannelHandle(self._channels, 1)

    def all_gather(self, value: Value, dimension: int, axes: Axes) -> Value:
        shape = list(value.tensor.static_shape)
        shape[dimension] *= self.mesh.count(axes)
        return self.op(
            "stablehlo.all_gather",
            [value],
            [value.tensor.with_shape(tuple(shape))],
            {
                "all_gather_dim": dimension,
                "replica_groups": self._groups(axes),
                "channel_handle": self._channel(),
                "use_global_device_ids": True,
            },
        ).results[0]

    def all_reduce(self, value: Value, axes: Axes, name: str) -> Value:
        return self.op(
            "stablehlo.all_reduce",
            [value],
            [value.type],
            {
                "replica_groups": self._groups(axes),
                "channel_handle": self._channel(),
                "use_global_device_ids": True,
            },
            [self.fold(name, value.tensor)],
        ).results[0]

    def reduce_scatter(self, value: Value, dimension: int, axes: Axes, name: str) -> Value:
        shape = list(value.tensor.static_shape)
        shape[dimension] //= self.mesh.count(axes)
        return self.op(
            "stablehlo.reduce_scatter",
            [value],
            [value.tensor.with_shape(tuple(shape))],
            {
                "scatter_dimension": dimension,
                "replica_groups": self._groups(axes),
                "channel_handle": self._channel(),
                "use_global_device_ids": True,
            },
            [self.fold(name, value.tensor)],
        ).results[0]

    def all_to_all(self, value: Value, split: int, concat: int, axes: Axes) -> Value:
        """Cuts `split` into blocks for the processes along `axes` and joins what comes along `concat`."""
        count = self.mesh.count(axes)
        shape = list(value.tensor.static_shape)
        shape[split] //= count
        shape[concat] *= count
        return self.op(
            "stablehlo.all_to_all",
            [value],
            [value.tensor.with_shape(tuple(shape))],
            {
                "split_dimension": split,
                "concat_dimension": concat,
                "split_count": count,
                "replica_groups": self.mesh.groups(axes),
                "channel_handle": self._channel(),
            },
        ).results[0]

    def permute(self, value: Value, pairs: Iterable[tuple[int, int]]) -> Value:
        """Sends `value` from the first to the second device of each pair; others get zeros."""
        table = np.array(sorted(pairs), np.int64).reshape(-1, 2)
        return self.op(
            "stablehlo.collective_permute",
            [value],
            [value.type],
            {"source_target_pairs": table, "channel_handle": self._channel()},
        ).results[0]
