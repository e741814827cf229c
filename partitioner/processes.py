"""Maps the devices of a mesh to the processes of a grid."""

from __future__ import annotations

from dataclasses import dataclass

from collectives.grid import ProcessGrid
from spmd.ir import Module
from spmd.ir.attributes import IntegerAttr


@dataclass(frozen=True)
class ProcessLayout:
    """`devices` processes: the partitions of each of `replicas` replicas or, if `by_replica`, the replicas."""

    devices: int
    replicas: int = 1
    by_replica: bool = False

    @property
    def grid(self) -> ProcessGrid:
        """The process grid of the layout."""
        return ProcessGrid(self.devices, 1) if self.by_replica else ProcessGrid(self.replicas, self.devices)


def processes_of(module: Module, grid: ProcessGrid | None, devices: int) -> ProcessLayout | None:
    """Return the processes of a mesh of `devices` on `grid`, by default the module's; None if it does not fit."""
    if grid is None:
        replicas, partitions = (_count(module, name) for name in ("mhlo.num_replicas", "mhlo.num_partitions"))
        by_replica = partitions == 1 and replicas == devices > 1
        return ProcessLayout(devices, by_replica=by_replica)
    if grid.num_partitions == devices:
        return ProcessLayout(devices, grid.num_replicas)
    if grid.num_partitions == 1 and grid.num_replicas == devices:
        return ProcessLayout(devices, by_replica=True)
    return None


def devices_of(module: Module, grid: ProcessGrid | None) -> int:
    """Return the number of devices of a program without a mesh."""
    if grid is not None:
        return grid.num_partitions if grid.num_partitions > 1 else grid.num_replicas
    return _count(module, "mhlo.num_partitions")


def _count(module: Module, name: str) -> int:
    count = module.discardable.get(name)
    return count.value if isinstance(count, IntegerAttr) else 1
